"""A launcher knows the workers that it has started by their names: nobody who comes by themselves gets one of those."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import pytest
from coordinated import Hand, Run
from work_streams import OURS, PLAIN, Service

from sparring.orchestrator.coordination import attendance
from sparring.protos import evaluation_pb2 as pb


@pytest.mark.parametrize("name", ["toy-0", "toy-12-r2", "toy-", "toy-7_3"])
def test_a_worker_from_elsewhere_gets_no_name_of_those_that_the_run_starts(tmp_path: Path, name: str) -> None:
    async def test() -> None:
        run = Run(tmp_path / "run")
        first, second = Hand(run, name, launched=False), Hand(run, name, launched=False)
        own = Hand(run, name)
        assert (first.name, second.name, own.name) == (f"{name}.2", f"{name}.3", name)
        own.finishes(own.takes())
        first.finishes(first.takes())
        assert run.coordinator.workers.results_of == {name: 1, f"{name}.2": 1}

    asyncio.run(asyncio.wait_for(test(), 60))


@pytest.mark.parametrize("name", ["toy", "toybox-1", "a-toy-1", "toy-box.example.org-312", "toy-0.2"])
def test_others_have_the_names_that_they_come_with(tmp_path: Path, name: str) -> None:
    async def test() -> None:
        assert Hand(Run(tmp_path / "run"), name, launched=False).name == name

    asyncio.run(asyncio.wait_for(test(), 60))


def test_where_a_run_starts_none_every_name_is_free(tmp_path: Path) -> None:
    async def test() -> None:
        assert Hand(Run(tmp_path / "run", launcher="none"), "toy-0", launched=False).name == "toy-0"

    asyncio.run(asyncio.wait_for(test(), 60))


def test_one_that_goes_with_a_launched_workers_name_does_not_take_that_one_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attendance, "REJOIN_SECONDS", 0.2)
    monkeypatch.setattr(attendance, "_TICK", 0.01)

    async def test() -> None:
        with tempfile.TemporaryDirectory() as sockets:
            service = Service(Run(tmp_path / "run", episodes=2), PLAIN)
            service.local, service.public = await service.service.start(Path(sockets))
            try:
                given_up = asyncio.create_task(service.service.attendance.given_up("toy-0"))
                async with service.worker(worker="toy-0") as stranger:
                    await stranger.hear("assignment")
                    async with service.worker(token=OURS.launched, worker="toy-0") as own:
                        await own.hear("assignment")
                        await stranger.end()
                        await asyncio.sleep(1)
                        assert not given_up.done(), given_up.result()
                        await own.say(ready=pb.Ready(slot=0))
                        await own.hear("lease")
                    reason = await asyncio.wait_for(given_up, 60)
                    assert "the connection to worker 'toy-0' was lost" in reason, "its own end is noticed as ever"
            finally:
                await service.service.stop("the test has ended.")

    asyncio.run(asyncio.wait_for(test(), 60))

"""`--slots auto`: more of them where the policy leaves the cores free."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from coordinated import Run
from support import Sparring, read_csv
from work_streams import OURS, PLAIN, Service

from sparring.orchestrator.execution.more_slots import PassMeter, grow_when_waiting, wanted_cores
from sparring.orchestrator.machine.capacity import SLOT_BYTES, Capacity
from sparring.orchestrator.settings import read_settings
from sparring.protos import evaluation_pb2 as pb
from sparring.protos.machine import machine

BASE = {"benchmark": "toy", "task": "short"}
OWN = {**BASE, "policy": "zero"}


@pytest.mark.parametrize(
    ("heard", "elsewhere"),
    [
        pytest.param([(5.0, 9.0), (5.9, 9.0)], None, id="too little to tell"),
        pytest.param([(5.0, 9.0), (7.0, 9.4)], True, id="passes without work"),
        pytest.param([(5.0, 9.0), (7.0, 11.0)], False, id="one thread, always running or waiting for a core"),
        pytest.param([(5.0, 9.0), (7.0, 17.0)], False, id="many threads"),
        pytest.param([(5.0, 9.0), (0.1, 1.0)], None, id="another server"),
        pytest.param([(5.0, 9.0), (0.1, 1.0), (2.1, 1.2)], True, id="another server, some time later"),
    ],
)
def test_where_passes_are_computed(heard: list[tuple[float, float]], elsewhere: bool | None) -> None:
    meter = PassMeter()
    assert [meter.heard(*one) for one in heard][-1] is elsewhere


def test_what_a_process_wants_of_cores_is_its_threads_time_on_them_and_in_line_for_them(tmp_path: Path) -> None:
    for thread, times in {"7": "1500000000 500000000 9", "8": "250000000 0 2", "9": ""}.items():
        (tmp_path / "7" / "task" / thread).mkdir(parents=True)
        (tmp_path / "7" / "task" / thread / "schedstat").write_text(times)
    assert wanted_cores(7, tmp_path) == 2.25
    assert wanted_cores(8, tmp_path) is None, "it has ended"
    before = wanted_cores(os.getpid())
    sum(range(2_000_000))
    after = wanted_cores(os.getpid())
    assert before is not None
    assert after is not None
    assert after > before


@pytest.mark.parametrize(
    ("settings", "may"),
    [
        (OWN, True),
        ({**OWN, "slots": 2}, False),
        ({**OWN, "launcher": "docker"}, False),
        ({**OWN, "launcher": "none"}, False),
        ({**OWN, "in_process": True}, False),
        ({**OWN, "policy_arg": {"device": "cuda"}}, False),
        ({**BASE, "policy_server": "localhost:1"}, False),
    ],
)
def test_only_a_number_that_was_chosen_here_grows(settings: dict[str, object], may: bool) -> None:
    assert read_settings(settings).may_grow is may


def test_memory_that_slots_have_already_is_not_counted_against_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparring.orchestrator.settings.run.capacity", lambda: Capacity(2, 1 * SLOT_BYTES))
    assert read_settings(OWN).capacity_beside(2).slots(100, elsewhere=True) == 3


@pytest.mark.parametrize(("sessions", "grown"), [(0, [6]), (256, [6]), (4, [4]), (2, []), (1, [])])
def test_they_grow_to_what_the_policy_takes(
    sessions: int, grown: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparring.orchestrator.settings.run.capacity", lambda: Capacity(2))
    told: list[dict[str, int]] = []

    async def test() -> None:
        run = Run(tmp_path, episodes=40)
        service: Any = SimpleNamespace(coordinator=run.coordinator, grow=told.append)
        host: Any = None  # nobody asks it, where the policy is on a GPU
        await grow_when_waiting(run.settings, service, host, 2, on_gpu=True, sessions=sessions)

    asyncio.run(test())
    assert told == [{"toy": number} for number in grown]


@pytest.mark.parametrize(("initialized", "told"), [(True, "cuda"), (False, None)])
def test_a_server_says_that_torch_computes_on_a_gpu(
    initialized: bool, told: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda = SimpleNamespace(is_initialized=lambda: initialized)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda, version=None))
    assert machine().get("device") == told


def test_workers_of_the_run_are_told_to_hold_more_and_those_that_come_after_them(tmp_path: Path) -> None:
    async def work(service: Service) -> None:
        token = OURS.launched
        async with service.worker(worker="ours", token=token) as ours, service.worker(worker="stranger") as stranger:
            before = await ours.hear("assignment")
            await stranger.hear("assignment")
            service.service.grow({"toy": 1})
            service.service.grow({"toy": 3})
            after = await ours.hear("assignment")
            assert (before.slots, after.slots) == (2, 3), "nothing is said where it has enough"
            assert (after.membership, after.rejoin_seconds) == (before.membership, before.rejoin_seconds)
            await ours.say(ready=pb.Ready(slot=2))
            assert (await ours.hear("lease")).slot == 2
            await stranger.say(ready=pb.Ready(slot=1))
            await stranger.hear("lease")  # it was told nothing in between
        async with service.worker(worker="ours", token=token, membership=before.membership) as back:
            assert (await back.hear("assignment")).slots == 3
        async with service.worker(worker="next", token=token) as other:
            assert (await other.hear("assignment")).slots == 3

    async def test() -> None:
        with tempfile.TemporaryDirectory() as sockets:
            service = Service(Run(tmp_path / "run"), PLAIN)
            service.local, _ = await service.service.start(Path(sockets), None)
            try:
                await work(service)
            finally:
                await service.service.stop("the test has ended.")

    asyncio.run(asyncio.wait_for(test(), 30))


@pytest.mark.everything
def test_a_policy_that_only_waits_gets_more_slots_and_the_same_rows(sparring: Sparring, tmp_path: Path) -> None:
    run = ("run", "--benchmark", "toy", "--task", "short", "--episodes", "40", "--policy", "toy_policies:Forward")
    slow = ("--policy-arg", "gain=0.1", "--policy-arg", "seconds=0.06")  # much, beside what a busy machine adds
    for slots, said in (("auto", "as the policy is computed elsewhere"), ("8", "")):
        ended = sparring(*run, *slow, "--slots", slots, "--output", slots)
        assert ended.returncode == 0, ended.stderr
        assert said in ended.stderr
        assert ("and not" in ended.stderr) == (slots == "auto")
    kept = ("task", "index", "seed", "outcome", "steps", "reward_sum")
    rows = [sorted(tuple(row[name] for name in kept) for row in read_csv(tmp_path / slots)) for slots in ("auto", "8")]
    assert rows[0] == rows[1]
    assert len(rows[0]) == 40

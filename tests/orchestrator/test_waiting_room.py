"""Workers that come before the policy is there: a real Work service, and real streams to it."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from coordinated import Run
from work_streams import OURS, PLAIN, Service

from sparring.orchestrator.coordination import waiting_room
from sparring.orchestrator.serving.images import looks_at_images
from sparring.orchestrator.settings import read_settings
from sparring.protos import evaluation_pb2 as pb

Test = Callable[[Service], Awaitable[None]]
TASKS = "short,long,flaky"


@pytest.fixture
def in_service(tmp_path: Path) -> Callable[..., None]:
    """Runs a test with a service that knows of no policy yet."""

    def run(test: Test, **settings: Any) -> None:
        async def work() -> None:
            served = Run(tmp_path / "run", **settings)
            service = Service(served, None, OURS)
            with tempfile.TemporaryDirectory() as folder:
                service.local, service.public = await service.service.start(Path(folder))
                try:
                    await test(service)
                finally:
                    await service.service.stop("the test is over.")
                    served.journal.close()

        asyncio.run(asyncio.wait_for(work(), 60))

    return run


def test_whoever_comes_before_the_policy_gets_ready_and_begins_with_what_it_made_ready(
    in_service: Callable[..., None],
) -> None:
    async def test(service: Service) -> None:
        async with service.worker(worker="early", slots=2) as stream:
            preparation = await stream.hear("preparation")
            untold = preparation.assignment
            assert (untold.benchmark, untold.slots, preparation.images) == ("toy", 2, False)
            assert json.loads(untold.benchmark_settings) == {}
            assert not untold.policy_addresses
            assert not untold.policy_token
            assert not untold.membership
            assert preparation.seconds > 600  # longer than a policy may take
            assert len(set(preparation.tasks)) == 2
            assert set(preparation.tasks) <= set(TASKS.split(","))
            # It is none of the run's yet.
            assert service.run.watcher.workers == []
            assert service.run.journal.makers() == {}
            assert service.run.coordinator.workers.versions == {}

            service.service.open(PLAIN)
            assignment = await stream.hear("assignment")
            assert list(assignment.policy_addresses) == list(map(str, PLAIN.addresses))
            assert (assignment.benchmark, assignment.slots) == ("toy", 2)
            assert service.run.watcher.workers == [("early", 2)]
            for slot in (1, 0):  # whoever asks first
                await stream.say(ready=pb.Ready(slot=slot))
                lease = await stream.hear("lease")
                assert (lease.slot, lease.task) == (slot, preparation.tasks[slot])

    in_service(test, task=TASKS, episodes=2)


def test_who_comes_after_the_policy_is_assigned_at_once(in_service: Callable[..., None]) -> None:
    async def test(service: Service) -> None:
        service.service.open(PLAIN)
        async with service.worker() as stream:
            await stream.hear("assignment")

    in_service(test)


def test_a_run_that_ends_before_its_policy_is_there_says_stop(in_service: Callable[..., None]) -> None:
    async def test(service: Service) -> None:
        async with service.worker() as stream:
            await stream.hear("preparation")
            stopping = asyncio.create_task(service.service.stop("the policy cannot be loaded."))
            assert (await stream.hear("stop")).reason == "the policy cannot be loaded."
            await stopping

    in_service(test)


def test_a_worker_that_goes_leaves_its_task_to_the_next(in_service: Callable[..., None]) -> None:
    async def test(service: Service) -> None:
        async with service.worker(worker="one", slots=1) as stream:
            first = list((await stream.hear("preparation")).tasks)
        for _ in range(100):  # until the service has noticed
            async with service.worker(worker="two", slots=1) as stream:
                if list((await stream.hear("preparation")).tasks) == first:
                    return
            await asyncio.sleep(0.05)
        raise AssertionError("the task is kept for one who has gone")

    in_service(test, task=TASKS, episodes=2)


def test_no_more_tasks_are_made_ready_than_may_be_open(in_service: Callable[..., None]) -> None:
    async def test(service: Service) -> None:
        async with service.worker(slots=3) as stream:
            assert len(set((await stream.hear("preparation")).tasks)) == 1

    in_service(test, task=TASKS, episodes=2, max_parallel_tasks=1)


def test_two_of_one_name_are_two(in_service: Callable[..., None]) -> None:
    async def test(service: Service) -> None:
        async with service.worker(worker="w") as one, service.worker(worker="w") as other:
            await one.hear("preparation")
            await other.hear("preparation")
            service.service.open(PLAIN)
            await one.hear("assignment")
            await other.hear("assignment")
            assert {name for name, _ in service.run.watcher.workers} == {"w", "w.2"}

    in_service(test)


def test_who_says_too_much_or_is_one_too_many_does_not_wait(
    in_service: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting_room, "MAX_WORKERS", 1)

    async def test(service: Service) -> None:
        async with service.worker(worker="w" * 10_000) as stream:
            assert (await stream.refusal())[0] == grpc.StatusCode.FAILED_PRECONDITION
        async with service.worker(worker="one") as stream:
            await stream.hear("preparation")  # before the second dials in: whoever comes first is let in
            async with service.worker(worker="two") as other:
                assert "no more are taken in" in (await other.refusal())[1]

    in_service(test)


@pytest.mark.parametrize(
    ("settings", "config", "looks"),
    [
        ({"policy": "zero"}, None, False),
        ({"policy": "zero", "policy_arg": {"observations": ["observation.image"]}}, None, True),
        ({"policy": "zero", "policy_arg": {"observations": ["observation.state"]}}, None, False),
        ({"policy": "zero", "video": "failures", "video_live": True}, None, True),
        ({"policy": "zero", "video": "failures"}, None, False),
        ({"policy": "zero", "video": "successes"}, None, False),
        ({"policy": "zero", "video": "failures", "actions": False}, None, True),
        ({"policy": "zero", "video": "all"}, None, True),
        ({"policy": "zero", "video": "first:2"}, None, True),
        ({"policy_server": "127.0.0.1:1"}, None, False),
        ({"policy": "lerobot:owner/name"}, None, True),
        ({"policy": "lerobot:{folder}"}, {"input_features": {"a": {"type": "STATE"}, "b": {"type": "VISUAL"}}}, True),
        ({"policy": "lerobot:{folder}"}, {"input_features": {"a": {"type": "STATE"}}}, False),
        ({"policy": "lerobot:{folder}"}, [[]], False),
        ({"policy": "lerobot:{folder}"}, None, False),
    ],
)
def test_what_can_be_known_of_a_policy_before_it_is_loaded(
    settings: dict[str, Any], config: Any, looks: bool, tmp_path: Path
) -> None:
    if config is not None:
        (tmp_path / "config.json").write_text(json.dumps(config))
    named = {name: v.format(folder=tmp_path) if isinstance(v, str) else v for name, v in settings.items()}
    read = read_settings({"benchmark": "toy", "task": "short", **named})
    assert looks_at_images(read) is looks

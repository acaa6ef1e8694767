"""What the coordinator makes of results and losses: rows, retries, and when it gives up. No worker, no gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from sparring.env_worker.benchmark import Task
from sparring.orchestrator.results.journal import Journal
from sparring.orchestrator.run.coordinator import Coordinator, RunStopped
from sparring.orchestrator.run.listeners import RunListener
from sparring.orchestrator.run.plan import EpisodeId, Plan
from sparring.orchestrator.run.retry import RetryRules
from sparring.orchestrator.settings import read_settings
from sparring.protos import evaluation_pb2 as pb
from sparring.protos.record import EpisodeRecord


class Heard(RunListener):
    """Remembers why episodes are tried again."""

    def __init__(self) -> None:
        self.retries: list[str] = []

    def on_retry(self, episode: EpisodeId, reason: str) -> None:
        self.retries.append(reason)


class Run:
    """A coordinator with one worker of one slot."""

    def __init__(self, folder: Path, *, episodes: int = 1, rules: RetryRules) -> None:
        settings = read_settings({"benchmark": "toy", "task": "short", "policy": "zero", "episodes": episodes}, None)
        plan = Plan({"toy": [Task("short", "Go", "short")]}, episodes, seed=100)
        self.journal, self.heard = Journal(folder), Heard()
        self.coordinator = Coordinator(plan, settings, self.journal, folder, self.heard, rules)
        self.sent: list[pb.OrchestratorMessage] = []
        self.join("w")

    def join(self, worker: str) -> None:
        self.coordinator.join(pb.Register(worker=worker), pb.Assignment(benchmark="toy", slots=1), self.sent.append)

    def lease(self, worker: str = "w") -> int:
        """The loan that the slot gets when it asks."""
        self.coordinator.handle(worker, pb.WorkerMessage(ready=pb.Ready(slot=0)))
        return self.sent[-1].lease.lease

    def end(self, lease: int, record: EpisodeRecord) -> None:
        self.coordinator.handle("w", pb.WorkerMessage(result=record.to_message(lease)))

    def lose(self, lease: int, *, unreachable: bool = False) -> None:
        lost = pb.Lost(lease=lease, reason="gone", policy_unreachable=unreachable)
        self.coordinator.handle("w", pb.WorkerMessage(lost=lost))


def in_loop(test: Callable[[Path], Coroutine[Any, Any, None]]) -> Callable[[Path], None]:
    """A coordinator lives in an event loop."""

    def run(tmp_path: Path) -> None:
        asyncio.run(asyncio.wait_for(test(tmp_path), 10))

    run.__name__ = run.__qualname__ = test.__name__
    return run


@in_loop
async def test_a_record_is_written_as_it_came(tmp_path: Path) -> None:
    run = Run(tmp_path, rules=RetryRules())
    record = EpisodeRecord(outcome="success", steps=7, reward_sum=1.5, physics_s=0.25, metrics={"distance": 0.5})
    run.end(run.lease(), record)
    await run.coordinator.ended
    (row,) = run.journal.rows()
    assert {name: getattr(row, name) for name in vars(record)} == vars(record)
    assert (row.id, row.seed, row.attempts, row.video) == (EpisodeId("toy", "short", 0), 100, 1, "")


@in_loop
async def test_the_kind_of_an_error_decides_how_often_it_is_tried_again(tmp_path: Path) -> None:
    run = Run(tmp_path, episodes=2, rules=RetryRules(retries=1, retries_of={"policy": 0}))
    run.end(run.lease(), EpisodeRecord.failed("policy", "no idea"))
    run.end(run.lease(), EpisodeRecord.failed("simulator", "boom"))
    run.end(run.lease(), EpisodeRecord.failed("simulator", "boom"))
    await run.coordinator.ended
    assert [(r.outcome, r.error_kind, r.attempts) for r in run.journal.rows()] == [
        ("error", "policy", 1),
        ("error", "simulator", 2),
    ]
    assert run.heard.retries == ["boom"]


@in_loop
async def test_an_episode_that_is_lost_again_and_again_is_an_error_of_that_kind(tmp_path: Path) -> None:
    run = Run(tmp_path, rules=RetryRules(losses=3))
    for _ in range(3):
        run.lose(run.lease())
    await run.coordinator.ended
    (row,) = run.journal.rows()
    assert (row.outcome, row.error_kind) == ("error", "lost")
    assert row.error == "lost 3 times, the last time because: gone"


@in_loop
async def test_a_worker_that_leaves_gives_its_episode_to_the_next(tmp_path: Path) -> None:
    run = Run(tmp_path, rules=RetryRules(retries=0))
    late = run.lease()
    run.coordinator.leave("w", "cut off")
    run.join("v")
    lease = run.lease("v")
    assert lease != late
    run.coordinator.handle("v", pb.WorkerMessage(result=EpisodeRecord(outcome="failure", steps=1).to_message(late)))
    assert run.journal.rows() == [], "a late result was recorded"
    run.coordinator.handle("v", pb.WorkerMessage(result=EpisodeRecord(outcome="success").to_message(lease)))
    await run.coordinator.ended
    assert [(r.outcome, r.attempts) for r in run.journal.rows()] == [("success", 1)]


@in_loop
async def test_a_run_without_a_policy_server_is_given_up_after_so_many_slots(tmp_path: Path) -> None:
    run = Run(tmp_path, episodes=2, rules=RetryRules(unreachable=2))
    run.lose(run.lease(), unreachable=True)
    run.end(run.lease(), EpisodeRecord(outcome="success"))  # it was there again
    run.lose(run.lease(), unreachable=True)
    assert not run.coordinator.ended.done()
    run.lose(run.lease(), unreachable=True)
    with pytest.raises(RunStopped, match="gone"):
        await run.coordinator.ended
    assert len(run.journal.rows()) == 1


@in_loop
async def test_what_nobody_can_make_anything_of_is_an_error(tmp_path: Path) -> None:
    run = Run(tmp_path, rules=RetryRules(retries=0))
    run.coordinator.handle("w", pb.WorkerMessage(result=pb.Result(lease=run.lease(), reward_sum=float("nan"))))
    await run.coordinator.ended
    assert [(r.outcome, r.error_kind) for r in run.journal.rows()] == [("error", "internal")]

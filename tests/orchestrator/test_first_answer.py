"""A hosted policy whose first answer takes longer than it may: the run says what to raise, and stops."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from coordinated import Hand, Run

from sparring.orchestrator.run.errors import RunStopped
from sparring.orchestrator.serving.policy_host import ServerEnd
from sparring.protos import evaluation_pb2 as pb
from sparring.protos.advice import FLAGS


def hang(run: Run, worker: Hand) -> None:
    """Plays an episode in which the policy does not answer; its server is killed, and comes back."""
    run.coordinator.policy.restart = lambda why, **_: True
    lost = pb.Lost(lease=worker.takes().lease, reason="no answer.", policy_unanswered=True)
    worker.says(lost=lost)
    run.coordinator.policy_ended(ServerEnd("hung", "did not answer within 60 s and was killed"))
    run.coordinator.policy_ready()


def in_run(folder: Path, test: Callable[[Run], Awaitable[None]]) -> None:
    async def work() -> None:
        await test(Run(folder / "run", episodes=4))

    asyncio.run(asyncio.wait_for(work(), 60))


def test_a_policy_that_never_answers_stops_the_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test(run: Run) -> None:
        worker = Hand(run)
        hang(run, worker)
        assert "has answered nothing within 60 s" in caplog.text
        assert "raise --policy-timeout" in caplog.text
        hang(run, worker)
        assert [row.error_kind for row in run.journal.rows()] == ["limit"], "it may have been that episode"
        assert not run.coordinator.ended.done()
        hang(run, worker)
        with pytest.raises(RunStopped) as stopped:
            await run.coordinator.ended
        said = "has not given its first answer within 60 s, whatever is played. Raise --policy-timeout"
        assert said in stopped.value.told(FLAGS)
        assert caplog.text.count("raise --policy-timeout") == 1

    in_run(tmp_path, test)


@pytest.mark.parametrize("how", ["result", "heartbeat"])
def test_one_that_has_answered_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture, how: str) -> None:
    async def test(run: Run) -> None:
        worker = Hand(run)
        lease = worker.takes()
        if how == "heartbeat":
            playing = pb.SlotActivity(slot=0, task=lease.task, index=lease.index, steps=1)
            worker.says(heartbeat=pb.Heartbeat(slots=[playing]))
        worker.finishes(lease, round_trips=1 if how == "result" else 0)
        for _ in range(4):
            hang(run, worker)
        assert not run.coordinator.ended.done()
        assert [row.error_kind for row in run.journal.rows()] == ["", "limit", "limit"]
        assert "has answered nothing" not in caplog.text

    in_run(tmp_path, test)

"""Runs that start no workers: who is let in can end them until somebody has played, and nobody can after that."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from coordinated import Hand, Run

from sparring.orchestrator.coordination import workers
from sparring.orchestrator.coordination.program_check import ChangedProgram
from sparring.orchestrator.execution.attended import attended
from sparring.orchestrator.run.errors import RunStopped
from sparring.protos import evaluation_pb2 as pb
from sparring.protos.errors import UsageError

InRun = Callable[..., None]


@pytest.fixture
def in_run(tmp_path: Path) -> InRun:
    """Runs a test in an event loop, with a coordinator of a run that starts no workers; again: on the same journal."""

    def run(test: Callable[[Run], Awaitable[None]], **settings: Any) -> None:
        async def work() -> None:
            made = Run(tmp_path / "run", **{"launcher": "none", "episodes": 9, **settings})
            made.coordinator.policy_reports.on_report = lambda worker, reason: reports(made).append(worker)
            await test(made)
            made.journal.close()

        asyncio.run(asyncio.wait_for(work(), 60))

    return run


def reports(run: Run) -> list[str]:
    found: list[str] = run.__dict__.setdefault("reports", [])
    return found


def comes(run: Run, name: str, **more: Any) -> Hand:
    return Hand(run, name, launched=False, **more)


def is_sent_away(worker: Hand) -> bool:
    return any(message.WhichOneof("message") == "stop" for message in worker.inbox)


def plays(worker: Hand) -> None:
    worker.finishes(worker.takes())


def refuses(worker: Hand) -> None:
    worker.says(refused=pb.Refused(lease=worker.takes().lease, reason="it wants a camera."))


def fails(worker: Hand, times: int, error: str = "boom.") -> None:
    for _ in range(times):
        worker.finishes(worker.takes(), pb.OUTCOME_ERROR, error=error, error_kind=pb.ERROR_KIND_SIMULATOR)


async def is_finished_by_somebody_honest(run: Run) -> None:
    assert not run.coordinator.ended.done()
    honest = comes(run, "honest")
    while (lease := honest.ready()) is not None:
        honest.finishes(lease)
    await run.coordinator.ended


def test_that_nothing_can_be_played_is_believed_until_somebody_has_played(in_run: InRun) -> None:
    async def first(run: Run) -> None:
        refuses(comes(run, "only"))
        with pytest.raises(UsageError, match="it wants a camera"):
            await run.coordinator.ended

    async def later(run: Run) -> None:
        worker = comes(run, "worker")
        plays(worker)
        refuses(worker)
        assert is_sent_away(worker)
        worker.leaves()
        for name in ("another", "a third"):  # nor do two of them end it
            liar = comes(run, name)
            refuses(liar)
            assert is_sent_away(liar)
            liar.leaves()
        assert not run.coordinator.ended.done()

    async def resumed(run: Run) -> None:
        liar = comes(run, "liar")
        refuses(liar)
        assert is_sent_away(liar)
        liar.leaves()
        await is_finished_by_somebody_honest(run)

    in_run(first)
    in_run(later)
    in_run(resumed)


def test_that_it_cannot_get_ready_likewise(in_run: InRun) -> None:
    async def first(run: Run) -> None:
        comes(run, "only").says(refused=pb.Refused(reason="it raised."))
        with pytest.raises(UsageError, match="it raised"):
            await run.coordinator.ended

    async def where_workers_are_started(run: Run) -> None:
        comes(run, "only").says(refused=pb.Refused(reason="it raised."))
        await is_finished_by_somebody_honest(run)

    in_run(first)
    in_run(where_workers_are_started, launcher="process")


def test_nor_does_the_other_program_of_one_that_comes_later_end_it(
    in_run: InRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(run: Run) -> None:
        worker = comes(run, "worker")
        plays(worker)
        worker.leaves()

        def changed(*_: object, **__: object) -> str:
            raise ChangedProgram("it is another one.")

        monkeypatch.setattr(run.coordinator._programs, "benchmark", changed)
        with pytest.raises(ChangedProgram):
            comes(run, "other")
        assert not run.coordinator.ended.done()

    in_run(test)


def test_errors_of_the_only_one_end_it_until_somebody_has_played(in_run: InRun) -> None:
    async def first(run: Run) -> None:
        fails(comes(run, "only"), 3)
        with pytest.raises(RunStopped, match="all 3 attempts so far, of 3 episodes, ended in the same error: boom"):
            await run.coordinator.ended

    async def later(run: Run) -> None:
        plays(comes(run, "good"))

    async def resumed(run: Run) -> None:
        bad = comes(run, "bad")
        fails(bad, 2)
        assert not is_sent_away(bad)
        fails(bad, 1)
        assert is_sent_away(bad)
        assert bad.ready() is None, "it gets nothing more"
        bad.leaves()
        await is_finished_by_somebody_honest(run)

    in_run(first, max_errors=3, retries=0)
    in_run(later, max_errors=3, retries=0)
    in_run(resumed, max_errors=3, retries=0)


@pytest.mark.parametrize("confirmed", [False, True])
def test_errors_of_one_that_others_do_not_confirm_send_it_away(in_run: InRun, confirmed: bool) -> None:
    async def test(run: Run) -> None:
        bad, other = comes(run, "bad"), comes(run, "other")
        if confirmed:
            fails(other, 1)
        else:
            other.takes()
        fails(bad, 2)
        if confirmed:
            with pytest.raises(RunStopped, match="all 3 attempts so far"):
                await run.coordinator.ended
        else:
            fails(bad, 1)
            assert is_sent_away(bad)
            assert not is_sent_away(other)
            assert not run.coordinator.ended.done()

    in_run(test, max_errors=3, retries=0)


def test_a_worker_with_different_errors_stays(in_run: InRun) -> None:
    async def test(run: Run) -> None:
        plays(comes(run, "good"))
        odd = comes(run, "odd")
        for thing in ("one", "another", "a third"):
            fails(odd, 2, f"{thing} thing.")
        assert not is_sent_away(odd)
        fails(odd, 1, "one thing.")
        assert is_sent_away(odd), "nothing but errors comes of it, and one of them as often as is enough"

    in_run(test, max_errors=3, retries=0)


def test_that_the_policy_is_gone_is_looked_into(in_run: InRun) -> None:
    """Whoever starts nobody can ask the policy server itself."""

    async def test(run: Run) -> None:
        worker = comes(run, "w", slots=2)
        for slot in range(2):
            assert reports(run) == []
            lost = pb.Lost(lease=worker.takes(slot).lease, reason="nobody answers.", policy_unreachable=True)
            worker.says(lost=lost)
        assert reports(run) == ["w"]
        assert worker.ready() is None, "it gets nothing until that is known"
        worker.leaves()
        await is_finished_by_somebody_honest(run)

    in_run(test)


@pytest.mark.parametrize("played", [False, True])
def test_that_it_is_full_ends_a_run_that_nobody_has_played(in_run: InRun, played: bool) -> None:
    async def test(run: Run) -> None:
        worker = comes(run, "w")
        if played:
            plays(worker)
        for _ in range(2):
            worker.says(lost=pb.Lost(lease=worker.takes().lease, reason="it is full.", policy_full=True))
            assert not is_sent_away(worker) or _ == 1
            await asyncio.sleep(0.03)
        assert is_sent_away(worker) == played
        assert run.coordinator.ended.done() == (not played)
        if not played:
            with pytest.raises(RunStopped, match="no slot got a session"):
                await run.coordinator.ended

    in_run(test, policy_timeout=0.02)


def test_who_waits_in_vain_for_another_worker_hears_why_the_last_one_went(in_run: InRun) -> None:
    async def test(run: Run) -> None:
        worker = comes(run, "w")
        plays(worker)
        refuses(worker)
        worker.leaves()
        with pytest.raises(RunStopped, match=r"no worker of toy .* The last one was turned away: .* it wants a camera"):
            await attended(run.coordinator, run.settings, "--orchestrator there")

    in_run(test, worker_timeout=0.05)


def test_names_of_workers_that_come_and_go_are_forgotten(in_run: InRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "MAX_WORKERS", 3)

    async def test(run: Run) -> None:
        for number in range(20):
            worker = comes(run, f"idle-{number}")
            lost = pb.Lost(lease=worker.takes().lease, reason="nobody answers.", policy_unreachable=True)
            worker.says(lost=lost)
            worker.leaves()
        coordinator = run.coordinator
        kept = (coordinator.workers.versions, coordinator.workers.results_of, coordinator._recorder._players)
        assert [len(names) for names in kept] == [0, 0, 0]
        assert not coordinator.policy._in_vain_of
        for number in range(5):
            worker = comes(run, f"busy-{number}")
            plays(worker)
            worker.leaves()
        assert list(coordinator.workers.versions) == ["busy-2", "busy-3", "busy-4"], "who made rows is told, to an end"
        assert not coordinator.workers.results_of
        assert not coordinator._recorder._players
        assert not coordinator._recorder._makers
        started = Hand(run, "toy-0")
        plays(started)
        started.leaves()
        assert coordinator.workers.results_of["toy-0"] == 1, "its launcher asks whether to start it again"

    in_run(test, episodes=40)

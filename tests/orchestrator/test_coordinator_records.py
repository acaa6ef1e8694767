"""What the coordinator makes of the record that a worker sends."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path

import pytest
from coordinated import Hand, Run

from sparring.orchestrator.coordination.bounds import OutOfBounds
from sparring.orchestrator.results.row import EpisodeRow
from sparring.orchestrator.retry import RetryRules
from sparring.orchestrator.run.errors import RunStopped
from sparring.protos import action_list
from sparring.protos import evaluation_pb2 as pb
from sparring.protos.errors import UsageError
from sparring.protos.record import EpisodeRecord


def rows_of(folder: Path, *records: EpisodeRecord, rules: RetryRules) -> list[EpisodeRow]:
    """The rows of a run of two episodes whose leases end with these records."""

    async def work() -> list[EpisodeRow]:
        run = Run(folder, rules=rules)
        worker = Hand(run)
        for record in records:
            worker.says(result=record.to_message(worker.takes().lease))
        await run.coordinator.ended
        return run.journal.rows()

    return asyncio.run(asyncio.wait_for(work(), 60))


def test_it_is_written_as_it_came(tmp_path: Path) -> None:
    first = EpisodeRecord(outcome="success", steps=7, reward_sum=1.5, physics_s=0.25, metrics={"distance": 0.5})
    second = EpisodeRecord(outcome="failure", out_of_range=2)
    rows = rows_of(tmp_path, first, second, rules=RetryRules())
    for row, record in zip(rows, (first, second), strict=True):
        assert {name: getattr(row, name) for name in vars(record)} == vars(record)
        assert (row.seed, row.attempts, row.video) == (100 + row.index, 1, "")


def test_the_kind_of_an_error_decides_how_often_it_is_tried_again(tmp_path: Path) -> None:
    policy, simulator = EpisodeRecord.failed("policy", "no idea"), EpisodeRecord.failed("simulator", "boom")
    rows = rows_of(tmp_path, policy, simulator, simulator, rules=RetryRules(retries=1, retries_of={"policy": 0}))
    assert [(r.error_kind, r.attempts) for r in rows] == [("policy", 1), ("simulator", 2)]


def test_a_number_that_is_none_is_an_error_of_its_episode_and_the_run_goes_on(tmp_path: Path) -> None:
    good = EpisodeRecord(outcome="success", reward_sum=1.0)
    rows = rows_of(tmp_path, EpisodeRecord(outcome="success", reward_sum=math.nan), good, rules=RetryRules(retries=0))
    assert [(r.outcome, r.error_kind) for r in rows] == [("error", "internal"), ("success", "")]


def test_a_result_that_cannot_be_recorded_stops_the_run_and_leaves_its_episode_unfinished(tmp_path: Path) -> None:
    async def work() -> None:
        run = Run(tmp_path)
        worker = Hand(run)
        lease = worker.takes()
        # A seed that SQLite has no place for; settings do not let it through, but another mistake of ours may come.
        object.__setattr__(run.coordinator._plan, "seed", 2**63)
        worker.finishes(lease)
        assert run.coordinator.unfinished == 2, "the episode has vanished"
        with pytest.raises(RunStopped, match=r"a mistake in Sparring.*OverflowError"):
            await run.coordinator.ended
        assert run.journal.rows() == []
        assert run.watcher.rows == [], "somebody has heard of what is not in the journal"

    asyncio.run(asyncio.wait_for(work(), 60))


def test_attempts_are_counted_over_all_executions(tmp_path: Path) -> None:
    boom = EpisodeRecord.failed("simulator", "boom")

    async def work(*records: EpisodeRecord) -> list[tuple[str, int]]:
        run = Run(tmp_path, rules=RetryRules(retries=1), episodes=1)
        worker = Hand(run)
        for record in records:
            worker.says(result=record.to_message(worker.takes().lease))
        rows = [(row.outcome, row.attempts) for row in run.journal.rows()]
        run.journal.close()
        return rows

    assert asyncio.run(work(boom)) == [], "it is to be tried again, and the run is interrupted"
    assert asyncio.run(work(boom, boom)) == [("error", 3)]
    assert asyncio.run(work(EpisodeRecord(outcome="success"))) == [("success", 4)]


def test_an_episode_that_was_only_ever_lost_has_no_attempt(tmp_path: Path) -> None:
    async def work() -> list[tuple[str, int]]:
        run = Run(tmp_path, rules=RetryRules(losses=2), episodes=1)
        worker = Hand(run)
        for _ in range(2):
            worker.says(lost=pb.Lost(lease=worker.takes().lease, reason="killed."))
        await run.coordinator.ended
        return [(row.error_kind, row.attempts) for row in run.journal.rows()]

    assert asyncio.run(asyncio.wait_for(work(), 60)) == [("lost", 0)]


@pytest.mark.parametrize("kept", [True, False])
def test_actions_are_kept_if_they_are_asked_for_and_the_outcome_is_known(tmp_path: Path, kept: bool) -> None:
    async def work() -> list[bytes]:
        run = Run(tmp_path, rules=RetryRules(retries=1), actions=kept)
        worker = Hand(run)
        failing = worker.takes()
        assert failing.keep_actions is kept
        worker.finishes(failing, pb.OUTCOME_ERROR, actions=b"of a try that does not count")
        worker.finishes(worker.takes(), actions=b"first")
        lost = worker.takes()
        worker.says(lost=pb.Lost(lease=lost.lease, reason="gone."))
        worker.finishes(lost, actions=b"of a lease that was given back")
        worker.finishes(worker.takes(), pb.OUTCOME_FAILURE, actions=b"second")
        await run.coordinator.ended
        return [run.journal.actions(row.id) for row in run.journal.rows()]

    found = asyncio.run(asyncio.wait_for(work(), 60))
    assert found == ([b"first", b"second"] if kept else [b"", b""]), "unasked for, or of another attempt"


def test_actions_beyond_the_limit_send_their_worker_away(tmp_path: Path) -> None:
    async def work() -> None:
        worker = Hand(Run(tmp_path))
        most = action_list.MOST_BYTES
        worker.finishes(worker.takes(), actions=bytes(most))
        with pytest.raises(OutOfBounds, match=f"{most + 1:,} bytes; {most:,} are the most"):
            worker.finishes(worker.takes(), actions=bytes(most + 1))

    asyncio.run(asyncio.wait_for(work(), 60))


TRACEBACK = 'Traceback (most recent call last):\n  File "theirs.py", line {}, in step\nValueError: boom {}\n'


def test_tracebacks_of_benchmarks_are_in_the_runs_folder_and_sentences_name_them(tmp_path: Path) -> None:
    async def work() -> None:
        run = Run(tmp_path, episodes=4, output=tmp_path, rules=RetryRules(retries=0), max_errors=0)
        worker = Hand(run)
        for number, line in enumerate([1, 1, 2]):
            found = EpisodeRecord.failed("simulator", f"boom {number}").to_message(worker.takes().lease)
            found.traceback = TRACEBACK.format(line, number)
            worker.says(result=found)
        played = EpisodeRecord(outcome="success").to_message(worker.takes().lease)
        played.traceback = TRACEBACK.format(9, 9)
        worker.says(result=played)
        await run.coordinator.ended
        rows = run.journal.rows()
        names = [row.error.partition(" (traceback: ")[2].removesuffix(")") for row in rows]
        assert names[0] == names[1] != names[2], "one file for each that differs"
        assert names[3] == rows[3].error == "", "who has an outcome has raised nothing"
        assert [row.error.partition(" (")[0] for row in rows[:3]] == ["boom 0", "boom 1", "boom 2"]
        assert (tmp_path / names[0]).read_text().endswith(TRACEBACK.format(1, 0))
        assert len(list((tmp_path / "errors").iterdir())) == 2

    asyncio.run(asyncio.wait_for(work(), 60))


def test_what_no_attempt_can_cure_ends_the_run_with_its_traceback(tmp_path: Path) -> None:
    async def work() -> None:
        run = Run(tmp_path, output=tmp_path)
        worker = Hand(run)
        refused = pb.Refused(
            lease=worker.takes().lease, reason="no module.", traceback=TRACEBACK.format(1, "x" * 10**6)
        )
        worker.says(refused=refused)
        (kept,) = (tmp_path / "errors").iterdir()
        with pytest.raises(UsageError, match=rf"no module\. \(traceback: errors/{kept.name}\)"):
            await run.coordinator.ended
        assert kept.stat().st_size < 70_000, "however much a worker sends"

    asyncio.run(asyncio.wait_for(work(), 60))

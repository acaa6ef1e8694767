"""What the coordinator makes of the record that a worker sends."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path

from coordinated import Hand, Run

from sparring.orchestrator.results.row import EpisodeRow
from sparring.orchestrator.run.retry import RetryRules
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

    return asyncio.run(asyncio.wait_for(work(), 20))


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

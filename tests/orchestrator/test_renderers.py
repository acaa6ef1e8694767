"""Renderers in results: kept with each episode, counted, and told where they are not all the same."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from rows import ROW

from sparring.orchestrator.coordination.bounds import OutOfBounds, bounded
from sparring.orchestrator.plan import Plan
from sparring.orchestrator.results.journal import Journal
from sparring.orchestrator.results.renderers import mixed_renderers, renderers_of
from sparring.orchestrator.results.results import Results
from sparring.orchestrator.results.row import COLUMNS
from sparring.protos import evaluation_pb2 as pb
from sparring.protos.record import EpisodeRecord

ONE, OTHER = "llvmpipe, Mesa, 4.5", "softpipe, Mesa, 3.3"


def test_it_is_kept_from_the_slot_to_the_journal(tmp_path: Path) -> None:
    sent = EpisodeRecord(outcome="success", renderer=ONE).to_message(1).SerializeToString()
    record = EpisodeRecord.from_message(pb.Result.FromString(sent))
    journal = Journal(tmp_path)
    journal.record(replace(ROW, renderer=record.renderer))
    assert [row.renderer for row in journal.rows()] == [ONE]
    assert "renderer" in COLUMNS


def test_a_run_with_several_says_so() -> None:
    rows = [replace(ROW, index=n, renderer=name) for n, name in enumerate([OTHER, ONE, ONE, ""])]
    rows.append(replace(ROW, index=9, renderer="broken, 1", outcome="error"))
    rows.append(replace(ROW, benchmark="other", renderer="third"))
    assert renderers_of(rows) == {ONE: 2, OTHER: 1, "third": 1}
    (said,) = mixed_renderers(rows)
    assert said == (f"episodes of toy were drawn by different renderers, whose pixels differ: {ONE}: 2; {OTHER}: 1.")
    assert mixed_renderers([row for row in rows if row.renderer != OTHER]) == [], (
        "of two benchmarks, that is no mixture"
    )
    results = Results(Plan({}, 1, 0), rows, 0.0, None)
    assert said in results.warnings
    assert json.loads(json.dumps(results.to_json()))["renderers"] == {ONE: 2, OTHER: 1, "third": 1}


@pytest.mark.parametrize("name", ["x" * 5000, "a\nb"])
def test_a_worker_cannot_say_anything(name: str) -> None:
    with pytest.raises(OutOfBounds):
        bounded(pb.WorkerMessage(result=pb.Result(renderer=name)), 1)

"""docs/scaling.md has what its arithmetic says."""

from __future__ import annotations

import pytest
from benchmarks import scaling
from benchmarks.scaling import Scale, table
from support import ROOT

from sparring.orchestrator.coordination import bounds

PAGE = (ROOT / "docs" / "scaling.md").read_text()


@pytest.mark.parametrize("slots", [1_000, 10_000])
def test_the_tables_are_those_of_the_arithmetic(slots: int) -> None:
    assert "\n".join(table(Scale(slots))) in PAGE


def test_the_constants_are_those_of_the_pages_that_measured_them() -> None:
    performance = (ROOT / "docs" / "performance.md").read_text()
    assert f"| 100,000 | {1000 * scaling.ORCHESTRATOR_SECONDS:.2f} | 849 |" in performance
    beat = f"a heartbeat takes {1000 * scaling.HEARTBEAT_SECONDS:g} ms where there is nothing else to do"
    assert beat in performance
    assert "LIBERO's physics (45 ms for ten steps) and a policy of 40 ms a pass and 2 ms a row" in performance
    hosting = (ROOT / "docs" / "hosting.md").read_text()
    assert f"to encrypt the images: {scaling.TRIPS_PER_SECOND} round trips per second" in hosting
    assert scaling.MAX_WORKERS == bounds.MAX_WORKERS


def test_the_arithmetic_adds_up() -> None:
    at_once = Scale(slots=2 * 10_000)
    assert at_once.looks == pytest.approx(2 * Scale().looks)
    assert Scale(slots=Scale().full_at).orchestrator_cores == pytest.approx(1.0, rel=1e-3)
    assert Scale(chunk=50).looks < Scale().looks / 1.5

"""Coordinator, scheduler, recorder, journal and work service under many schedules of faults, on a virtual clock.

A schedule that fails is named by its seed, and `SPARRING_SIM_SEED=… pytest tests/simulation` plays it again.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from simulation.faults import OF_ORCHESTRATORS, OF_WORKERS
from simulation.plans import truth_of
from simulation.schedule import REASONS, Simulated, simulate
from support import EVERYTHING

_CHOSEN = os.environ.get("SPARRING_SIM_SEED")
_COUNT = int(os.environ.get("SPARRING_SIM_COUNT", "1000" if EVERYTHING else "150"))
_PARTS = 3


def _simulated(seed: int, *, calm: bool = False, frozen: bool = False) -> Simulated:
    shared_memory = Path("/dev/shm")  # a journal there costs a tenth
    where = shared_memory if shared_memory.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="sparring-simulation-", dir=where) as folder:
        try:
            return simulate(seed, Path(folder) / "run", calm=calm, frozen=frozen)
        except BaseException as error:
            error.add_note(f"play it again: SPARRING_SIM_SEED={seed} pytest tests/simulation")
            raise


def test_nothing_goes_wrong_by_itself() -> None:
    for seed in range(20):
        calm = _simulated(seed, calm=True)
        assert not calm.faults
        for episode, row in calm.rows.items():
            truth = truth_of(episode)
            assert row.outcome == truth.outcome
            assert truth.outcome == "error" or (row.reward, row.steps, row.attempts) == (truth.reward, truth.steps, 1)


def test_a_machine_that_stands_still_for_minutes_loses_nothing() -> None:
    for seed in range(30):
        assert _simulated(seed, calm=True, frozen=True).losses == 0


@pytest.mark.parametrize("part", [0] if _CHOSEN else range(_PARTS))
def test_every_episode_has_its_one_row_whatever_goes_wrong(part: int) -> None:
    drawn: Counter[str] = Counter()
    seeds = [int(_CHOSEN)] if _CHOSEN else range(part, _COUNT, _PARTS)
    returned, stops = 0, Counter[str]()
    for seed in seeds:
        came = _simulated(seed)  # which compares the rows with those of a calm run
        drawn, returned, stops = drawn + came.faults, returned + came.returned, stops + came.stops
    if not _CHOSEN and _COUNT >= 300:
        assert set(drawn) == {*OF_WORKERS, *OF_ORCHESTRATORS}, "every kind of fault was there"
        assert returned > 8, "workers have come back and gone on"
        assert set(stops) == set(REASONS), "runs were stopped for every reason"


def test_a_seed_stands_for_one_schedule() -> None:
    for seed in range(20):
        assert _simulated(seed) == _simulated(seed)

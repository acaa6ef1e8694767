"""Two short runs that are harmed; `make chaos` has twenty long ones."""

from __future__ import annotations

import pytest
from chaos.rig import Calm, calm_run, harmed
from chaos.stage import Setting

EPISODES = 6
"""Of each of five tasks: too few for the simulator that hangs, which takes its time."""


@pytest.fixture(scope="module")
def calm() -> Calm:
    came = calm_run(EPISODES)
    assert len(came.rows) == 5 * EPISODES
    return came


@pytest.mark.requires("mount", "netns")
def test_they_have_a_disk_that_fills_up_and_a_cable_that_is_pulled() -> None:
    """Without root they do without: this line says so."""
    assert Setting.of(6).small_disk
    assert Setting.of(3).far


@pytest.mark.everything
@pytest.mark.processes
@pytest.mark.parametrize("seed", [6, 3], ids=["one command", "policy and workers apart"])
def test_no_episode_is_lost_duplicated_or_different(calm: Calm, seed: int) -> None:
    came = harmed(seed, calm, EPISODES, most=5)
    assert came.is_well, came
    assert came.faults

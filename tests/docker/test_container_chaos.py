"""A short run in containers that is harmed; `python -m tests.chaos --containers` has longer ones."""

from __future__ import annotations

import pytest
from chaos.rig import calm_run, harmed

EPISODES = 8
"""Of each of five tasks."""

pytestmark = pytest.mark.requires("docker")


KINDS = ("docker kill", "docker rm --force", "docker pause, unpause", "docker network disconnect, connect")


def test_no_episode_is_lost_duplicated_or_different(toy_image: str) -> None:
    """Over TCP, so that a container's network can be cut."""
    came = harmed(3, calm_run(EPISODES), EPISODES, most=len(KINDS), image=toy_image, kinds=KINDS)
    assert came.is_well, came
    # A fault comes after a new row. On a busy machine several rows come at once, and fewer faults than there are kinds.
    assert len(came.faults) >= 2, came

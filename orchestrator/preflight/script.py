"""What is played in the simulator to see what actions do there: the beginning of an episode of the training set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from sparring.orchestrator.export.recorded import ActionBounds
from sparring.orchestrator.preflight.data_set import DataEpisode, DataSet
from sparring.protos.tensor import Array

GRIPPER_STEPS: Final = 8
"""For which the last number of an action is held up, and then down, at the end."""
EVERY: Final = 4
"""Steps after which it is looked what came of it."""


@dataclass(frozen=True)
class Script:
    """An episode whose actions are played again.

    Attributes:
        episode: Of the training set.
        actions: Of it.
        steps: How many of them are played.
        gripper: Whether the last number of an action is tried by itself after them.
    """

    episode: DataEpisode
    actions: Array
    steps: int
    gripper: bool

    @classmethod
    def of(cls, data_set: DataSet, sentence: str, steps: int) -> Script | None:
        """Returns the one that is played; None, if the data set has no actions.

        Args:
            data_set: Whose.
            sentence: Of the task: an episode of the same is preferred.
            steps: That there are to be in all.
        """
        if not data_set.action:
            return None
        gripper = steps >= 4 * GRIPPER_STEPS
        room = steps - 2 * GRIPPER_STEPS if gripper else steps
        same = data_set.of_sentence(sentence) or data_set.episodes
        episode = max(same, key=lambda one: min(len(one.columns[data_set.action]), room))
        actions = episode.columns[data_set.action]
        played = min(len(actions), room) // EVERY * EVERY
        return cls(episode, actions, played, gripper)

    def played(self, space: ActionBounds, steps: int) -> Array | None:
        """Returns all that is played, in an action space; None, if its actions have another size."""
        if self.actions.shape[1] != len(space.low):
            return None
        rows = np.tile(_middle(space), (steps, 1))
        rows[: self.steps] = self.actions[: self.steps]
        if self.gripper:
            low, high = _ends(space)
            rows[self.steps :, -1] = low[-1]
            rows[self.steps : self.steps + GRIPPER_STEPS, -1] = high[-1]
        return rows


def nothing_done(space: ActionBounds, steps: int) -> Array:
    """Returns actions in the middle of an action space: where there is nothing to try, what is shown is still seen."""
    return np.tile(_middle(space), (steps, 1))


def _ends(space: ActionBounds) -> tuple[Array, Array]:
    return np.where(np.isfinite(space.low), space.low, -1.0), np.where(np.isfinite(space.high), space.high, 1.0)


def _middle(space: ActionBounds) -> Array:
    low, high = _ends(space)
    return (low + high) / 2

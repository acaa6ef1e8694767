"""The disc of PushT: which actions bring it where it shall be, at the speed it shall have there.

It goes toward the action as if by a spring with a damper, and nothing that it touches slows it down. So two actions
decide where it is two steps later, and how fast.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from sparring.policy_server.policies.base import Array

_SPRING, _DAMPER = 100.0, 20.0
_SECONDS: Final = 0.01
"""Of a step of physics; ten are a step of the environment."""
STEP: Final = 0.1
"""Seconds of a step of the environment."""
_BOARD: Final = 512.0


def _one_step() -> tuple[Array, Array]:
    """Returns what a step makes of place and speed, and what it adds for the action."""
    moved, added = np.eye(2), np.zeros(2)
    for _ in range(10):
        moved[1] += _SECONDS * (-_SPRING * moved[0] - _DAMPER * moved[1])
        added[1] += _SECONDS * (_SPRING * (1.0 - added[0]) - _DAMPER * added[1])
        moved[0] += _SECONDS * moved[1]
        added[0] += _SECONDS * added[1]
    return moved, added


_MOVED, _ADDED = _one_step()
_IN_TWO: Final = np.linalg.inv(np.stack([_MOVED @ _ADDED, _ADDED], axis=1))


class Disc:
    """Knows where it is, as the environment says, and how fast it is, which follows from what it was told."""

    def __init__(self) -> None:
        self.place = np.zeros(2)
        self._speed = np.zeros(2)

    def seen_at(self, place: Array) -> None:
        """Takes in where it is now."""
        self.place = place

    def toward(self, place: Array, speed: Array) -> Array:
        """Returns the action after which, with another, it is at a place in two steps, with a speed."""
        now = np.stack([self.place, self._speed])
        first = (_IN_TWO @ (np.stack([place, speed]) - _MOVED @ _MOVED @ now))[0]
        action: Array = np.clip(first, 0.0, _BOARD).astype(np.float32).astype(np.float64)
        self._speed = (_MOVED @ now + np.outer(_ADDED, action))[1]
        return action

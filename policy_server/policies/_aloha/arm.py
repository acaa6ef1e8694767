"""An arm of ALOHA (ViperX 300 6DOF): where its fingers are for angles of its joints, and angles for where they go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from sparring.policy_server.policies.base import Array

HOME: Final = np.array([0.0, -0.96, 1.16, 0.0, -0.3, 0.0])
"""The angles that episodes begin with."""
_LINKS: Final = (
    # Along the link before, then about an axis: 0 is x.
    ((0.0, 0.0, 0.079), 2),
    ((0.0, 0.0, 0.04805), 1),
    ((0.05955, 0.0, 0.3), 1),
    ((0.2, 0.0, 0.0), 0),
    ((0.1, 0.0, 0.0), 1),
    ((0.069744, 0.0, 0.0), 0),
)
_LIMITS: Final = np.array([(-3.14, 3.14), (-1.85, 1.25), (-1.76, 1.6), (-3.14, 3.14), (-1.86, 2.23), (-3.14, 3.14)])
_ROUNDS: Final = 60
_DAMPING: Final = 1e-4
_NEAR_ENOUGH: Final = 1e-3
"""In metres, and tenths of radians."""
_MOST: Final = 0.15
"""That an angle changes at once."""
_SMALL: Final = 1e-6


@dataclass(frozen=True)
class FingerPose:
    """Says where a hand is, in the world: the middle between its fingers, and which way it is turned.

    Attributes:
        place: Of that point.
        turn: A matrix; its first column is where the hand points, its second the way in which it closes.
    """

    place: Array
    turn: Array


def about(axis: int, angle: float) -> Array:
    """Returns the matrix of a turn about x, y or z."""
    cos, sin = np.cos(angle), np.sin(angle)
    turn = np.eye(3)
    one, other = (axis + 1) % 3, (axis + 2) % 3
    turn[one, one] = turn[other, other] = cos
    turn[other, one], turn[one, other] = sin, -sin
    return turn


class ViperArm:
    """One of the two.

    Args:
        base: Where it stands.
        facing: The turn of its base about z.
        grip: How far before its last joint the point is that it holds things at.
    """

    def __init__(self, base: tuple[float, float, float], facing: float, grip: float) -> None:
        self._base = np.array(base)
        self._facing = about(2, facing)
        self._grip = grip

    def hand(self, angles: Array) -> FingerPose:
        """Returns where the hand is for angles of the joints."""
        place, turn = self._base, self._facing
        for (offset, axis), angle in zip(_LINKS, angles, strict=True):
            place = place + turn @ np.array(offset)
            turn = turn @ about(axis, float(angle))
        return FingerPose(place + turn @ np.array([self._grip, 0.0, 0.0]), turn)

    def angles(self, wanted: FingerPose, near: Array) -> Array:
        """Returns angles that bring the hand where it shall be, those that are easy to come to from others.

        Raises:
            ValueError: If it cannot be there.
        """
        toward = self._facing.T @ (wanted.place - self._base)
        pitch = -np.arcsin(np.clip(wanted.turn[2, 0], -1.0, 1.0))
        aimed = np.array([np.arctan2(toward[1], toward[0]), -0.6, 0.9, 0.0, pitch - 0.3, 0.0])
        found = [self._nearest_to(wanted, start) for start in (near, aimed)]
        good = [angles for angles, error in found if error < _NEAR_ENOUGH]
        if not good:
            raise ValueError(f"no angles bring the hand to {wanted.place}, turned like that")
        return min(good, key=lambda angles: float(np.abs(angles - near).max()))

    def _nearest_to(self, wanted: FingerPose, start: Array) -> tuple[Array, float]:
        """Returns angles that bring the hand near, and how far from there it is, going on from some angles."""
        angles = np.array(start, np.float64)
        for _ in range(_ROUNDS):
            error = _apart(self.hand(angles), wanted)
            if np.abs(error).max() < _NEAR_ENOUGH / 2:
                break
            slopes = np.stack(
                [(error - _apart(self.hand(angles + _SMALL * unit), wanted)) / _SMALL for unit in np.eye(6)], axis=1
            )
            change = slopes.T @ np.linalg.solve(slopes @ slopes.T + _DAMPING * np.eye(6), error)
            angles = np.clip(angles + np.clip(change, -_MOST, _MOST), _LIMITS[:, 0], _LIMITS[:, 1])
        return angles, float(np.abs(_apart(self.hand(angles), wanted)).max())


def _apart(hand: FingerPose, wanted: FingerPose) -> Array:
    """Returns how far a hand is from where it shall be: in metres, and in radians, which count for a tenth."""
    between = sum(np.cross(hand.turn[:, axis], wanted.turn[:, axis]) for axis in range(3))
    return np.concatenate([wanted.place - hand.place, 0.1 * between])

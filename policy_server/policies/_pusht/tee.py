"""The T of PushT: where it is, how far a disc is from it, and where it goes when a disc pushes it.

In gym-pusht nothing slides on: velocities are taken away in every step of physics, and contacts have no friction. So
where the T goes follows from the way of the disc alone, however fast it moves.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from sparring.policy_server.policies.base import Array

RADIUS: Final = 15.0
"""Of the disc."""
KEYPOINTS: Final = np.array(
    [(-60, 0), (60, 0), (60, 30), (-60, 30), (-15, 30), (15, 30), (15, 120), (-15, 120)], np.float64
)
"""The corners of its two bars, in its own frame, in the order in which the environment tells them."""
OUTLINE: Final = np.array(
    [(-60, 0), (60, 0), (60, 30), (15, 30), (15, 120), (-15, 120), (-15, 30), (-60, 30)], np.float64
)
"""Around it, with its inside on the left."""
GOAL: Final = np.array([256.0, 256.0, np.pi / 4])
_CENTRE: Final = np.array([0.0, 45.0])
"""Of gravity, as the environment has it."""
_INERTIA: Final = 3000.0
"""About that, of a mass of 1."""
_FROM: Final = OUTLINE
_ALONG: Final = np.roll(OUTLINE, -1, axis=0) - OUTLINE
_LENGTHS_SQUARED: Final = (_ALONG**2).sum(axis=1)


def turned(angle: Array, points: Array) -> Array:
    """Returns points, turned by angles: one of each, or all of either with one of the other."""
    cos, sin = np.cos(angle), np.sin(angle)
    x, y = points[..., 0], points[..., 1]
    return np.stack([cos * x - sin * y, sin * x + cos * y], axis=-1)


def placed(poses: Array, points: Array) -> Array:
    """Returns where points of the T's own frame are: poses (..., 3) and points (n, 2) give (..., n, 2)."""
    return poses[..., None, :2] + turned(poses[..., None, 2], points)


def pose_of(keypoints: Array) -> Array:
    """Returns x, y and angle of the T whose corners are there."""
    there = keypoints - keypoints.mean(axis=0)
    own = KEYPOINTS - KEYPOINTS.mean(axis=0)
    cross = own[:, 0] @ there[:, 1] - own[:, 1] @ there[:, 0]
    angle = np.arctan2(cross, (own * there).sum())
    return np.array([*(keypoints.mean(axis=0) - turned(angle, KEYPOINTS.mean(axis=0))), angle])


def distance_to_goal(poses: Array) -> Array:
    """Returns how far corners are from where they should be: the root of the mean of squares."""
    apart = placed(poses, KEYPOINTS) - placed(GOAL, KEYPOINTS)
    return np.asarray(np.sqrt((apart**2).sum(axis=-1).mean(axis=-1)))


def nearest(points: Array) -> tuple[Array, Array, Array]:
    """Returns the nearest point of the outline to each (n, 2) in the T's frame, the way out there, and the distance.

    Distances inside are negative.
    """
    toward = points[:, None, :] - _FROM
    share = np.clip((toward * _ALONG).sum(axis=-1) / _LENGTHS_SQUARED, 0.0, 1.0)
    apart = toward - share[..., None] * _ALONG
    squared = (apart**2).sum(axis=-1)
    side = squared.argmin(axis=1)
    rows = np.arange(len(points))
    length = np.sqrt(squared[rows, side])
    inside = is_inside(points)
    out = apart[rows, side] / np.maximum(length, 1e-9)[:, None]
    sign = np.where(inside, -1.0, 1.0)
    return points - apart[rows, side], out * sign[:, None], length * sign


def is_inside(points: Array) -> Array:
    """Returns which points of its frame are in the T."""
    x, y = np.abs(points[:, 0]), points[:, 1]
    return ((x < 60) & (y > 0) & (y < 30)) | ((x < 15) & (y > 0) & (y < 120))


def pushed(poses: Array, discs: Array) -> Array:
    """Returns where Ts are after discs have come a little way to where they are now: (n, 3) and (n, 2)."""
    own = turned(-poses[:, 2], discs - poses[:, :2])
    touched, out, distance = nearest(own)
    depth = np.maximum(RADIUS - distance, 0.0)
    if not depth.any():
        return poses
    arm = touched - _CENTRE
    moment = arm[:, 0] * out[:, 1] - arm[:, 1] * out[:, 0]
    impulse = depth / (1.0 + moment**2 / _INERTIA)
    turn = -moment * impulse / _INERTIA
    centre = poses[:, :2] + turned(poses[:, 2], np.broadcast_to(_CENTRE, own.shape))
    centre = centre - turned(poses[:, 2], out * impulse[:, None])
    angle = poses[:, 2] + turn
    return np.concatenate([centre - turned(angle, np.broadcast_to(_CENTRE, own.shape)), angle[:, None]], axis=1)

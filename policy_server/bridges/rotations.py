"""Rotations as other projects write them: quaternions, axis-angles, matrices, and the first two columns of a matrix."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from sparring.protos.tensor import Array

_SMALL: Final = 1e-6
"""Keeps columns of no length apart from a division by zero, as X-VLA's own loop does."""


def axis_angle(quaternion: Array) -> Array:
    """Returns the rotation of a quaternion (x, y, z, w) as an axis times an angle, as robosuite computes it.

    Its sign is not made canonical, so that angles span 0 to 2 pi, as in the data that policies were trained on.
    """
    w = min(1.0, max(-1.0, float(quaternion[3])))
    sine = math.sqrt(1.0 - w * w)
    if sine == 0.0:
        return np.zeros(3)
    turned: Array = quaternion[:3] * 2.0 * math.acos(w) / sine
    return turned


def shorter_axis_angle(rotation: Array) -> Array:
    """Returns a rotation, a quaternion (x, y, z, w) or a matrix, as an axis times an angle of at most pi."""
    quaternion = _quaternion(rotation.reshape(3, 3)) if rotation.size == 9 else rotation
    return axis_angle(quaternion if quaternion[3] >= 0 else -quaternion)


def six_numbers(matrix: Array) -> Array:
    """Returns the first two columns of a rotation's matrix, one after the other."""
    columns: Array = np.asarray(matrix).reshape(3, 3)[:, :2].T.reshape(6)
    return columns


def axis_angles_of_six(rows: Array) -> Array:
    """Returns rotations, given by two columns of a matrix each that need not be quite at right angles, as axis-angles.

    Args:
        rows: Of shape (rotations, 6).
    """
    return np.stack([axis_angle(_quaternion(_matrix(row.astype(np.float64)))) for row in rows])


def _matrix(six: Array) -> Array:
    first = six[:3] / (np.linalg.norm(six[:3]) + _SMALL)
    rest = six[3:] - (first @ six[3:]) * first
    second = rest / (np.linalg.norm(rest) + _SMALL)
    return np.stack([first, second, np.cross(first, second)], axis=1)


def _quaternion(matrix: Array) -> Array:
    """Returns a rotation's quaternion (x, y, z, w) with w of at least 0: by the largest of four, which is exact."""
    (a, b, c), (d, e, f), (g, h, i) = matrix
    squares = np.array([1 + a - e - i, 1 - a + e - i, 1 - a - e + i, 1 + a + e + i])
    rows = np.array(
        [
            [squares[0], b + d, c + g, h - f],
            [b + d, squares[1], f + h, c - g],
            [c + g, f + h, squares[2], d - b],
            [h - f, c - g, d - b, squares[3]],
        ]
    )
    found: Array = rows[int(np.argmax(squares))]
    found = found / np.linalg.norm(found)
    return found if found[3] >= 0 else -found

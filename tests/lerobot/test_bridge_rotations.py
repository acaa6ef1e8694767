"""Rotations of X-VLA's layout on LIBERO, as LeRobot's own processors of it compute them."""

from __future__ import annotations

import numpy as np
import torch
from lerobot.policies.xvla.processor_xvla import LiberoProcessorStep
from lerobot.policies.xvla.utils import rotate6d_to_axis_angle

from sparring.policy_server.bridges.rotations import axis_angles_of_six, six_numbers


def matrices(count: int) -> np.ndarray:
    """Rotations, by the orthogonal part of random matrices; the last is half a turn, the one before none."""
    random = np.random.default_rng(0).normal(size=(count, 3, 3))
    found = np.linalg.qr(random)[0]
    found *= np.linalg.det(found)[:, None, None]
    found[-1], found[-2] = np.diag([1.0, -1.0, -1.0]), np.eye(3)
    return found


def test_a_matrix_becomes_the_six_numbers_that_lerobot_makes_of_it() -> None:
    for matrix in matrices(20):
        theirs = LiberoProcessorStep()._mat_to_rotate6d(torch.from_numpy(matrix)[None]).numpy()[0]
        assert np.array_equal(six_numbers(matrix).astype(np.float32), theirs)


def test_six_numbers_become_the_axis_angle_that_lerobot_makes_of_them() -> None:
    rows = np.stack([six_numbers(matrix) for matrix in matrices(200)])
    rows[:-2] += 0.05 * np.random.default_rng(1).normal(size=rows[:-2].shape)  # networks are not exact
    ours, theirs = axis_angles_of_six(rows), np.asarray(rotate6d_to_axis_angle(rows))
    assert np.allclose(ours, theirs, atol=1e-5)
    assert np.ptp(np.linalg.norm(ours, axis=1)) > 2.5

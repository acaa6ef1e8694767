"""Hands the cube over: the right hand picks it up and brings it to the middle, where the left one takes it."""

from __future__ import annotations

from typing import Final

import numpy as np

from sparring.policy_server.policies._aloha.arm import FingerPose, about
from sparring.policy_server.policies._aloha.both_arms import (
    CLOSED,
    LEFT_ACROSS,
    OPEN,
    RIGHT_ACROSS,
    RIGHT_DOWN,
    Moment,
    actions,
    picking_up,
)
from sparring.policy_server.policies.base import Array

_MEETING: Final = np.array([0.0, 0.5, 0.25])
_BEFORE: Final = np.array([-0.12, 0.0, 0.0])
_HALF: Final = 0.02
"""The height of the cube's middle over the table."""


def hand_over(cube: Array) -> Array:
    """Returns the actions of an episode in which the cube lies at a place."""
    brought = FingerPose(_MEETING, RIGHT_ACROSS)
    right = [*picking_up(np.array([cube[0], cube[1], _HALF]), RIGHT_DOWN), Moment(200, brought, CLOSED)]
    upright = LEFT_ACROSS @ about(0, np.pi / 2)  # so that the fingers of both do not meet
    waiting, taking = FingerPose(_MEETING + _BEFORE, upright), FingerPose(_MEETING, upright)
    left = [
        Moment(130, waiting, OPEN),
        Moment(230, waiting, OPEN),
        Moment(270, taking, OPEN),
        Moment(280, taking, OPEN),
        Moment(300, taking, CLOSED),
    ]
    return actions(left, right)

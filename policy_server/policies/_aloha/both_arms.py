"""What both arms of ALOHA do over time, and the actions for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from sparring.policy_server.policies._aloha.arm import HOME, FingerPose, ViperArm, about
from sparring.policy_server.policies.base import Array

STEPS: Final = 400
"""Of an episode."""
CLOSED, OPEN = 0.0, 1.0
_GRIP: Final = 0.14
"""How far before its last joint a hand holds things."""
_DOWN: Final = np.radians(60.0)
"""How far hands point down to pick something up."""
LEFT: Final = ViperArm((-0.469, 0.5, 0.0), 0.0, grip=_GRIP)
RIGHT: Final = ViperArm((0.469, 0.5, 0.0), np.pi, grip=_GRIP)
LEFT_ACROSS: Final = np.eye(3)
"""The turn of a hand that points straight to the other arm."""
RIGHT_ACROSS: Final = about(2, np.pi)
LEFT_DOWN: Final = LEFT_ACROSS @ about(1, _DOWN)
RIGHT_DOWN: Final = RIGHT_ACROSS @ about(1, _DOWN)


@dataclass(frozen=True)
class Moment:
    """What an arm shall do by a step: where its hand is, and how far open."""

    step: int
    hand: FingerPose
    gripper: float


def picking_up(place: Array, turn: Array, *, hold: float = CLOSED) -> list[Moment]:
    """Returns how a hand picks up what lies at a place; it has it by step 140.

    Args:
        place: Where it holds it.
        turn: Of the hand.
        hold: How far open the gripper is told to be.
    """
    above = FingerPose(place + np.array([0.0, 0.0, 0.1]), turn)
    there = FingerPose(place, turn)
    return [
        Moment(60, above, OPEN),
        Moment(75, above, OPEN),
        Moment(110, there, OPEN),
        Moment(120, there, OPEN),
        Moment(140, there, hold),
    ]


def actions(left: Sequence[Moment], right: Sequence[Moment]) -> Array:
    """Returns a row for each step, as ALOHA takes them: both arms' angles and grippers, float32."""
    return np.concatenate([_played(LEFT, left), _played(RIGHT, right)], axis=1).astype(np.float32)


def _played(arm: ViperArm, moments: Sequence[Moment]) -> Array:
    """Returns angles and gripper of one arm at every step; between two moments, joints turn evenly."""
    last = moments[-1]
    all_moments = [Moment(0, arm.hand(HOME), CLOSED), *moments, Moment(STEPS, last.hand, last.gripper)]
    angles = [HOME]
    for moment in all_moments[1:]:
        angles.append(arm.angles(moment.hand, angles[-1]))
    rows = []
    for (first, one), (then, other) in pairwise(zip(all_moments, angles, strict=True)):
        shares = np.arange(1, then.step - first.step + 1)[:, None] / (then.step - first.step)
        turning = one + shares * (other - one)
        gripping = first.gripper + shares * (then.gripper - first.gripper)
        rows.append(np.concatenate([turning, gripping], axis=1))
    return np.concatenate(rows)

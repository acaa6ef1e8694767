"""Puts the peg into the socket: one hand picks up the one, the other the other, and they bring them together."""

from __future__ import annotations

from typing import Final

import numpy as np

from sparring.policy_server.policies._aloha.arm import FingerPose
from sparring.policy_server.policies._aloha.both_arms import (
    CLOSED,
    LEFT_DOWN,
    RIGHT_DOWN,
    Moment,
    actions,
    picking_up,
)
from sparring.policy_server.policies.base import Array

_PEG_HELD, _SOCKET_HELD = 0.015, 0.022
"""Over the table."""
_SOCKET: Final = np.array([-0.07, 0.5, 0.2])
"""Where it is brought; the peg goes to the right of it."""
_APART: Final = 0.17
"""Between their middles, before; both are 0.12 long."""
_IN: Final = 0.08
"""And in the end, as far as the hands go."""


def insert(peg: Array, socket: Array) -> Array:
    """Returns the actions of an episode in which peg and socket lie at these places."""
    lifted = _PEG_HELD - 0.01, _SOCKET_HELD - 0.02  # of the hand over what it holds
    before, after = (_SOCKET + np.array([apart, 0.0, lifted[0]]) for apart in (_APART, _IN))
    right = [
        *picking_up(np.array([peg[0], peg[1], _PEG_HELD]), RIGHT_DOWN),
        Moment(220, FingerPose(before, RIGHT_DOWN), CLOSED),
        Moment(250, FingerPose(before, RIGHT_DOWN), CLOSED),
        Moment(340, FingerPose(after, RIGHT_DOWN), CLOSED),
    ]
    held = FingerPose(_SOCKET + np.array([0.0, 0.0, lifted[1]]), LEFT_DOWN)
    left = [
        *picking_up(np.array([socket[0], socket[1], _SOCKET_HELD]), LEFT_DOWN),
        Moment(220, held, CLOSED),
    ]
    return actions(left, right)

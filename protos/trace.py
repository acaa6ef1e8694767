"""The trace of an episode: what came of every step, kept with its actions, so that a replay can be held against it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from sparring.protos.action_list import UnreadableActions, pack, unpack
from sparring.protos.tensor import Array

_UNKNOWN: Final = -1.0
"""Where a step does not say whether it is a success."""

MOST_BYTES: Final = 2 << 20
"""The most that a packed trace may have: with actions, it is in one message."""

TracedNumber = Literal["reward", "success", "physics"]
"""What there is of each step."""


@dataclass(frozen=True)
class TraceDifference:
    """The first step at which two traces differ.

    Attributes:
        step: After how many steps; 0 is the reset.
        what: In what.
        then: As recorded.
        now: Of the replay.
    """

    step: int
    what: TracedNumber
    then: float
    now: float


@dataclass(frozen=True)
class Trace:
    """What came of the reset and of every step.

    Attributes:
        rewards: Of each step; the first, of the reset, is 0.
        successes: 1 where the task was done, 0 where not, -1 where that is not known.
        physics: One number made of all positions and velocities; 0 where the simulator does not tell them.
    """

    rewards: list[float]
    successes: list[float]
    physics: list[float]

    @property
    def steps(self) -> int:
        """How many there are, without the reset."""
        return len(self.rewards) - 1

    def first_difference(self, now: Trace, *, tolerance: float = 0.0, far: float = 0.0) -> TraceDifference | None:
        """Returns where a replay first is not what was recorded; None: nowhere, as far as both go.

        Args:
            now: Of the replay.
            tolerance: How far rewards may be apart, relative to their size; 0: they must be equal to the bit.
            far: The same for physics.
        """
        for step in range(min(len(self.rewards), len(now.rewards))):
            for what, then, again, most in (
                ("physics", self.physics[step], now.physics[step], far),
                ("reward", self.rewards[step], now.rewards[step], tolerance),
                ("success", self.successes[step], now.successes[step], 0.0),
            ):
                if not is_close(then, again, most):
                    return TraceDifference(step, what, then, again)  # type: ignore[arg-type]
        return None

    def pack(self) -> bytes:
        """Returns it as bytes."""
        return pack(np.array([self.rewards, self.successes, self.physics], np.float64))

    @classmethod
    def unpack(cls, content: bytes) -> Trace:
        """Reads it again.

        Raises:
            UnreadableActions: If that cannot be read.
        """
        table = unpack(content)
        if table.shape[0] != 3 or table.dtype != np.float64 or not np.isfinite(table).all():
            raise UnreadableActions("the trace of an episode cannot be read: it is no table of three rows.")
        return cls(*(row.tolist() for row in table))


def is_close(then: float, now: float, tolerance: float) -> bool:
    """Returns whether two numbers are as far apart as may be, relative to the larger; 0: they must be equal."""
    return then == now if tolerance == 0.0 else math.isclose(then, now, rel_tol=tolerance, abs_tol=tolerance * 1e-3)


def success_number(success: bool | None) -> float:
    """Returns what a trace has for a step's success."""
    return _UNKNOWN if success is None else float(success)


def physics_number(state: Array | None) -> float:
    """Returns one number of positions and velocities that is close if all are close, and another if any of them is.

    That is almost always so: it is a sum, so a change that is smaller than its last digit, or that another one takes
    back, is not seen. A hash would see it, and could not say how far two machines are apart.
    """
    if state is None or not state.size:
        return 0.0
    total = float(np.dot(state, _weights(state.size)))
    return total if math.isfinite(total) else 0.0  # a simulation that has blown up: its rewards will tell


_kept_weights: dict[int, Array] = {}


def _weights(size: int) -> Array:
    """Returns numbers between 1 and 2, no two of them alike, so that what moves from one place to another is seen."""
    if size not in _kept_weights:
        _kept_weights[size] = 1.0 + (np.arange(1, size + 1) * 0.6180339887498949) % 1.0
    return _kept_weights[size]

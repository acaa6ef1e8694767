"""Actions as a policy gives them, and as a simulator gets them."""

from __future__ import annotations

from typing import Final

import numpy as np

from sparring.protos.advice import Hint
from sparring.protos.episode_rules import OutOfRange
from sparring.protos.errors import SparringError
from sparring.protos.spec import Offer
from sparring.protos.tensor import Array

_ROUNDING: Final = 1e-6
"""Of the width of the space: an action that far outside is one that single precision rounded there."""


class UnplayableAction(SparringError):
    """The policy gave an action that cannot be executed."""


class ActionSpace:
    """Checks actions against a simulator's action space.

    Args:
        offer: With the bounds.
        out_of_range: What to do with an action outside them.
    """

    def __init__(self, offer: Offer, out_of_range: OutOfRange = "pass") -> None:
        self._low = np.array(offer.action_low, np.float64)
        self._high = np.array(offer.action_high, np.float64)
        width = self._high - self._low
        margin = _ROUNDING * np.where(np.isfinite(width), width, 1.0)
        self._least, self._most = self._low - margin, self._high + margin
        self._out_of_range = out_of_range

    def outside(self, chunk: Array) -> Array:
        """Returns which actions of a chunk are outside the space, by more than a rounding error.

        Raises:
            UnplayableAction: If there is a NaN or an infinity in it. Our own server never lets one through.
        """
        if not np.isfinite(chunk).all():
            raise UnplayableAction("the policy server sent an action that is not a number; nothing can execute that.")
        return np.asarray(((chunk < self._least) | (chunk > self._most)).any(axis=-1))

    def playable(self, action: Array, *, outside: bool, step: int) -> Array:
        """Returns the action that is executed for one that the policy gave.

        Raises:
            UnplayableAction: If it is outside the space, and that is to be an error.
        """
        if self._out_of_range == "clip":
            # In double precision, and back: what is inside stays what it is, to the bit.
            return np.clip(action.astype(np.float64), self._low, self._high).astype(action.dtype)
        if outside and self._out_of_range == "error":
            where = int(np.argmax((action < self._least) | (action > self._most)))
            raise UnplayableAction(
                f"the policy gave {action[where]:g} in dimension {where} of its action for step {step}; the action "
                f"space is {self._low[where]:g} to {self._high[where]:g} there. Execute such actions with "
                f"{Hint('out_of_range', value='clip')}, or pass."
            )
        return action

"""What goes wrong in a simulated run: a number of faults, then none, so that the run can end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Final

OF_WORKERS: Final = (
    "error",
    "not finite",
    "no outcome",
    "lost",
    "killed",
    "vanished",
    "cut",
    *("cut, comes back",) * 4,  # others are quick to get what it has left
    "frozen",
    "invented",
    "of others",
    "asks and asks",
    "machine frozen",
    "piece missing",
    "duplicate",
    "result, then lost",
    "policy full",
    "policy changed",
    "policy unreachable",
    "refused",
    "cannot begin",
    "interrupted",
)
OF_ORCHESTRATORS: Final = ("killed at a write", "killed", "interrupted")


class Faults:
    """Draws faults until there have been enough.

    Args:
        rng: To draw with.
        budget: How many there may be.
        chance: Of one, each time.
    """

    def __init__(self, rng: Random, *, budget: int, chance: float) -> None:
        self._dice = rng
        self._budget = budget
        self._chance = chance
        self.drawn: Counter[str] = Counter()

    def draw(self, kinds: Sequence[str] = OF_WORKERS) -> str:
        """Returns a fault, or nothing."""
        if self._budget <= 0 or self._dice.random() >= self._chance:
            return ""
        self._budget -= 1
        fault = self._dice.choice(kinds)
        self.drawn[fault] += 1
        return fault

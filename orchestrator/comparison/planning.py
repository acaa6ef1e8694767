"""How many episodes it takes: to see a difference in pairs, and to know one rate well enough."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy import stats

from sparring.orchestrator.results.intervals import wilson
from sparring.protos.errors import UsageError

MOST: Final = 1_000_000
"""Episodes; who needs more needs another question."""


@dataclass(frozen=True)
class Difference:
    """A difference of two policies on the same episodes.

    Attributes:
        gained: Share of pairs in which only the second succeeds.
        lost: Share of pairs in which only the first does.
    """

    gained: float
    lost: float

    @classmethod
    def of_rates(cls, first: float, second: float) -> Difference:
        """Returns what two rates come to if the policies' successes have nothing to do with each other.

        Where they have, as for two checkpoints of one training, fewer pairs differ, and fewer episodes are needed.
        """
        return cls(gained=second * (1 - first), lost=first * (1 - second))

    @classmethod
    def of_discordant(cls, difference: float, discordant: float) -> Difference:
        """Returns a difference of so many pairs, of which so many differ at all.

        Raises:
            UsageError: If there cannot be such pairs.
        """
        if not abs(difference) <= discordant <= 1:
            raise UsageError(
                f"a difference of {difference:g} needs at least that share of pairs that differ, and at most all: "
                f"{discordant:g} is not possible."
            )
        return cls(gained=(discordant + difference) / 2, lost=(discordant - difference) / 2)

    @property
    def discordant(self) -> float:
        """The share of pairs that differ."""
        return self.gained + self.lost


def power(n: int, difference: Difference, alpha: float = 0.05) -> float:
    """Returns how likely McNemar's exact test on n pairs sees a difference: exactly, by adding up."""
    if difference.discordant <= 0:
        return 0.0
    spread = stats.binom(n, difference.discordant)
    low, high = int(spread.ppf(1e-10)), int(spread.ppf(1 - 1e-10))
    counts = np.arange(low, high + 1)
    # Of so many pairs that differ, up to which number on one side the test rejects; -1: never.
    limit = np.asarray(stats.binom.ppf(alpha / 2, counts, 0.5)).astype(int)
    limit -= stats.binom.cdf(limit, counts, 0.5) > alpha / 2
    share = difference.gained / difference.discordant
    rejected = stats.binom.cdf(limit, counts, share) + stats.binom.cdf(limit, counts, 1 - share)
    return float(np.sum(spread.pmf(counts) * rejected))


def pairs_needed(difference: Difference, *, alpha: float = 0.05, wanted: float = 0.8) -> int | None:
    """Returns how many pairs of episodes see a difference so likely; None if more than a million.

    An exact test's power falls a little here and there while n grows: the number is one from which on it is reached in
    a row of ten.
    """
    if difference.gained == difference.lost:
        return None
    n = _first(lambda pairs: power(pairs, difference, alpha) >= wanted)
    while n is not None and any(power(n + more, difference, alpha) < wanted for more in range(10)):
        n = n + 1 if n < MOST else None
    return n


def episodes_for_half_width(rate: float, half_width: float) -> int | None:
    """Returns how many episodes give a 95 % interval of a rate that is so wide on either side, at most."""

    def narrow(n: int) -> bool:
        low, high = wilson(round(rate * n), n)
        return (high - low) / 2 <= half_width

    return _first(narrow)


def _first(holds: Callable[[int], bool]) -> int | None:
    """Returns about the first n for which something holds that holds for all larger ones, or nearly so."""
    low, high = 0, 1
    while not holds(high):
        if high >= MOST:
            return None
        low, high = high, min(2 * high, MOST)
    while high - low > 1:
        middle = math.ceil((low + high) / 2)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high

"""Intervals of the difference of two success rates, second less first, by scores.

Score intervals hold what they promise where rates are near 0 or 1 and episodes are few; the textbook's, by an estimated
standard error, has no width at all when every episode succeeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from scipy.optimize import brentq
from scipy.stats import norm

LEVEL: Final = 0.95
_EDGE: Final = 1e-12


@dataclass(frozen=True)
class PairCounts:
    """Pairs of the same episode in two runs, by who succeeded; shares of pairs, where episodes are repeated."""

    both: float = 0
    only_first: float = 0
    only_second: float = 0
    neither: float = 0

    @property
    def n(self) -> float:
        """All pairs."""
        return self.both + self.only_first + self.only_second + self.neither

    @property
    def difference(self) -> float | None:
        """The second's success rate less the first's; None if there is no pair."""
        return (self.only_second - self.only_first) / self.n if self.n else None

    def times(self, factor: float) -> PairCounts:
        """Returns so many times as many."""
        return PairCounts(*(factor * count for count in (self.both, self.only_first, self.only_second, self.neither)))

    def __add__(self, other: PairCounts) -> PairCounts:
        return PairCounts(
            self.both + other.both,
            self.only_first + other.only_first,
            self.only_second + other.only_second,
            self.neither + other.neither,
        )


def paired_interval(pairs: PairCounts, level: float = LEVEL) -> tuple[float, float]:
    """Returns Tango's score interval of the difference in pairs; (-1, 1) if there are none."""
    if pairs.n == 0:
        return -1.0, 1.0
    gained, lost, n = pairs.only_second, pairs.only_first, pairs.n

    def score(difference: float) -> float:
        variance = n * (2 * _lost_share(gained, lost, n, difference) + difference * (1 - difference))
        return _standardized(gained - lost - n * difference, variance)

    return _inverted(score, (gained - lost) / n, level)


def unpaired_interval(
    first: tuple[float, float], second: tuple[float, float], level: float = LEVEL
) -> tuple[float, float]:
    """Returns Miettinen and Nurminen's score interval of the difference of two rates; (-1, 1) if one has no episode.

    Args:
        first: Successes and episodes of the first.
        second: Likewise of the second.
        level: How often the interval is to contain the difference.
    """
    if not first[1] or not second[1]:
        return -1.0, 1.0
    (x1, n1), (x2, n2) = first, second

    def score(difference: float) -> float:
        p1 = _first_rate(x1, n1, x2, n2, difference)
        p2 = min(1.0, max(0.0, p1 + difference))
        variance = (p1 * (1 - p1) / n1 + p2 * (1 - p2) / n2) * (n1 + n2) / (n1 + n2 - 1)
        return _standardized(x2 / n2 - x1 / n1 - difference, variance)

    return _inverted(score, x2 / n2 - x1 / n1, level)


def _inverted(score: Callable[[float], float], estimate: float, level: float) -> tuple[float, float]:
    """Returns the differences that the score does not reject; it falls as the difference grows."""
    z = float(norm.ppf(0.5 + level / 2))
    low, high = -1.0 + _EDGE, 1.0 - _EDGE
    lower = -1.0 if score(low) <= z else float(brentq(lambda d: score(d) - z, low, min(estimate, high), xtol=1e-12))
    upper = 1.0 if score(high) >= -z else float(brentq(lambda d: score(d) + z, max(estimate, low), high, xtol=1e-12))
    return lower, upper


def _standardized(distance: float, variance: float) -> float:
    if abs(distance) < _EDGE:
        return 0.0
    return distance / math.sqrt(variance) if variance > 0 else math.copysign(math.inf, distance)


def _lost_share(gained: float, lost: float, n: float, difference: float) -> float:
    """Returns the likeliest share of pairs that only the first won, if the difference is this one."""
    a = 2 * n
    b = -gained - lost + (2 * n - gained + lost) * difference
    c = -lost * difference * (1 - difference)
    return (math.sqrt(max(0.0, b * b - 4 * a * c)) - b) / (2 * a)


def _first_rate(x1: float, n1: float, x2: float, n2: float, difference: float) -> float:
    """Returns the likeliest rate of the first, if the second's is so much higher: the root of a cubic."""
    low, high = max(0.0, -difference), min(1.0, 1.0 - difference)

    def slope(p: float) -> float:
        """Returns that of the log likelihood, times all denominators; it falls through zero at the likeliest rate."""
        q = p + difference
        return float(x1 * (1 - p) - (n1 - x1) * p) * q * (1 - q) + float(x2 * (1 - q) - (n2 - x2) * q) * p * (1 - p)

    left, right = low + _EDGE, high - _EDGE
    if left >= right or slope(left) <= 0:
        return low
    if slope(right) >= 0:
        return high
    return float(brentq(slope, left, right, xtol=1e-14))

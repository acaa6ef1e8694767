"""Intervals at 95 %: of a rate, and of a mean."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Final

_Z95: Final = 1.959963984540054
_EXACT: Final = 200
"""Up to so many degrees of freedom Student's distribution is summed up; beyond, a series is as exact as a float."""


def wilson(successes: float, n: float) -> tuple[float, float]:
    """Returns the 95 % Wilson score interval of a rate; (0, 1) if there is nothing to judge by."""
    if n == 0:
        return 0.0, 1.0
    rate, z2 = successes / n, _Z95**2
    centre = (rate + z2 / (2 * n)) / (1 + z2 / n)
    half = _Z95 * math.sqrt(rate * (1 - rate) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    # At the ends the bound is exact; rounding must not push it a hair past them.
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == n else min(1.0, centre + half)
    return low, high


def student(values: Sequence[float]) -> tuple[float, float] | None:
    """Returns the 95 % interval of a mean by Student's t; None where they say nothing of it, as fewer than two do.

    Not by a bootstrap: with the ten or twenty episodes that a task often has, percentiles of resampled means are too
    narrow, and they need random numbers; this is the same in every reading of the same rows.
    """
    n = len(values)
    if n < 2:
        return None
    mean = mean_of(values)
    widest = max(abs(value - mean) for value in values) or 1.0
    # In parts of the widest: squares of what a float can hold may be more than one can.
    variance = math.fsum(((value - mean) / widest) ** 2 for value in values) / (n - 1)
    half = t_quantile(n - 1) * widest * math.sqrt(variance / n)
    return (mean - half, mean + half) if math.isfinite(half) else None


def mean_of(values: Sequence[float]) -> float:
    """Returns the mean of some values, in whichever order they come."""
    try:
        return math.fsum(values) / len(values)
    except OverflowError:  # the sum is more than a float can hold; the mean is not
        return math.fsum(value / len(values) for value in values)


@cache
def t_quantile(freedom: int) -> float:
    """Returns what a variable of Student's distribution is within, on either side of 0, in 95 of 100 cases.

    Args:
        freedom: Degrees of freedom, at least 1.
    """
    if freedom > _EXACT:
        return _by_series(freedom)
    return _solved(lambda t: _within(t, freedom), 0.95, low=_Z95, high=13.0)


def _within(t: float, freedom: int) -> float:
    """Returns the probability of being within t of 0: the finite sums of Abramowitz and Stegun, 26.7.3 and 26.7.4."""
    angle = math.atan(t / math.sqrt(freedom))
    cos2 = math.cos(angle) ** 2
    odd = freedom % 2
    term = math.cos(angle) if odd else 1.0
    terms = []
    for k in range(1 + odd, freedom, 2):
        terms.append(term)
        term *= cos2 * k / (k + 1)
    inner = math.sin(angle) * math.fsum(terms)
    return 2.0 / math.pi * (angle + inner) if odd else inner


def _by_series(freedom: int) -> float:
    """Returns the quantile by the series of Abramowitz and Stegun, 26.7.5."""
    z, n = _Z95, freedom
    g1 = (z**3 + z) / 4
    g2 = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    g3 = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    g4 = (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160
    return z + g1 / n + g2 / n**2 + g3 / n**3 + g4 / n**4


def _solved(function: Callable[[float], float], wanted: float, *, low: float, high: float) -> float:
    """Returns where a growing function has a value, by halving."""
    while True:
        middle = (low + high) / 2
        if middle in (low, high):
            return middle
        if function(middle) < wanted:
            low = middle
        else:
            high = middle

"""Exact tests of whether two policies differ, and what is left of their p-values when there are many tasks.

All are two-sided. Exact, because tasks often have ten or twenty episodes, where normal approximations are wrong.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Final, TypeVar

import numpy as np
from scipy import stats

Key = TypeVar("Key", bound=Hashable)

_MOST_BOSCHLOO: Final = 200
"""Episodes of a run up to which Boschloo's test answers within a second."""


def mcnemar(only_first: int, only_second: int) -> float:
    """Returns the p-value of McNemar's exact test on pairs of episodes.

    Pairs in which both succeeded or both failed say nothing. Of the others, half would be the first one's if the
    policies were equally good.

    Args:
        only_first: Pairs in which only the first succeeded.
        only_second: Pairs in which only the second did.
    """
    discordant = only_first + only_second
    if discordant == 0:
        return 1.0
    return float(stats.binomtest(only_first, discordant, 0.5).pvalue)


def unpaired_test(first: tuple[int, int], second: tuple[int, int]) -> str:
    """Returns the name of the exact test that `unpaired` makes of two rates."""
    return "Boschloo" if max(first[1], second[1]) <= _MOST_BOSCHLOO else "Fisher"


def unpaired(first: tuple[int, int], second: tuple[int, int]) -> float:
    """Returns the p-value of an exact test on two rates whose episodes are not the same.

    Boschloo's: it is valid like Fisher's, and finds more, because it does not act as if both margins of the table were
    fixed. Of many episodes it is Fisher's: Boschloo's time grows faster than their square, and the two hardly differ.

    Args:
        first: Successes and episodes of the first.
        second: Likewise of the second.
    """
    if not first[1] or not second[1]:
        return 1.0
    table = [[first[0], second[0]], [first[1] - first[0], second[1] - second[0]]]
    if not any(table[0]) or not any(table[1]):  # all succeeded, or nobody did
        return 1.0
    if unpaired_test(first, second) == "Fisher":
        return float(stats.fisher_exact(np.array(table)).pvalue)
    return float(min(1.0, stats.boschloo_exact(table, alternative="two-sided").pvalue))


def holm(values: Mapping[Key, float]) -> dict[Key, float]:
    """Returns p-values that may be read together: Holm's step-down over all of them.

    Among tasks that do not differ, the chance that any of them is below alpha is at most alpha, however they depend on
    each other.
    """
    adjusted: dict[Key, float] = {}
    largest = 0.0
    for rank, (key, value) in enumerate(sorted(values.items(), key=lambda item: item[1])):
        largest = max(largest, min(1.0, (len(values) - rank) * value))
        adjusted[key] = largest
    return {key: adjusted[key] for key in values}

"""Exact tests of whether two policies differ, and what is left of their p-values when there are many tasks.

All are two-sided. Exact, because tasks often have ten or twenty episodes, where normal approximations are wrong.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Key = TypeVar("Key", bound=Hashable)

_EQUAL: Final = 1e-9
"""Shares of plays that differ by less are the same."""
_SCALES: Final = (*range(1, 61), 840, 2520, 27720)
"""By one of which the shares of a few plays are whole numbers."""
_MOST_SUMS: Final = 20_000
_DRAWS: Final = 100_000
_SEED: Final = 14
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


def sign_flips(differences: Sequence[float]) -> float:
    """Returns the p-value of the exact test that each difference might as well have had the other sign.

    Differences of episodes that were played several times. Where each was played once, this is McNemar's test. All sums
    that signs can make are counted; where there are too many, as with plays that ended in errors, some are drawn.

    Args:
        differences: The second's share of successes less the first's, of each episode.
    """
    sizes = np.array([abs(difference) for difference in differences if abs(difference) > _EQUAL])
    seen = abs(math.fsum(differences))
    scale = next((scale for scale in _SCALES if _are_whole(sizes * scale)), None)
    if scale is None:
        return _drawn_flips(sizes, seen)
    sums = {0: 1.0}
    for step in np.round(sizes * scale).astype(int).tolist():
        after: dict[int, float] = {}
        for total, chance in sums.items():
            for reached in (total + step, total - step):
                after[reached] = after.get(reached, 0.0) + chance / 2
        sums = after
        if len(sums) > _MOST_SUMS:
            return _drawn_flips(sizes, seen)
    # Sums are whole numbers: half of one is what rounding may have moved what was seen, and more.
    return min(1.0, math.fsum(chance for total, chance in sums.items() if abs(total) >= seen * scale - 0.5))


def _are_whole(numbers: NDArray[np.float64]) -> bool:
    # Never in parts of their size: 49.9998 is not 50, and what was seen would be further out than any sum.
    return bool(np.all(np.abs(numbers - np.round(numbers)) <= 1e-7))


def _drawn_flips(sizes: NDArray[np.float64], seen: float) -> float:
    generator = np.random.default_rng(_SEED)
    reached = 0
    for _ in range(_DRAWS // 1000):
        signs = generator.choice([-1.0, 1.0], size=(1000, len(sizes)))
        reached += int(np.sum(np.abs(signs @ sizes) >= seen - 1e-9))
    return (reached + 1) / (_DRAWS + 1)


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

"""Rules that may be looked at after every round of episodes, and say the truth whenever one stops.

A round is one episode of every task. Within a round tasks differ, so a look in the middle of one would favour some of
them; and episodes that fail end earlier or later than others, so whoever looked at what happens to have ended would see
the quick ones first. Both rules count whole rounds only, in the order of their indices.

Both are betting: under the hypothesis a gambler's capital is not expected to grow, so the chance that it ever reaches
1/alpha is at most alpha (Ville). The bets are mixed over a Beta distribution, which makes the capital a ratio of Beta
functions. That tasks of a round have different rates does no harm: the expected growth of a round is a product of
factors whose mean is at most 1, and such a product is largest when all are equal.

Counts need not be whole: an episode that was played several times, and succeeded in some, counts as that share of a
success. Its factor is then a mean of the two factors by exponents, which is at most their mean by weights.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import betaln

_PRIOR: Final = 0.5
_EDGE: Final = 1e-12
_PATHS: Final = 1000
_AT_ONCE: Final = 50
"""Paths that are drawn together: thousands of pairs each, and they are to fit in memory."""
_SEED: Final = 14


def rate_interval(successes: float, n: int, alpha: float = 0.05) -> tuple[float, float]:
    """Returns the confidence sequence of a rate at this moment; over all moments it is ever wrong with chance alpha."""
    if n == 0:
        return 0.0, 1.0
    capital = betaln(_PRIOR + successes, _PRIOR + n - successes) - betaln(_PRIOR, _PRIOR)

    def excess(rate: float) -> float:
        """Returns how far the capital of who bets against this rate is beyond the limit, as logarithms."""
        chance = successes * math.log(rate) + (n - successes) * math.log1p(-rate)
        return float(capital - chance + math.log(alpha))

    centre = min(max(successes / n, _EDGE), 1 - _EDGE)
    low = 0.0 if successes == 0 or excess(_EDGE) <= 0 else float(brentq(excess, _EDGE, centre))
    high = 1.0 if successes == n or excess(1 - _EDGE) <= 0 else float(brentq(excess, centre, 1 - _EDGE))
    return low, high


def evidence(only_first: float, only_second: float) -> float:
    """Returns the logarithm of the capital of who bets that two policies differ, on the pairs that do.

    At log(1/alpha) or above, "they do not differ" is rejected at alpha, whenever that is looked at.
    """
    pairs = only_first + only_second
    return float(pairs * math.log(2) + betaln(_PRIOR + only_first, _PRIOR + only_second) - betaln(_PRIOR, _PRIOR))


def p_value(only_first: float, only_second: float) -> float:
    """Returns a p-value that holds whenever it is looked at; the smallest so far may be kept."""
    return min(1.0, math.exp(-evidence(only_first, only_second)))


def chance_of_decision(only_first: float, only_second: float, n: int, remaining: int, alpha: float = 0.05) -> float:
    """Returns how likely the remaining pairs still bring a decision, judged by the pairs so far.

    Shares of pairs are drawn from what the pairs so far make likely, and then the remaining pairs from these. Stopping
    for futility can only lose a decision; it never makes a wrong one likelier.

    Args:
        only_first: Pairs in which only the first succeeded.
        only_second: Pairs in which only the second did.
        n: All pairs so far.
        remaining: Pairs that are still planned.
        alpha: Of the test.
    """
    if evidence(only_first, only_second) >= -math.log(alpha):
        return 1.0
    if remaining <= 0:
        return 0.0
    generator = np.random.default_rng([_SEED, round(only_first), round(only_second), n, remaining])
    same = max(0.0, n - only_first - only_second)
    shares = generator.dirichlet([only_first + _PRIOR, only_second + _PRIOR, same + _PRIOR], size=_PATHS)
    differing = generator.binomial(remaining, np.clip(shares[:, 0] + shares[:, 1], 0.0, 1.0))
    to_first = shares[:, 0] / (shares[:, 0] + shares[:, 1])
    steps = np.arange(1, int(differing.max(initial=0)) + 1)
    few, many = _limits(only_first, only_second, steps, -math.log(alpha))
    decided = 0
    for start in range(0, _PATHS, _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        first = np.cumsum(generator.random((len(differing[part]), len(steps))) < to_first[part, None], axis=1)
        crossed = ((first <= few) | (first >= many)) & (steps <= differing[part, None])
        decided += int(np.sum(np.any(crossed, axis=1)))
    return decided / _PATHS


def _limits(
    only_first: float, only_second: float, steps: NDArray[np.int64], limit: float
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns how few, and how many, of so many more differing pairs must be the first's for a decision.

    The capital is smallest where both have the same, and grows to both sides: so each is found by halving.
    """

    def reached(more: NDArray[np.int64]) -> NDArray[np.bool_]:
        first, second = only_first + more, only_second + steps - more
        capital = (first + second) * math.log(2) + betaln(_PRIOR + first, _PRIOR + second) - betaln(_PRIOR, _PRIOR)
        return np.asarray(capital >= limit)

    middle = np.clip(np.round((only_second + steps - only_first) / 2), 0, steps).astype(np.int64)
    # No decision at `inside`, for it cannot be one at the middle; one at `outside`, or beyond all that there can be.
    found = []
    for outermost in (np.full_like(steps, -1), steps + 1):
        inside, outside = middle.copy(), outermost.copy()
        while np.any(np.abs(outside - inside) > 1):
            between = (inside + outside) // 2
            far = reached(between)
            going = np.abs(outside - inside) > 1
            outside = np.where(going & far, between, outside)
            inside = np.where(going & ~far, between, inside)
        at_middle = reached(middle)
        found.append(np.where(at_middle, middle, outside))
    return found[0], found[1]

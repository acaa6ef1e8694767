"""Rules that may be looked at after every round of episodes, and say the truth whenever one stops.

A round is one episode of every task. Within a round tasks differ, so a look in the middle of one would favour some of
them; and episodes that fail end earlier or later than others, so whoever looked at what happens to have ended would see
the quick ones first. Both rules count whole rounds only, in the order of their indices.

Both are betting: under the hypothesis a gambler's capital is not expected to grow, so the chance that it ever reaches
1/alpha is at most alpha (Ville). The bets are mixed over a Beta distribution, which makes the capital a ratio of Beta
functions. That tasks of a round have different rates does no harm: the expected growth of a round is a product of
factors whose mean is at most 1, and such a product is largest when all are equal.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from scipy.optimize import brentq
from scipy.special import betaln

_PRIOR: Final = 0.5
_EDGE: Final = 1e-12
_PATHS: Final = 1000
_SEED: Final = 14


def rate_interval(successes: int, n: int, alpha: float = 0.05) -> tuple[float, float]:
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


def evidence(only_first: int, only_second: int) -> float:
    """Returns the logarithm of the capital of who bets that two policies differ, on the pairs that do.

    At log(1/alpha) or above, "they do not differ" is rejected at alpha, whenever that is looked at.
    """
    pairs = only_first + only_second
    return float(pairs * math.log(2) + betaln(_PRIOR + only_first, _PRIOR + only_second) - betaln(_PRIOR, _PRIOR))


def p_value(only_first: int, only_second: int) -> float:
    """Returns a p-value that holds whenever it is looked at; the smallest so far may be kept."""
    return min(1.0, math.exp(-evidence(only_first, only_second)))


def chance_of_decision(only_first: int, only_second: int, n: int, remaining: int, alpha: float = 0.05) -> float:
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
    limit = -math.log(alpha)
    if evidence(only_first, only_second) >= limit:
        return 1.0
    if remaining <= 0:
        return 0.0
    generator = np.random.default_rng([_SEED, only_first, only_second, n, remaining])
    shares = generator.dirichlet(
        [only_first + _PRIOR, only_second + _PRIOR, n - only_first - only_second + _PRIOR], size=_PATHS
    )
    draws = generator.random((_PATHS, remaining))
    first = only_first + np.cumsum(draws < shares[:, :1], axis=1)
    second = only_second + np.cumsum((draws >= shares[:, :1]) & (draws < shares[:, :1] + shares[:, 1:2]), axis=1)
    capital = (first + second) * math.log(2) + betaln(_PRIOR + first, _PRIOR + second) - betaln(_PRIOR, _PRIOR)
    return float(np.mean(np.any(capital >= limit, axis=1)))

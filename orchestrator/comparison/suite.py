"""The mean success rate over the tasks of a suite, with an interval that respects tasks.

A model of two levels: each task has a rate of its own, rates of tasks have a Beta distribution, and successes are
binomial in them. The parameters of that distribution are summed over a grid: no sampler that may not have converged.
Not a bootstrap over tasks and episodes: where every episode succeeds, it says that the rate is 1 for certain, and with
five episodes in each of fifty tasks it counts the noise of episodes twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln

_DRAWS: Final = 20_000
_MEANS: Final = 199
_SPREADS: Final = 60
_SEED: Final = 20_000
"""Of the draws: every reading of the same rows gives the same interval."""


@dataclass(frozen=True)
class SuiteMean:
    """A mean over tasks that all count the same.

    Attributes:
        mean: Of the tasks' success rates.
        these_tasks: 95 % interval of that mean, if these tasks had many more episodes.
        such_tasks: 95 % interval of the mean over tasks like these, of which these are a sample; None with fewer than
            three tasks, which say nothing of how tasks differ.
    """

    mean: float
    these_tasks: tuple[float, float]
    such_tasks: tuple[float, float] | None


def suite_mean(tasks: Sequence[tuple[float, float]]) -> SuiteMean | None:
    """Returns the mean over tasks that have an episode; None if none has.

    Args:
        tasks: Successes and episodes of each.
    """
    judged = [(successes, n) for successes, n in tasks if n]
    if not judged:
        return None
    successes, n = (np.array(column, dtype=float) for column in zip(*judged, strict=True))
    means, spreads, weights = _posterior(successes, n)
    generator = np.random.default_rng(_SEED)
    chosen = generator.choice(len(weights), size=_DRAWS, p=weights)
    a, b = means[chosen] * spreads[chosen], (1 - means[chosen]) * spreads[chosen]
    total = np.zeros(_DRAWS)
    for won, played in zip(successes, n, strict=True):
        total += generator.beta(a + won, b + played - won)
    mean = float(np.mean(successes / n))
    return SuiteMean(
        mean,
        _around(mean, total / len(n)),
        _around(mean, means[chosen]) if len(n) > 2 else None,
    )


def _posterior(successes: NDArray[np.float64], n: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
    """Returns the grid of mean and concentration of the tasks' rates, flat, and how likely each point is."""
    # Equal steps of the angle: the same prior as Jeffreys' for one rate. Concentration: equal steps of its logarithm.
    angles = (np.arange(_MEANS) + 0.5) / _MEANS * np.pi / 2
    mean = np.sin(angles) ** 2
    spread = np.exp(np.linspace(np.log(0.5), np.log(2000.0), _SPREADS))
    means, spreads = (grid.ravel() for grid in np.meshgrid(mean, spread, indexing="ij"))
    a, b = means * spreads, (1 - means) * spreads
    log = np.zeros_like(a)
    for (won, played), times in _counted(successes, n).items():
        log += times * (betaln(a + won, b + played - won) - betaln(a, b))
    weights = np.exp(log - log.max())
    return means, spreads, weights / weights.sum()


def _counted(successes: NDArray[np.float64], n: NDArray[np.float64]) -> dict[tuple[float, float], int]:
    found: dict[tuple[float, float], int] = {}
    for pair in zip(successes.tolist(), n.tolist(), strict=True):
        found[pair] = found.get(pair, 0) + 1
    return found


def _around(mean: float, draws: NDArray[np.float64]) -> tuple[float, float]:
    """Returns the middle 95 % of the draws, widened to the mean: an interval that leaves it out reads as a fault."""
    low, high = np.quantile(draws, [0.025, 0.975])
    return min(float(low), mean), max(float(high), mean)

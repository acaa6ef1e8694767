"""Success rates that say how much they rest on."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from sparring.orchestrator.results.row import EpisodeRow

_Z95: Final = 1.959963984540054
_UNSPECIFIED: Final = "unspecified"
"""Errors of which no more is known: release 0.1.0 did not write down their kind."""


def wilson(successes: int, n: int) -> tuple[float, float]:
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


@dataclass(frozen=True)
class Mean:
    """A mean, and how many episodes it is of."""

    mean: float
    n: int


@dataclass(frozen=True)
class Summary:
    """A success rate over some episodes. Errors are counted apart: they never count against the policy.

    A rate says less where there were errors: `worst_case` and `best_case` say between what it would be with them.

    Attributes:
        n: Episodes with an outcome of the policy's own.
        errors: Episodes that ended in an error.
        successes: Of the n.
        errors_by_kind: The errors by their kind, the most frequent first.
        metrics: The mean of each metric of the benchmark, over those of the n that have it.
    """

    n: int
    errors: int
    successes: int
    errors_by_kind: Mapping[str, int] = field(default_factory=dict)
    metrics: Mapping[str, Mean] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: Iterable[EpisodeRow]) -> Summary:
        """Summarizes some episodes."""
        found = list(rows)
        judged = [row for row in found if row.outcome != "error"]
        failed = [row for row in found if row.outcome == "error"]
        return cls(
            n=len(judged),
            errors=len(failed),
            successes=sum(row.outcome == "success" for row in judged),
            errors_by_kind=dict(Counter(map(kind_of, failed)).most_common()),
            metrics=_means(judged),
        )

    @property
    def success_rate(self) -> float | None:
        """The share of successes; None if no episode has an outcome of the policy's own."""
        return self.successes / self.n if self.n else None

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % Wilson interval of the success rate."""
        return wilson(self.successes, self.n)

    @property
    def worst_case(self) -> float | None:
        """The success rate if every error had been a failure; None if there is no episode."""
        return self.successes / (self.n + self.errors) if self.n + self.errors else None

    @property
    def best_case(self) -> float | None:
        """The success rate if every error had been a success; None if there is no episode."""
        return (self.successes + self.errors) / (self.n + self.errors) if self.n + self.errors else None

    def to_json(self) -> dict[str, Any]:
        """Returns its form in `--json`."""
        return {
            "success_rate": self.success_rate,
            "interval": list(self.interval),
            "worst_case": self.worst_case,
            "best_case": self.best_case,
            "n": self.n,
            "errors": self.errors,
            "errors_by_kind": dict(self.errors_by_kind),
            "metrics": {name: asdict(mean) for name, mean in self.metrics.items()},
        }


def kind_of(row: EpisodeRow) -> str:
    """Returns the kind of an episode's error; release 0.1.0 recorded none."""
    return row.error_kind or _UNSPECIFIED


def _means(rows: Iterable[EpisodeRow]) -> dict[str, Mean]:
    values: dict[str, list[float]] = {}
    for row in rows:
        for name, value in row.metrics.items():
            values.setdefault(name, []).append(value)
    return {name: Mean(math.fsum(found) / len(found), len(found)) for name, found in sorted(values.items())}

"""Success rates that say how much they rest on."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from sparring.orchestrator.results.row import EpisodeRow

_Z95: Final = 1.959963984540054


def wilson(successes: int, n: int) -> tuple[float, float]:
    """The 95 % Wilson score interval of a rate; (0, 1) if there is nothing to judge by."""
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
class Summary:
    """A success rate over some episodes. Errors are counted apart: they never count against the policy."""

    n: int
    errors: int
    successes: int

    @classmethod
    def of(cls, rows: Iterable[EpisodeRow]) -> Summary:
        """Of these episodes."""
        outcomes = [row.outcome for row in rows]
        errors = outcomes.count("error")
        return cls(n=len(outcomes) - errors, errors=errors, successes=outcomes.count("success"))

    @property
    def success_rate(self) -> float | None:
        """None if no episode has an outcome of the policy's own."""
        return self.successes / self.n if self.n else None

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % Wilson interval of the success rate."""
        return wilson(self.successes, self.n)

    def to_json(self) -> dict[str, Any]:
        """As it stands in `--json`."""
        return {"success_rate": self.success_rate, "interval": list(self.interval), "n": self.n, "errors": self.errors}

"""Rounds of a run that all tasks have played whole, counted as episodes come."""

from __future__ import annotations

import math
from collections import Counter

from sparring.orchestrator.plan import Plan
from sparring.orchestrator.results.row import EpisodeRow


class WholeRounds:
    """What came of the whole rounds from the first on, by shares of plays; each row costs the same, however many.

    Args:
        plan: Of the run.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._each = len(plan.labels()) * plan.repeats
        self._rows: Counter[int] = Counter()
        self._episodes: dict[tuple[str, str, int], tuple[int, int]] = {}
        """Successes of each, and plays that were judged."""
        self._open: dict[int, Counter[tuple[int, int]]] = {}
        """Of each round that is not whole, how many episodes have so many successes of so many plays."""
        self._whole = 0
        self._shares: Counter[tuple[int, int]] = Counter()
        """The same of all whole rounds."""

    def add(self, row: EpisodeRow, *, again: bool) -> None:
        """Counts a play; one that is played again has its place in the round already."""
        number = self._plan.round_of(row.index)
        if not again:
            self._rows[number] += 1
        if row.outcome in ("success", "failure"):
            key = row.benchmark, row.task, number
            won, judged = self._episodes.get(key, (0, 0))
            after = won + (row.outcome == "success"), judged + 1
            shares = self._shares if number < self._whole else self._open.setdefault(number, Counter())
            if judged:
                shares[won, judged] -= 1
            shares[after] += 1
            self._episodes[key] = after
        while self._whole < self._plan.episodes and self._rows[self._whole] >= self._each:
            self._shares.update(self._open.pop(self._whole, Counter()))
            self._whole += 1

    @property
    def successes(self) -> tuple[float, int]:
        """The sum of the shares of plays that succeeded, and of how many episodes: those with a judged play."""
        total = math.fsum(count * won / judged for (won, judged), count in self._shares.items())
        return total, sum(self._shares.values())

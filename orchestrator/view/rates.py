"""How rates come to rest: that of all episodes, or one for each protocol where several play the same tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from sparring.orchestrator.plan import Plan
from sparring.orchestrator.results.row import EpisodeRow
from sparring.orchestrator.view.convergence import Convergence

_OF_ALL: Final = ("rate", "interval", "any_time", "mean", "mean_interval")
"""What several protocols have none of together: it would be by the rules of none."""


class Rates:
    """Counts episodes as they come.

    Args:
        plan: Of the run.
        metric: What the run is about: `success` or `return`.
        protocols: Labels of its parts, where it plays the same tasks by several protocols.
    """

    def __init__(self, plan: Plan, metric: str, protocols: Sequence[str] = ()) -> None:
        self._whole = Convergence(plan, metric)
        self._each = {
            label: Convergence(replace(plan, tasks={label: plan.tasks[label]}), metric) for label in protocols
        }
        self._numbers = {label: number for number, label in enumerate(protocols)}
        self._points: list[tuple[int, float, float | None, float | None, int]] = []

    @property
    def points(self) -> Sequence[tuple[float | None, ...]]:
        """As those of `Convergence`; of several protocols, with the number of which it is, in the order they came."""
        return self._points if self._each else self._whole.points

    def add(self, row: EpisodeRow, before: EpisodeRow | None = None) -> None:
        """Counts an episode; one that was an error, and has been played again, instead of what it was before."""
        self._whole.add(row, before)
        if part := self._each.get(row.benchmark):
            had = len(part.points)
            part.add(row, before)
            self._points += [(*point, self._numbers[row.benchmark]) for point in part.points[had:]]

    def to_json(self) -> dict[str, Any]:
        """Returns how they stand; `by` has those of several protocols."""
        whole, by = self._whole.to_json(), [{"name": name, **part.to_json()} for name, part in self._each.items()]
        return {**whole, **(dict.fromkeys(_OF_ALL) if by else {}), "by": by}

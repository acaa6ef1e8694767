"""What came of episodes, as shares of their plays: a whole number where each is played once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sparring.orchestrator.plan import Plan
from sparring.orchestrator.results.row import EpisodeRow

EpisodeKey = tuple[str, str, int]
"""Benchmark, task, and which of the task's episodes."""


@dataclass(frozen=True)
class Share:
    """What came of an episode.

    Attributes:
        seed: Of the episode.
        success: The share of its plays that succeeded; None: none of them was judged.
        plays: How many of them have a row.
    """

    seed: int
    success: float | None
    plays: int


def shares(rows: Iterable[EpisodeRow], plan: Plan) -> Mapping[EpisodeKey, Share]:
    """Returns what came of each episode that has a play; plays that ended in an error count on neither side."""
    found: dict[EpisodeKey, list[EpisodeRow]] = {}
    for row in rows:
        found.setdefault((row.benchmark, row.task, plan.round_of(row.index)), []).append(row)
    return {key: _share(plays) for key, plays in found.items()}


def _share(plays: list[EpisodeRow]) -> Share:
    judged = [row for row in plays if row.outcome in ("success", "failure")]
    won = sum(row.outcome == "success" for row in judged)
    return Share(plays[0].seed, won / len(judged) if judged else None, len(plays))

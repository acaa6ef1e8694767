"""Episodes that were played several times, with other seeds of the policy: what so many plays are worth.

Plays of one episode have its start and its goal in common, so they are alike: ten plays of one episode are not ten
episodes. How alike they are is estimated from the plays themselves (the correlation within classes, by an analysis of
variance within tasks), and says of how many independent plays an interval may be.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Final

from sparring.orchestrator.results.intervals import mean_of, t_quantile
from sparring.orchestrator.results.row import EpisodeRow

_NOTHING: Final = 1e-9
"""Sums of squares of outcomes that are less are 0, but for rounding."""


def by_episode(rows: Iterable[EpisodeRow]) -> list[list[EpisodeRow]]:
    """Returns the plays of each episode together: in one run, those of a task that have the same seed."""
    found: dict[Hashable, list[EpisodeRow]] = {}
    for row in rows:
        found.setdefault((row.benchmark, row.task, row.seed), []).append(row)
    return list(found.values())


def worth_of(rows: Iterable[EpisodeRow], value: Callable[[EpisodeRow], float]) -> float:
    """Returns which share of some plays would be worth as much, if each were of an episode of its own.

    1 where every episode was played once; at least that of one play per episode.

    Args:
        rows: Of one run.
        value: What is measured of a play.
    """
    episodes = by_episode(rows)
    plays = sum(map(len, episodes))
    if plays == len(episodes):
        return 1.0
    tasks: dict[Hashable, list[Sequence[float]]] = {}
    for episode in episodes:
        tasks.setdefault((episode[0].benchmark, episode[0].task), []).append([value(row) for row in episode])
    size = sum(len(episode) ** 2 for episode in episodes) / plays
    return 1.0 / (1.0 + (size - 1.0) * _alike(list(tasks.values())))


def _alike(tasks: Sequence[Sequence[Sequence[float]]]) -> float:
    """Returns how alike plays of one episode are, between 0 and 1; 1 where they say nothing of it.

    Args:
        tasks: Of each task its episodes, of each episode its plays.
    """
    between, within, episodes, plays = 0.0, 0.0, 0, 0
    for task in tasks:
        mean = mean_of([value for episode in task for value in episode])
        for episode in task:
            own = mean_of(episode)
            between += len(episode) * (own - mean) ** 2
            within += math.fsum((value - own) ** 2 for value in episode)
            episodes, plays = episodes + 1, plays + len(episode)
    if episodes == len(tasks) or between + within == 0.0:
        return 1.0
    return _correlation(between, within, len(tasks), episodes, plays)


def _correlation(between: float, within: float, tasks: int, episodes: int, plays: int) -> float:
    # What is left within episodes, and between them beyond that.
    inner = within / (plays - episodes)
    outer = between / (episodes - tasks)
    share = (outer - inner) / (outer + (plays / episodes - 1.0) * inner)
    return min(1.0, max(0.0, share))


class PlaysWorth:
    """`worth_of` of successes and failures, which come one at a time: a run may have a hundred thousand plays."""

    def __init__(self) -> None:
        self._episodes: dict[tuple[Hashable, Hashable], tuple[int, int]] = {}
        """Plays and successes of each."""
        self._tasks: dict[Hashable, tuple[int, int, float]] = {}
        """Plays and successes of each, and the sum over its episodes of the square of successes, in parts of plays."""
        self._within = 0.0
        self._sizes = 0
        """The sum of the squares of how often episodes were played."""
        self._plays = 0

    def add(self, task: Hashable, episode: Hashable, *, won: bool) -> None:
        """Counts one more.

        Args:
            task: Which.
            episode: Which of the task's: that of all its plays.
            won: Whether it was a success.
        """
        n, successes = self._episodes.get((task, episode), (0, 0))
        more = (successes + won) ** 2 / (n + 1) - (successes**2 / n if n else 0.0)
        plays, of_task, squares = self._tasks.get(task, (0, 0, 0.0))
        self._tasks[task] = plays + 1, of_task + won, squares + more
        self._episodes[task, episode] = n + 1, successes + won
        self._within += won - more
        self._sizes += 2 * n + 1
        self._plays += 1

    @property
    def worth(self) -> float:
        """Which share of the plays would be worth as much, if each were of an episode of its own."""
        episodes = len(self._episodes)
        if self._plays == episodes:
            return 1.0
        between = math.fsum(squares - won * won / plays for plays, won, squares in self._tasks.values())
        alike = 1.0
        if episodes != len(self._tasks) and between + self._within > _NOTHING:
            alike = _correlation(between, self._within, len(self._tasks), episodes, self._plays)
        return 1.0 / (1.0 + (self._sizes / self._plays - 1.0) * alike)


class EpisodeMeans:
    """The mean over episodes of their plays' means, with its interval, of plays that come one at a time."""

    def __init__(self) -> None:
        self._episodes: dict[Hashable, tuple[int, float]] = {}
        """How many plays each has, and their mean."""
        self._mean = self._squares = 0.0

    def add(self, episode: Hashable, value: float) -> None:
        """Counts one more play of an episode."""
        n, before = self._episodes.get(episode, (0, 0.0))
        after = before + (value - before) / (n + 1)
        self._episodes[episode] = n + 1, after
        # As Welford does it: sums of squares lose all digits where the spread is small.
        delta = after - self._mean
        if n:
            moved = after - before
            self._mean += moved / len(self._episodes)
            self._squares += moved * (delta + before - self._mean)
        else:
            self._mean += delta / len(self._episodes)
            self._squares += delta * (after - self._mean)

    @property
    def interval(self) -> tuple[float, float] | None:
        """At 95 %, by Student's t over episodes; None where they say nothing of it, as fewer than two do."""
        n = len(self._episodes)
        if n < 2:
            return None
        half = t_quantile(n - 1) * math.sqrt(max(0.0, self._squares) / (n - 1) / n)
        return (self._mean - half, self._mean + half) if math.isfinite(half) else None

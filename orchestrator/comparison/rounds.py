"""Two runs of which one is still going on: whole rounds of pairs, and what may be said of them at any time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sparring.orchestrator.comparison.sequential import chance_of_decision, p_value
from sparring.orchestrator.comparison.shares import EpisodeKey, Share


@dataclass(frozen=True)
class Rounds:
    """Pairs of the rounds that both runs have played whole, counted from the first.

    Attributes:
        n: How many rounds.
        p_value: That holds whenever it is looked at: the smallest that there was after any of them.
        chance: That a difference is seen by the end of the plan, judged by the rounds so far.
        tasks: Such a p-value of each task, by the rounds that both have played of it.
    """

    n: int
    p_value: float
    chance: float
    tasks: Mapping[tuple[str, str], float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Returns its form in `--json`."""
        return {"n": self.n, "p_value": self.p_value, "chance_of_decision": self.chance}


def rounds_of(
    there: Mapping[EpisodeKey, Share],
    here: Mapping[EpisodeKey, Share],
    tasks: Sequence[tuple[str, str]],
    planned: int,
    plays: tuple[int, int] = (1, 1),
) -> Rounds:
    """Returns the whole rounds of two runs; a pair of which one ended in an error counts on neither side.

    Args:
        there: Episodes of one run.
        here: Episodes of the other.
        tasks: Benchmark and name of each task that a round has an episode of.
        planned: How many rounds there are to be.
        plays: How often each run plays an episode.
    """
    all_tasks = _Played(there, here, tasks, planned, plays)
    each = {task: _Played(there, here, [task], planned, plays).p_value for task in tasks}
    remaining = (planned - all_tasks.rounds) * len(tasks)
    chance = chance_of_decision(all_tasks.only_first, all_tasks.only_second, all_tasks.pairs, remaining)
    return Rounds(all_tasks.rounds, all_tasks.p_value, chance, each)


class _Played:
    """The whole rounds of some tasks, and what they come to; arguments are those of `rounds_of`."""

    def __init__(
        self,
        there: Mapping[EpisodeKey, Share],
        here: Mapping[EpisodeKey, Share],
        tasks: Sequence[tuple[str, str]],
        planned: int,
        plays: tuple[int, int],
    ) -> None:
        self.rounds = whole_rounds(there, here, tasks, planned, plays)
        self.pairs = 0
        self.only_first = self.only_second = 0.0
        self.p_value = 1.0
        for index in range(self.rounds):
            keys = [(benchmark, task, index) for benchmark, task in tasks]
            outcomes = [(there[key].success, here[key].success) for key in keys]
            differences = [second - first for first, second in outcomes if first is not None and second is not None]
            self.pairs += len(differences)
            self.only_first += sum(-difference for difference in differences if difference < 0)
            self.only_second += sum(difference for difference in differences if difference > 0)
            self.p_value = min(self.p_value, p_value(self.only_first, self.only_second))


def whole_rounds(
    there: Mapping[EpisodeKey, Share],
    here: Mapping[EpisodeKey, Share],
    tasks: Sequence[tuple[str, str]],
    planned: int,
    plays: tuple[int, int] = (1, 1),
) -> int:
    """Returns how many rounds, from the first on, both runs have played whole; arguments are those of `rounds_of`."""
    for index in range(planned):
        if not all(_is_whole((benchmark, task, index), there, here, plays) for benchmark, task in tasks):
            return index
    return planned


def _is_whole(
    key: EpisodeKey, there: Mapping[EpisodeKey, Share], here: Mapping[EpisodeKey, Share], plays: tuple[int, int]
) -> bool:
    """Returns whether both runs have played an episode as often as they will."""
    first, second = there.get(key), here.get(key)
    if first is None or second is None or first.seed != second.seed:
        return False
    return (first.plays, second.plays) == plays

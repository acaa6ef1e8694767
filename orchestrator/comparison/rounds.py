"""Two runs of which one is still going on: whole rounds of pairs, and what may be said of them at any time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
    """

    n: int
    p_value: float
    chance: float

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
    whole = whole_rounds(there, here, tasks, planned, plays)
    pairs = 0
    only_first = only_second = 0.0
    smallest = 1.0
    for index in range(whole):
        keys = [(benchmark, task, index) for benchmark, task in tasks]
        outcomes = [(there[key].success, here[key].success) for key in keys]
        differences = [second - first for first, second in outcomes if first is not None and second is not None]
        pairs += len(differences)
        only_first += sum(-difference for difference in differences if difference < 0)
        only_second += sum(difference for difference in differences if difference > 0)
        smallest = min(smallest, p_value(only_first, only_second))
    remaining = (planned - whole) * len(tasks)
    return Rounds(whole, smallest, chance_of_decision(only_first, only_second, pairs, remaining))


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

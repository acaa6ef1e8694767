"""Two runs of which one is still going on: whole rounds of pairs, and what may be said of them at any time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparring.orchestrator.comparison.sequential import chance_of_decision, p_value
from sparring.orchestrator.results.row import EpisodeRow
from sparring.orchestrator.run.plan import EpisodeId


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
    there: Mapping[EpisodeId, EpisodeRow],
    here: Mapping[EpisodeId, EpisodeRow],
    tasks: Sequence[tuple[str, str]],
    planned: int,
) -> Rounds:
    """Returns the whole rounds of two runs; a pair of which one ended in an error counts on neither side.

    Args:
        there: Rows of one run.
        here: Rows of the other.
        tasks: Benchmark and name of each task that a round has an episode of.
        planned: How many rounds there are to be.
    """
    whole = pairs = only_first = only_second = 0
    smallest = 1.0
    for index in range(planned):
        ids = [EpisodeId(benchmark, task, index) for benchmark, task in tasks]
        if any(id not in there or id not in here or there[id].seed != here[id].seed for id in ids):
            break
        outcomes = [(there[id].outcome, here[id].outcome) for id in ids]
        whole += 1
        pairs += sum({first, second} <= {"success", "failure"} for first, second in outcomes)
        only_first += outcomes.count(("success", "failure"))
        only_second += outcomes.count(("failure", "success"))
        smallest = min(smallest, p_value(only_first, only_second))
    remaining = (planned - whole) * len(tasks)
    return Rounds(whole, smallest, chance_of_decision(only_first, only_second, pairs, remaining))

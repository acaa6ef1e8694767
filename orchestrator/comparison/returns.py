"""Two runs by their returns: differences of the same episodes, with Student's t over episodes.

Not a bootstrap: with the ten or twenty episodes that a task often has, percentiles of resampled means are too narrow,
and they need random numbers; this is the same in every reading of the same rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from scipy import stats

from sparring.orchestrator.comparison.comparable import obstacles, refuse_obstacles, refuse_several_protocols
from sparring.orchestrator.comparison.comparison import ALPHA, common_tasks, is_settled
from sparring.orchestrator.comparison.rounds import whole_rounds
from sparring.orchestrator.comparison.shares import shares
from sparring.orchestrator.comparison.significance import holm
from sparring.orchestrator.results.intervals import mean_of, student
from sparring.orchestrator.results.repeats import by_episode
from sparring.orchestrator.results.results import Results
from sparring.protos.errors import UsageError

_ROUNDING: Final = 1e-9
"""In parts of the largest return, what differences may differ by and are the same."""


@dataclass(frozen=True)
class ComparedReturns:
    """Pairs of the same episode in two runs, by their returns: of several plays, the mean.

    Attributes:
        pairs: The first's return and the second's, of each episode.
    """

    pairs: Sequence[tuple[float, float]]

    @property
    def means(self) -> tuple[float, float] | None:
        """Both mean returns; None without pairs."""
        if not self.pairs:
            return None
        return mean_of([first for first, _ in self.pairs]), mean_of([second for _, second in self.pairs])

    @cached_property
    def differences(self) -> list[float]:
        """The second's return less the first's, of each episode."""
        return [second - first for first, second in self.pairs]

    @property
    def difference(self) -> float | None:
        """Their mean; None without pairs."""
        return mean_of(self.differences) if self.pairs else None

    @cached_property
    def _rounding(self) -> float:
        return _ROUNDING * max((abs(value) for pair in self.pairs for value in pair), default=0.0)

    @cached_property
    def is_constant(self) -> bool:
        """Whether all of several differences are the same, but for rounding: there is no spread to judge by."""
        return len(self.pairs) > 1 and max(self.differences) - min(self.differences) <= self._rounding

    @cached_property
    def interval(self) -> tuple[float, float] | None:
        """95 % interval of the mean difference by Student's t; None where it says nothing, as of one pair."""
        return None if self.is_constant else student(self.differences)

    @cached_property
    def p_value(self) -> float | None:
        """Of the paired t-test that there is no difference; None where it says nothing."""
        if len(self.pairs) < 2:
            return None
        if self.is_constant:
            return 1.0 if max(map(abs, self.differences)) <= self._rounding else None
        return float(stats.ttest_1samp(self.differences, 0.0).pvalue)

    def to_json(self) -> dict[str, Any]:
        """Returns its form in `--json`."""
        return {
            "n": len(self.pairs),
            "means": None if self.means is None else list(self.means),
            "difference": self.difference,
            "interval": None if self.interval is None else list(self.interval),
            "p_value": self.p_value,
        }


@dataclass(frozen=True)
class ReturnPair:
    """An episode that both runs have played to its end.

    Attributes:
        benchmark: Of its task.
        task: Which it is of.
        number: Which of the task's episodes it is; `EpisodeId.index`, where each is played once.
        seed: Its own.
        first: Its return in the first run; of several plays, the mean.
        second: In the second.
    """

    benchmark: str
    task: str
    number: int
    seed: int
    first: float
    second: float

    @property
    def difference(self) -> float:
        """The second's return less the first's."""
        return self.second - self.first


@dataclass(frozen=True, repr=False)
class ReturnComparison:
    """Two runs side by side, by returns; the first is what the second is held against. In a notebook it shows a table.

    Attributes:
        tasks: Each task that both have, by its label in the first.
        overall: All of them.
        obstacles: What makes them not comparable, if they are compared all the same.
        rounds: Of how many whole rounds, where one of the runs is not finished, or could stop early; None: all pairs.
        episodes: Those whose returns differ, the largest difference first.
        runs: The two, if they are known.
    """

    tasks: Mapping[str, ComparedReturns]
    overall: ComparedReturns
    obstacles: Sequence[str] = ()
    rounds: int | None = None
    episodes: Sequence[ReturnPair] = ()
    runs: tuple[Results, Results] | None = None

    def __repr__(self) -> str:
        from sparring.orchestrator.display.comparison_notebook import returns_text  # which shows what is here

        return returns_text(self)

    def _repr_html_(self) -> str:
        from sparring.orchestrator.display.comparison_notebook import returns_html

        return returns_html(self)

    def __rich__(self) -> object:
        from sparring.orchestrator.display.comparison_notebook import returns_shown

        return returns_shown(self)

    @property
    def cautions(self) -> list[str]:
        """What one should know before one believes the p-value."""
        if self.rounds is None:
            return []
        return [
            "one of these runs is not finished, or could stop early: only whole rounds are compared "
            f"({self.rounds}), and p and interval hold only if the number of episodes was fixed beforehand. If you "
            "look again and again, you will see differences that are not there."
        ]

    @cached_property
    def adjusted(self) -> dict[str, float]:
        """The p-value of each task that has one, by Holm over all of these."""
        return holm({label: task.p_value for label, task in self.tasks.items() if task.p_value is not None})

    @property
    def is_decided(self) -> bool:
        """Whether a difference over all tasks is seen."""
        return self.overall.p_value is not None and self.overall.p_value <= ALPHA

    def to_json(self) -> dict[str, Any]:
        """Returns what `--json` prints of it."""
        return {
            "metric": "return",
            "overall": self.overall.to_json(),
            "decided": self.is_decided,
            "tasks": {
                label: {**task.to_json(), "p_value_by_holm": self.adjusted.get(label)}
                for label, task in self.tasks.items()
            },
            "rounds": self.rounds,
            "obstacles": list(self.obstacles),
            "cautions": self.cautions,
        }


def compare_returns(first: Results, second: Results, *, force: bool = False) -> ReturnComparison:
    """Compares two runs by the returns of the same episodes.

    Args:
        first: What the other is held against.
        second: The other.
        force: Compare them although something that moves a score is not the same.

    Raises:
        UsageError: If they have no episode in common that came to an end in both, or they are not comparable.
    """
    labels = common_tasks(first, second)
    refuse_several_protocols(first, second, labels.values())
    found = obstacles(first, second)
    refuse_obstacles(found, force=force)
    there, here = (_returns(run) for run in (first, second))
    rounds = None if is_settled(first) and is_settled(second) else _whole_rounds(first, second, list(labels.values()))
    pairs = {key: (there[key], here[key]) for key in there if key in here and (rounds is None or key[2] < rounds)}
    tasks = {
        label: ComparedReturns([pair for key, pair in pairs.items() if key[:2] == task])
        for label, task in labels.items()
    }
    overall = ComparedReturns([pair for task in tasks.values() for pair in task.pairs])
    if rounds == 0:
        raise UsageError(
            "there is no round, an episode of every task, that both of these runs have played whole by now: what ends "
            "early may be easy, or hopeless. Ask again later, or for tasks that both have played."
        )
    if not overall.pairs:
        raise UsageError(
            "these runs have no episode in common that came to its end in both: returns are compared by pairs of the "
            "same task, number and seed."
        )
    common = set(labels.values())
    each = [ReturnPair(*key, *pair) for key, pair in pairs.items() if key[:2] in common]
    differing = sorted((pair for pair in each if pair.difference), key=lambda pair: -abs(pair.difference))
    return ReturnComparison(tasks, overall, found, rounds, differing, (first, second))


def _whole_rounds(first: Results, second: Results, tasks: Sequence[tuple[str, str]]) -> int:
    there, here = (shares(run.rows, run.plan) for run in (first, second))
    return whole_rounds(there, here, tasks, first.plan.episodes, (first.plan.repeats, second.plan.repeats))


def _returns(run: Results) -> dict[tuple[str, str, int, int], float]:
    """Returns the return of each episode, by benchmark, task, number and seed; of several plays, the mean.

    By its number, too: with another, the same seed is another episode where a task has states to start from.
    """
    played = [row for row in run.rows if row.outcome != "error"]
    return {
        (plays[0].benchmark, plays[0].task, run.plan.round_of(plays[0].index), plays[0].seed): mean_of(
            [row.reward_sum for row in plays]
        )
        for plays in by_episode(played)
    }

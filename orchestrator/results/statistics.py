"""Success rates, returns and other means that say how much they rest on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sparring.orchestrator.results.intervals import mean_of, student, wilson
from sparring.orchestrator.results.repeats import by_episode, worth_of
from sparring.orchestrator.results.row import EpisodeRow

_UNSPECIFIED: Final = "unspecified"
"""Errors of which no more is known: release 0.1.0 did not write down their kind."""


@dataclass(frozen=True)
class Mean:
    """A mean over episodes.

    Attributes:
        mean: The mean.
        n: How many episodes it is of.
        interval: At 95 %, by Student's t; None if that is not known, as for a single episode.
    """

    mean: float
    n: int
    interval: tuple[float, float] | None = None

    @classmethod
    def of(cls, values: Sequence[float]) -> Mean | None:
        """Returns the mean of some values; None if there are none."""
        return cls(mean_of(values), len(values), student(values)) if values else None

    @classmethod
    def over(cls, rows: Sequence[EpisodeRow], value: Callable[[EpisodeRow], float]) -> Mean | None:
        """Returns the mean over plays; its interval is over episodes, of which plays may be repeats."""
        mean = cls.of([value(row) for row in rows])
        episodes = by_episode(rows)
        if mean is None or len(episodes) == len(rows):
            return mean
        return cls(mean.mean, mean.n, student([mean_of([value(row) for row in episode]) for episode in episodes]))

    def to_json(self) -> dict[str, Any]:
        """Returns its form in `--json`."""
        return {"mean": self.mean, "interval": None if self.interval is None else list(self.interval), "n": self.n}


@dataclass(frozen=True)
class Summary:
    """What some episodes come to. Errors are counted apart: they never count against the policy.

    A rate says less where there were errors: `worst_case` and `best_case` say between what it would be with them.

    Attributes:
        n: Episodes with an outcome of the policy's own.
        errors: Episodes that ended in an error.
        successes: Of the n.
        errors_by_kind: The errors by their kind, the most frequent first.
        metrics: The mean of each metric of the benchmark, over those of the n that have it.
        returns: The mean sum of rewards, over the n; None if there are none.
        steps: The mean number of steps, likewise.
        reward_max: The mean of the largest reward of one step, likewise.
        unjudged: Those of the n whose task has no success rate: its simulator does not say what success is.
        unjudged_errors: Those of the errors whose task has none.
        worth: Which share of the judged would be worth as much, if none of them were repeats of the same episode.
    """

    n: int
    errors: int
    successes: int
    errors_by_kind: Mapping[str, int] = field(default_factory=dict)
    metrics: Mapping[str, Mean] = field(default_factory=dict)
    returns: Mean | None = None
    steps: Mean | None = None
    reward_max: Mean | None = None
    unjudged: int = 0
    unjudged_errors: int = 0
    worth: float = 1.0

    @classmethod
    def of(cls, rows: Iterable[EpisodeRow]) -> Summary:
        """Summarizes some episodes."""
        found = list(rows)
        played = [row for row in found if row.outcome != "error"]
        failed = [row for row in found if row.outcome == "error"]
        # One episode that nobody could judge, and the rate of its task would be of those that happened to be judged.
        silent = {(row.benchmark, row.task) for row in played if row.outcome == "played"}
        judged = [row for row in played if (row.benchmark, row.task) not in silent]
        return cls(
            n=len(played),
            errors=len(failed),
            successes=sum(row.outcome == "success" for row in judged),
            errors_by_kind=dict(Counter(map(kind_of, failed)).most_common()),
            metrics=_means(played),
            returns=Mean.over(played, lambda row: row.reward_sum),
            steps=Mean.over(played, lambda row: row.steps),
            reward_max=Mean.over(played, lambda row: row.reward_max),
            unjudged=len(played) - len(judged),
            unjudged_errors=sum((row.benchmark, row.task) in silent for row in failed),
            worth=worth_of(judged, lambda row: row.outcome == "success"),
        )

    @property
    def judged(self) -> int:
        """How many episodes the success rate is of."""
        return self.n - self.unjudged

    @property
    def success_rate(self) -> float | None:
        """The share of successes; None if no episode has an outcome of the policy's own that says so."""
        return self.successes / self.judged if self.judged else None

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % Wilson interval of the success rate; (0, 1) if there is none.

        Where episodes were played several times it is of as many plays as these are worth.
        """
        if self.worth == 1.0:
            return wilson(self.successes, self.judged)
        return wilson(self.successes * self.worth, self.judged * self.worth)

    @property
    def worst_case(self) -> float | None:
        """The success rate if every error had been a failure; None if there is no episode that could be judged."""
        return self.successes / self._to_judge if self._to_judge else None

    @property
    def best_case(self) -> float | None:
        """The success rate if every error had been a success; None if there is no episode that could be judged."""
        return (self._to_judge - self.judged + self.successes) / self._to_judge if self._to_judge else None

    @property
    def _to_judge(self) -> int:
        if self.unjudged and not self.judged:  # where nobody judges, an error would not have been judged either
            return 0
        return self.judged + self.errors - self.unjudged_errors

    def to_json(self) -> dict[str, Any]:
        """Returns its form in `--json`."""
        return {
            "success_rate": self.success_rate,
            "interval": list(self.interval),
            "worst_case": self.worst_case,
            "best_case": self.best_case,
            "n": self.n,
            "judged": self.judged,
            "errors": self.errors,
            "errors_by_kind": dict(self.errors_by_kind),
            "return": None if self.returns is None else self.returns.to_json(),
            "steps": None if self.steps is None else self.steps.to_json(),
            "reward_max": None if self.reward_max is None else self.reward_max.to_json(),
            "metrics": {name: mean.to_json() for name, mean in self.metrics.items()},
        }


def kind_of(row: EpisodeRow) -> str:
    """Returns the kind of an episode's error; release 0.1.0 recorded none."""
    return row.error_kind or _UNSPECIFIED


def _means(rows: Iterable[EpisodeRow]) -> dict[str, Mean]:
    having: dict[str, list[EpisodeRow]] = {}
    for row in rows:
        for name in row.metrics:
            having.setdefault(name, []).append(row)
    found = {name: Mean.over(those, _metric(name)) for name, those in sorted(having.items())}
    return {name: mean for name, mean in found.items() if mean is not None}


def _metric(name: str) -> Callable[[EpisodeRow], float]:
    return lambda row: row.metrics[name]

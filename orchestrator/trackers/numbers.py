"""What trackers are told in numbers: how far a run is, what a task has come to, and what all of it comes to."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sparring.orchestrator.plan import Plan
from sparring.orchestrator.results.intervals import wilson
from sparring.orchestrator.results.repeats import PlaysWorth
from sparring.orchestrator.results.results import Results
from sparring.orchestrator.results.row import EpisodeRow
from sparring.orchestrator.results.several_protocols import protocols_side_by_side
from sparring.orchestrator.results.statistics import Summary
from sparring.orchestrator.trackers.base import TableCell

TABLE: Final = ("task", "benchmark", "n", "errors", "success_rate", "low", "high", "return", "steps")
"""The columns of the table that a run ends with."""


@dataclass
class TaskCount:
    """Counts episodes one by one: a run may have a hundred thousand, and each is told of.

    Attributes:
        n: Episodes with an outcome of the policy's own.
        errors: Episodes that ended in an error.
        successes: Of the n.
        unjudged: Of the n, those of which nobody says whether they were a success.
        returns: The sum of all returns.
        plays: What those that were judged are worth, where some are plays of the same episode.
    """

    n: int = 0
    errors: int = 0
    successes: int = 0
    unjudged: int = 0
    returns: float = 0.0
    plays: PlaysWorth = field(default_factory=PlaysWorth)

    def add(self, row: EpisodeRow, episode: int) -> None:
        """Counts one more.

        Args:
            row: What came of it.
            episode: Which of its task's episodes it is a play of.
        """
        if row.outcome == "error":
            self.errors += 1
            return
        self.n += 1
        self.successes += row.outcome == "success"
        self.unjudged += row.outcome == "played"
        self.returns += row.reward_sum
        if row.outcome != "played":
            self.plays.add((row.benchmark, row.task), episode, won=row.outcome == "success")

    def numbers(self, prefix: str, *, interval: bool = False) -> dict[str, float]:
        """Returns what they come to so far; no rate where one of them was not judged."""
        found: dict[str, float] = {}
        if self.n and not self.unjudged:
            found[f"{prefix}/success_rate"] = self.successes / self.n
            if interval:
                worth = self.plays.worth
                low, high = wilson(self.successes * worth, self.n * worth)
                found |= {f"{prefix}/success_low": low, f"{prefix}/success_high": high}
        if self.n:
            found[f"{prefix}/return"] = self.returns / self.n
        return found


class RunNumbers:
    """How far a run is: the numbers so far, of all and of each task.

    Args:
        plan: Of the run.
        recorded: Episodes that there are already.
        protocols: Labels of its parts, where it plays the same tasks by several protocols: each has its own numbers.
    """

    def __init__(self, plan: Plan, recorded: Iterable[EpisodeRow], protocols: Iterable[str] = ()) -> None:
        self._plan = plan
        self._labels = {(benchmark, task.name): label for label, (benchmark, task) in plan.labels().items()}
        self._left = Counter(self._labels[episode.benchmark, episode.task] for episode in plan.ids())
        self._rows: defaultdict[str, list[EpisodeRow]] = defaultdict(list)
        self._tasks: defaultdict[str, TaskCount] = defaultdict(TaskCount)
        self._all = TaskCount()
        self._by_protocol = {label: TaskCount() for label in protocols}
        for row in recorded:
            self.add(row)

    @property
    def episodes(self) -> int:
        """That are recorded."""
        return self._all.n + self._all.errors

    def add(self, row: EpisodeRow) -> bool:
        """Counts one more; returns whether it was the last of its task."""
        label = self._labels[row.benchmark, row.task]
        self._rows[label].append(row)
        of_protocol = [self._by_protocol[row.benchmark]] if self._by_protocol else []
        for counted in (self._tasks[label], *of_protocol, self._all):
            counted.add(row, self._plan.round_of(row.index))
        self._left[label] -= 1
        return self._left[label] == 0

    def numbers(self, row: EpisodeRow) -> dict[str, float]:
        """Returns what has changed with an episode: of its task, and of all."""
        label = self._labels[row.benchmark, row.task]
        whole, prefix = self._all, "progress"
        if self._by_protocol:  # a rate of several protocols together would be by the rules of none
            whole, prefix = self._by_protocol[row.benchmark], f"progress/protocol/{row.benchmark}"
        return {
            **whole.numbers(prefix, interval=True),
            "progress/errors": float(self._all.errors),
            **self._tasks[label].numbers(f"progress/task/{label}"),
        }

    def task(self, row: EpisodeRow) -> dict[str, float]:
        """Returns what the task of an episode has come to."""
        label = self._labels[row.benchmark, row.task]
        return summary_numbers(Summary.of(self._rows[label]), f"eval/task/{label}")


def final_numbers(results: Results) -> dict[str, float]:
    """Returns what a run comes to: all of it, its groups and its tasks."""
    tasks, rules = results.tasks, protocols_side_by_side(results)
    found = {} if rules else summary_numbers(results.overall, "eval", interval=True)
    for label in rules:  # a rate of several protocols together would be by the rules of none
        found |= summary_numbers(results.benchmarks[label], f"eval/protocol/{label}", interval=True)
    found["eval/seconds"] = results.seconds
    for name, summary in results.groups.items():
        if name not in tasks:
            found |= summary_numbers(summary, f"eval/group/{name}")
    for name, summary in tasks.items():
        found |= summary_numbers(summary, f"eval/task/{name}")
    return found


def summary_numbers(summary: Summary, prefix: str, *, interval: bool = False) -> dict[str, float]:
    """Returns what some episodes come to, by names that begin with a prefix; what is not known is left out."""
    found: dict[str, float] = {f"{prefix}/episodes": float(summary.n), f"{prefix}/errors": float(summary.errors)}
    if summary.success_rate is not None:
        found[f"{prefix}/success_rate"] = summary.success_rate
        if interval:
            found[f"{prefix}/success_low"], found[f"{prefix}/success_high"] = summary.interval
    means = {"return": summary.returns, "steps": summary.steps}
    means |= {f"metric/{name}": mean for name, mean in summary.metrics.items()}
    return {**found, **{f"{prefix}/{name}": mean.mean for name, mean in means.items() if mean is not None}}


def table_rows(results: Results) -> Sequence[Sequence[TableCell]]:
    """Returns the rows of the table that a run ends with: a task each, and the last one of all of them."""
    owners = results.owners
    rows = [_table_row(name, owners[name], summary) for name, summary in results.tasks.items()]
    if rules := protocols_side_by_side(results):
        return [*rows, *(_table_row(f"overall by {label}", label, results.benchmarks[label]) for label in rules)]
    return [*rows, _table_row("overall", "", results.overall)]


def _table_row(name: str, benchmark: str, summary: Summary) -> list[TableCell]:
    rate = summary.success_rate
    low, high = (None, None) if rate is None else summary.interval
    means = [None if mean is None else mean.mean for mean in (summary.returns, summary.steps)]
    return [name, benchmark, summary.n, summary.errors, rate, low, high, *means]


def closing_facts(results: Results) -> Mapping[str, Any]:
    """Returns what is known of a run only when it has begun: what was really evaluated."""
    policy = results.policy
    facts: dict[str, Any] = {
        "status": results.status,
        "output": None if results.folder is None else str(results.folder),
    }
    if policy is not None:
        facts["policy_name"] = policy.name
        facts["checkpoint_sha256"] = policy.checkpoint_sha256
        facts["policy_commit"] = policy.commit
    facts["renderers"] = list(results.renderers)
    return {name: value for name, value in facts.items() if value}

"""Two runs, episode by episode: what differs, and how sure that is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from sparring.orchestrator.comparison.comparable import obstacles
from sparring.orchestrator.comparison.differences import PairCounts, paired_interval, unpaired_interval
from sparring.orchestrator.comparison.planning import Difference, pairs_needed
from sparring.orchestrator.comparison.rounds import Rounds, rounds_of
from sparring.orchestrator.comparison.significance import holm, mcnemar, unpaired
from sparring.orchestrator.results.intervals import student
from sparring.orchestrator.results.results import Results
from sparring.orchestrator.results.row import EpisodeRow
from sparring.orchestrator.run.plan import EpisodeId
from sparring.protos.advice import Hint
from sparring.protos.errors import UsageError

ALPHA: Final = 0.05
_SMALL: Final = 0.05
"""The difference that people ask about where the runs show none."""


@dataclass(frozen=True)
class Compared:
    """Some episodes of two runs.

    Attributes:
        pairs: The same episodes in both, by who succeeded; None where the runs have no pairs.
        first: Successes and judged episodes of the first run: of the pairs, or of all.
        second: Likewise of the second.
    """

    pairs: PairCounts | None
    first: tuple[int, int]
    second: tuple[int, int]

    @property
    def rates(self) -> tuple[float | None, float | None]:
        """Both success rates; None where nothing was judged."""
        (x1, n1), (x2, n2) = self.first, self.second
        return x1 / n1 if n1 else None, x2 / n2 if n2 else None

    @property
    def difference(self) -> float | None:
        """The second's rate less the first's; None where either has none."""
        first, second = self.rates
        return None if first is None or second is None else second - first

    @cached_property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the difference: Tango's for pairs, Miettinen and Nurminen's otherwise."""
        return unpaired_interval(self.first, self.second) if self.pairs is None else paired_interval(self.pairs)

    @cached_property
    def p_value(self) -> float:
        """Of the exact test that there is no difference: McNemar's for pairs, otherwise Boschloo's or Fisher's."""
        if self.pairs is None:
            return unpaired(self.first, self.second)
        return mcnemar(self.pairs.only_first, self.pairs.only_second)

    def to_json(self) -> dict[str, Any]:
        """Returns its form in `--json`."""
        pairs = self.pairs
        return {
            "first": {"successes": self.first[0], "n": self.first[1], "success_rate": self.rates[0]},
            "second": {"successes": self.second[0], "n": self.second[1], "success_rate": self.rates[1]},
            "difference": self.difference,
            "interval": list(self.interval),
            "p_value": self.p_value,
            "pairs": None
            if pairs is None
            else {
                "n": pairs.n,
                "both": pairs.both,
                "only_first": pairs.only_first,
                "only_second": pairs.only_second,
                "neither": pairs.neither,
            },
        }


@dataclass(frozen=True)
class Comparison:
    """Two runs side by side; the first is what the second is held against.

    Attributes:
        first: One run.
        second: The other.
        tasks: Each task that both have, by its label in the first.
        overall: All of them.
        flipped: Episodes that one of them did and the other did not, and whether the second did.
        left_out: Pairs of which one ended in an error, or was not judged.
        unmatched: Episodes that only one of them has a row of.
        rounds: Whole rounds of pairs, where one of the runs is not finished: what may be judged while it goes on. None
            where both are, and without pairs.
        obstacles: What makes them not comparable, if they are compared all the same.
    """

    first: Results
    second: Results
    tasks: Mapping[str, Compared]
    overall: Compared
    flipped: Sequence[tuple[EpisodeId, bool]]
    left_out: int
    unmatched: int
    rounds: Rounds | None = None
    obstacles: Sequence[str] = ()

    @property
    def paired(self) -> bool:
        """Whether the same episodes were compared."""
        return self.overall.pairs is not None

    @cached_property
    def adjusted(self) -> dict[str, float]:
        """The p-value of each task with two rates, by Holm over all of these: they may be read together."""
        return holm({label: task.p_value for label, task in self.tasks.items() if task.difference is not None})

    @cached_property
    def such_tasks(self) -> tuple[float, float] | None:
        """95 % interval of the mean difference on tasks like these, by Student's t over tasks.

        None where tasks say nothing of how tasks differ: there are fewer than two, or all differ by the same.
        """
        found = [task.difference for task in self.tasks.values() if task.difference is not None]
        return student(found) if len(set(found)) > 1 else None

    @property
    def cautions(self) -> list[str]:
        """What may have moved a score beside the policy, and is no reason not to compare."""
        drawn = [sorted(run.renderers) for run in (self.first, self.second)]
        if not all(drawn) or drawn[0] == drawn[1]:
            return []
        return [f"images were drawn by {' and '.join(drawn[0])}, and by {' and '.join(drawn[1])}: their pixels differ."]

    @property
    def is_decided(self) -> bool:
        """Whether a difference over all tasks is seen."""
        return self.overall.p_value <= ALPHA

    def episodes_needed(self) -> tuple[float, int | None] | None:
        """Returns a difference, and how many pairs would show it with a chance of 80 %; None where that cannot be said.

        The difference is the one seen; 5 points, where there is none. None for the number: more than a million.
        """
        seen = self.overall.difference
        if seen is None:
            return None
        wanted = abs(seen) or _SMALL
        pairs = self.overall.pairs
        if pairs is not None and pairs.n and (share := (pairs.only_first + pairs.only_second) / pairs.n):
            return wanted, pairs_needed(Difference.of_discordant(wanted, max(share, wanted)))
        first = self.overall.rates[0] or 0.0
        second = first + wanted if first + wanted <= 1 else first - wanted
        return wanted, pairs_needed(Difference.of_rates(first, second))

    def to_json(self) -> dict[str, Any]:
        """Returns what `--json` prints of it."""
        needed = self.episodes_needed()
        return {
            "paired": self.paired,
            "overall": self.overall.to_json(),
            "interval_on_such_tasks": None if self.such_tasks is None else list(self.such_tasks),
            "decided": self.is_decided,
            "needed": None if needed is None else {"difference": needed[0], "pairs": needed[1]},
            "tasks": {
                label: {**task.to_json(), "p_value_by_holm": self.adjusted.get(label)}
                for label, task in self.tasks.items()
            },
            "flipped": [
                {"benchmark": id.benchmark, "task": id.task, "index": id.index, "to": "success" if won else "failure"}
                for id, won in self.flipped
            ],
            "left_out": self.left_out,
            "unmatched": self.unmatched,
            "rounds": None if self.rounds is None else self.rounds.to_json(),
            "obstacles": list(self.obstacles),
            "cautions": self.cautions,
        }


def compare(first: Results, second: Results, *, force: bool = False) -> Comparison:
    """Compares two runs: by pairs of the same episode if they have any, otherwise by their rates.

    Args:
        first: What the other is held against.
        second: The other.
        force: Compare them although something that moves a score is not the same.

    Raises:
        UsageError: If they have no task in common, nothing can be judged, or they are not comparable.
    """
    labels = _common(first, second)
    found = obstacles(first, second)
    if found and not force:
        raise UsageError(
            "these runs are not comparable: what moves a score is not the same in both:\n"
            + "\n".join(f"  {sentence}" for sentence in found)
            + f"\n{Hint('force')} compares them all the same, and the result says so."
        )
    there, here = (_by_id(run.rows, set(labels.values())) for run in (first, second))
    same = [id for id in there if id in here and there[id].seed == here[id].seed]
    judged = [id for id in same if _is_judged(there[id]) and _is_judged(here[id])]
    if same and not judged:
        raise UsageError(
            "there is no episode that has an outcome in both of these runs: where one has, the other ended in an error."
        )
    if not any(map(_is_judged, there.values())) or not any(map(_is_judged, here.values())):
        raise UsageError(
            "one of these runs has no episode that ended in a success or a failure: there is no rate to compare."
        )
    tasks = {
        label: _compared(
            [id for id in judged if (id.benchmark, id.task) == key] if same else None,
            *({id: row for id, row in side.items() if (id.benchmark, id.task) == key} for side in (there, here)),
        )
        for label, key in labels.items()
    }
    return Comparison(
        first=first,
        second=second,
        tasks=tasks,
        overall=_compared(judged if same else None, there, here),
        flipped=[(id, here[id].outcome == "success") for id in judged if there[id].outcome != here[id].outcome],
        left_out=len(same) - len(judged),
        unmatched=len(there.keys() ^ here.keys()) if same else 0,
        rounds=rounds_of(there, here, list(labels.values()), first.plan.episodes)
        if same and not (first.status == second.status == "finished")
        else None,
        obstacles=found,
    )


def _common(first: Results, second: Results) -> dict[str, tuple[str, str]]:
    """Returns the tasks that both have, by their label in the first."""
    tasks = [
        {label: (benchmark, task.name) for label, (benchmark, task) in run.plan.labels().items()}
        for run in (first, second)
    ]
    others = set(tasks[1].values())
    common = {label: key for label, key in tasks[0].items() if key in others}
    if not common:
        raise UsageError(
            "these runs have no task in common: " + ", and ".join(f"one is of {_few(found)}" for found in tasks) + "."
        )
    return common


def _few(labels: Iterable[str], most: int = 3) -> str:
    shown = list(labels)
    return ", ".join(shown[:most]) + (f" and {len(shown) - most} more" if len(shown) > most else "")


def _by_id(rows: Iterable[EpisodeRow], tasks: set[tuple[str, str]]) -> dict[EpisodeId, EpisodeRow]:
    return {row.id: row for row in rows if (row.benchmark, row.task) in tasks}


def _is_judged(row: EpisodeRow) -> bool:
    return row.outcome in ("success", "failure")


def _compared(
    judged: Sequence[EpisodeId] | None, there: Mapping[EpisodeId, EpisodeRow], here: Mapping[EpisodeId, EpisodeRow]
) -> Compared:
    """Compares some episodes; those that are judged in both, or all of both if there are no pairs."""
    if judged is None:
        return Compared(None, _counted(there.values()), _counted(here.values()))
    won = [(there[id].outcome == "success", here[id].outcome == "success") for id in judged]
    pairs = PairCounts(
        both=won.count((True, True)),
        only_first=won.count((True, False)),
        only_second=won.count((False, True)),
        neither=won.count((False, False)),
    )
    return Compared(pairs, (pairs.both + pairs.only_first, pairs.n), (pairs.both + pairs.only_second, pairs.n))


def _counted(rows: Iterable[EpisodeRow]) -> tuple[int, int]:
    judged = [row for row in rows if _is_judged(row)]
    return sum(row.outcome == "success" for row in judged), len(judged)

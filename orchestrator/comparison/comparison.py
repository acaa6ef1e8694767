"""Two runs, episode by episode: what differs, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Final

from sparring.orchestrator.comparison.comparable import obstacles, refuse_obstacles, refuse_several_protocols
from sparring.orchestrator.comparison.differences import PairCounts, paired_interval, unpaired_interval
from sparring.orchestrator.comparison.planning import Difference, pairs_needed
from sparring.orchestrator.comparison.rounds import Rounds, rounds_of
from sparring.orchestrator.comparison.shares import EpisodeKey, Share, shares
from sparring.orchestrator.comparison.significance import holm, mcnemar, sign_flips, unpaired
from sparring.orchestrator.plan import EpisodeId
from sparring.orchestrator.results.intervals import student
from sparring.orchestrator.results.results import Results
from sparring.orchestrator.results.row import EpisodeRow
from sparring.orchestrator.results.statistics import Summary
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
        differences: The second's share of successes less the first's, of each episode, where a run has played them
            several times; empty: none has.
        worth: Of how many pairs that were played once each pair is worth then.
    """

    pairs: PairCounts | None
    first: tuple[float, float]
    second: tuple[float, float]
    differences: Sequence[float] = ()
    worth: float = 1.0

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
        if self.pairs is None:
            return unpaired_interval(self.first, self.second)
        return paired_interval(self.pairs if self.worth == 1.0 else self.pairs.times(self.worth))

    @cached_property
    def p_value(self) -> float:
        """Of the exact test that there is no difference: McNemar's for pairs, otherwise Boschloo's or Fisher's."""
        if self.pairs is None:
            return unpaired(whole_counts(self.first), whole_counts(self.second))
        if self.differences:
            return sign_flips(self.differences)
        return mcnemar(int(self.pairs.only_first), int(self.pairs.only_second))

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


@dataclass(frozen=True, repr=False)
class Comparison:
    """Two runs side by side; the first is what the second is held against. In a notebook it shows a table.

    Attributes:
        first: One run.
        second: The other.
        tasks: Each task that both have, by its label in the first.
        overall: All of them.
        flipped: Episodes that one of them did and the other did not, and whether the second did.
        left_out: Pairs of which one ended in an error, or was not judged.
        unmatched: Episodes that only one of them has a row of.
        rounds: Whole rounds of pairs, where one of the runs is not finished, or could stop early: what may be judged at
            any time. None where both played their plans, and without pairs.
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

    def __repr__(self) -> str:
        from sparring.orchestrator.display.comparison_notebook import comparison_text  # which shows what is here

        return comparison_text(self)

    def _repr_html_(self) -> str:
        from sparring.orchestrator.display.comparison_notebook import comparison_html

        return comparison_html(self)

    def __rich__(self) -> object:
        from sparring.orchestrator.display.comparison import comparison_table, run_names

        return comparison_table(self, run_names((self.first, self.second)))

    @property
    def paired(self) -> bool:
        """Whether the same episodes were compared."""
        return self.overall.pairs is not None

    @property
    def p_value(self) -> float:
        """By which it is decided whether they differ over all tasks.

        Where how much was played was not settled before, it is the one that holds whenever it is looked at.
        """
        return self.overall.p_value if self.rounds is None else self.rounds.p_value

    @cached_property
    def adjusted(self) -> dict[str, float]:
        """The p-value of each task with two rates, by Holm over all of these: they may be read together.

        Where how much was played was not settled before, they are of those that hold whenever they are looked at.
        """
        labels = self.first.plan.labels()
        values: dict[str, float] = {}
        for label, task in self.tasks.items():
            if task.difference is not None:
                benchmark, known = labels[label]
                values[label] = task.p_value if self.rounds is None else self.rounds.tasks[benchmark, known.name]
        return holm(values)

    @cached_property
    def such_tasks(self) -> tuple[float, float] | None:
        """95 % interval of the mean difference on tasks like these, by Student's t over tasks.

        None where tasks say nothing of how tasks differ: there are fewer than two, or all differ by the same.
        """
        found = [task.difference for task in self.tasks.values() if task.difference is not None]
        interval = student(found) if len(set(found)) > 1 else None
        return None if interval is None else (max(-1.0, interval[0]), min(1.0, interval[1]))

    @property
    def cautions(self) -> list[str]:
        """What one should know before one believes the verdict, and is no reason not to compare."""
        found = []
        drawn = [sorted(run.renderers) for run in (self.first, self.second)]
        if all(drawn) and drawn[0] != drawn[1]:
            two = f"{' and '.join(drawn[0])}, and by {' and '.join(drawn[1])}"
            found.append(f"images were drawn by {two}: their pixels differ.")
        if self.rounds is None and not (is_settled(self.first) and is_settled(self.second)):
            found.append(
                "one of these runs is not finished, or could stop early: without pairs, p and interval hold only if "
                "the number of episodes was fixed beforehand."
            )
        return found

    @property
    def is_decided(self) -> bool:
        """Whether a difference over all tasks is seen."""
        return self.p_value <= ALPHA and self.overall.difference != 0

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
            "p_value": self.p_value,
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
    labels = common_tasks(first, second)
    refuse_several_protocols(first, second, labels.values())
    found = obstacles(first, second)
    refuse_obstacles(found, force=force)
    there, here = (_by_id(run.rows, set(labels.values())) for run in (first, second))
    repeats = first.plan.repeats, second.plan.repeats
    # With other numbers of plays, a play has no partner, and only episodes have.
    same = [id for id in there if id in here and there[id].seed == here[id].seed] if repeats[0] == repeats[1] else []
    judged = [id for id in same if _is_judged(there[id]) and _is_judged(here[id])]
    episodes = shares(there.values(), first.plan), shares(here.values(), second.plan)
    common = [key for key in episodes[0] if key in episodes[1] and episodes[0][key].seed == episodes[1][key].seed]
    both = [key for key in common if None not in (episodes[0][key].success, episodes[1][key].success)]
    if common and not both:
        raise UsageError(
            "there is no episode that has an outcome in both of these runs: where one has, the other ended in an error."
        )
    if not any(map(_is_judged, there.values())) or not any(map(_is_judged, here.values())):
        raise UsageError(
            "one of these runs has no episode that ended in a success or a failure: there is no rate to compare."
        )
    if max(repeats) > 1:
        compared = partial(_by_episode, both if common else None, episodes, (there, here), max(repeats))
    else:
        compared = partial(_compared, judged if same else None, there, here)
    tasks = {label: compared(key) for label, key in labels.items()}
    return Comparison(
        first=first,
        second=second,
        tasks=tasks,
        overall=compared(None),
        flipped=[(id, here[id].outcome == "success") for id in judged if there[id].outcome != here[id].outcome],
        left_out=len(common) - len(both),
        unmatched=len(episodes[0].keys() ^ episodes[1].keys()) if common else 0,
        rounds=rounds_of(*episodes, list(labels.values()), min(first.plan.episodes, second.plan.episodes), repeats)
        if common and not (is_settled(first) and is_settled(second))
        else None,
        obstacles=found,
    )


def common_tasks(first: Results, second: Results) -> dict[str, tuple[str, str]]:
    """Returns the tasks that both have, by their label in the first.

    Raises:
        UsageError: If there is none.
    """
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


def is_settled(run: Results) -> bool:
    """Returns whether how much a run has played was settled before it began, and no rule could have stopped it."""
    return run.status == "finished" and run.early_stop is None


def _few(labels: Iterable[str], most: int = 3) -> str:
    shown = list(labels)
    return ", ".join(shown[:most]) + (f" and {len(shown) - most} more" if len(shown) > most else "")


def _by_id(rows: Iterable[EpisodeRow], tasks: set[tuple[str, str]]) -> dict[EpisodeId, EpisodeRow]:
    return {row.id: row for row in rows if (row.benchmark, row.task) in tasks}


def _is_judged(row: EpisodeRow) -> bool:
    return row.outcome in ("success", "failure")


def _compared(
    judged: Sequence[EpisodeId] | None,
    there: Mapping[EpisodeId, EpisodeRow],
    here: Mapping[EpisodeId, EpisodeRow],
    task: tuple[str, str] | None,
) -> Compared:
    """Compares episodes of a task, or of all: those that are judged in both, or all of both if there are no pairs."""

    def chosen(id: EpisodeId) -> bool:
        return task is None or (id.benchmark, id.task) == task

    if judged is None:
        first, second = (_counted(row for id, row in side.items() if chosen(id)) for side in (there, here))
        return Compared(None, first, second)
    won = [(there[id].outcome == "success", here[id].outcome == "success") for id in judged if chosen(id)]
    pairs = PairCounts(
        both=won.count((True, True)),
        only_first=won.count((True, False)),
        only_second=won.count((False, True)),
        neither=won.count((False, False)),
    )
    return Compared(pairs, (pairs.both + pairs.only_first, pairs.n), (pairs.both + pairs.only_second, pairs.n))


def _by_episode(
    both: Sequence[EpisodeKey] | None,
    episodes: tuple[Mapping[EpisodeKey, Share], Mapping[EpisodeKey, Share]],
    rows: tuple[Mapping[EpisodeId, EpisodeRow], Mapping[EpisodeId, EpisodeRow]],
    most: int,
    task: tuple[str, str] | None,
) -> Compared:
    """Compares episodes of a task, or of all, by shares of their plays; all plays of both if there are no pairs."""
    if both is None:
        there, here = ([r for r in side.values() if task in (None, (r.benchmark, r.task))] for side in rows)
        return Compared(None, _worth(there), _worth(here))
    chosen = [key for key in both if task is None or key[:2] == task]
    first, second = ([side[key].success or 0.0 for key in chosen] for side in episodes)
    pairs = list(zip(first, second, strict=True))
    counts = sum((PairCounts(a * b, a * (1 - b), (1 - a) * b, (1 - a) * (1 - b)) for a, b in pairs), PairCounts())
    differences = [b - a for a, b in pairs]
    gain = _gain(counts, differences, most)
    return Compared(counts, (math.fsum(first), len(pairs)), (math.fsum(second), len(pairs)), differences, gain)


def _gain(pairs: PairCounts, differences: Sequence[float], most: int) -> float:
    """Returns how many pairs that were played once each pair is worth: by how much less differences of shares vary.

    At least 1, where plays of an episode are all alike, and where nothing varies; at most as many as there are plays.
    """
    n = len(differences)
    if n < 2:
        return 1.0
    mean = math.fsum(differences) / n
    seen = math.fsum((difference - mean) ** 2 for difference in differences) / (n - 1)
    once = (pairs.only_first + pairs.only_second) / n - mean**2
    return min(float(most), max(1.0, once / seen)) if seen > 0 else 1.0


def _worth(rows: Iterable[EpisodeRow]) -> tuple[float, float]:
    """Returns successes and plays, as many as would be worth the same if none were a repeat."""
    found = Summary.of(rows)
    return found.successes * found.worth, found.judged * found.worth


def whole_counts(counted: tuple[float, float]) -> tuple[int, int]:
    """Returns counts as an exact test takes them, rounded to what is less certain."""
    n = int(counted[1] + 1e-9)
    return (min(n, round(counted[0] / counted[1] * n)), n) if n else (0, 0)


def _counted(rows: Iterable[EpisodeRow]) -> tuple[int, int]:
    judged = [row for row in rows if _is_judged(row)]
    return sum(row.outcome == "success" for row in judged), len(judged)

"""What two runs of one plan do differently: in which episodes, from which step on, and what else is not the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from sparring.orchestrator.plan import EpisodeId
from sparring.orchestrator.replay.recorded_run import RecordedRun, names_of
from sparring.orchestrator.results.finite import finite
from sparring.orchestrator.results.reading import KeptEpisode
from sparring.orchestrator.results.renderers import renderers_of
from sparring.orchestrator.results.row import EpisodeRow
from sparring.protos.action_list import UnreadableActions, unpack
from sparring.protos.tensor import Array
from sparring.protos.trace import Trace

_OF_THE_PLACE: Final = ("output", "record", "config", "slots", "listen", "join_token_file", "assets")
"""Settings that are others in every run, and decide nothing."""


@dataclass(frozen=True)
class EpisodeDifference:
    """In what an episode is not the same in both runs.

    Attributes:
        episode: Which, as TASK:INDEX, or BENCHMARK/TASK:INDEX where several have a task of that name.
        step: How many actions are the same, so that this one, counted from 0, is the first that is not.
        apart: How far the numbers of that action are apart, at most; None: one run has no action there.
        most: The same over all steps that both have.
        physics_step: After how many steps the simulators were in different states first; None: they never were, or
            that is not known. Where it is not after `step`, the simulator differed before the policy did.
        steps: Of both.
        outcomes: Of both.
    """

    episode: str
    step: int
    apart: float | None
    most: float
    physics_step: int | None
    steps: tuple[int, int]
    outcomes: tuple[str, str]

    @property
    def first(self) -> str:
        """Who differed first, in words; neither, if all actions that both have are the same, and so are the states."""
        if self.physics_step is not None and self.physics_step <= self.step:
            return "the simulator"
        left, right = self.steps
        ended = left != right and self.step == min(self.steps)  # as with another limit of steps
        return "neither, one ended earlier" if ended else "the policy"


@dataclass(frozen=True)
class RunDifference:
    """In what two runs differ.

    Attributes:
        same: Episodes whose actions are the same in both, to the bit.
        differing: Those whose are not, by the plan's order.
        other_seeds: Episodes of the same name that have other seeds: nothing can be said of them.
        only: Episodes that only one of them has.
        unknown: Episodes that one of them has kept no actions of.
        unreadable: Episodes whose actions, or what came of them, cannot be read in one of them: they are damaged.
        errors: Episodes that ended in an error in one of them, or in both: nothing can be said of them.
        around: Settings, versions, renderers and facts of the policy that are not the same: name, and the values of
            both.
        ids: The episodes that both have, by the names that they have here.
    """

    same: int
    differing: list[EpisodeDifference]
    other_seeds: list[str]
    only: tuple[list[str], list[str]]
    unknown: list[str]
    unreadable: list[str]
    errors: list[str]
    around: dict[str, tuple[Any, Any]]
    ids: dict[str, EpisodeId]

    def to_json(self) -> dict[str, Any]:
        """Returns it for a program."""
        document = {name: value for name, value in asdict(self).items() if name != "ids"}
        document["differing"] = [{**asdict(one), "first": one.first} for one in self.differing]
        return document


def difference_of(first: RecordedRun, second: RecordedRun) -> RunDifference:
    """Holds two runs against each other.

    Raises:
        UsageError: If one of them cannot be read.
    """
    name = _names(first, second)
    common = [episode for episode in first.plan.ids() if episode in first.rows and episode in second.rows]
    judged = [episode for episode in common if _has_outcome(first, second, episode)]
    kept, others = first.read(judged), second.read(judged)
    same = 0
    differing: list[EpisodeDifference] = []
    seeds, unknown, unreadable = [], [], []
    for episode in judged:
        row, other = first.rows[episode], second.rows[episode]
        if row.seed != other.seed:
            seeds.append(name(episode))
        elif episode not in kept or episode not in others:
            unknown.append(name(episode))
        else:
            try:
                found = _compare(name(episode), (row, other), kept[episode], others[episode])
            except UnreadableActions:
                unreadable.append(name(episode))
                continue
            same += found is None
            differing += [] if found is None else [found]
    return RunDifference(
        same=same,
        differing=differing,
        other_seeds=seeds,
        only=([*map(name, _only(first, second))], [*map(name, _only(second, first))]),
        unknown=unknown,
        unreadable=unreadable,
        errors=[name(episode) for episode in common if not _has_outcome(first, second, episode)],
        around=dict(_around(first, second)),
        ids={name(episode): episode for episode in common},
    )


def _compare(
    name: str, rows: tuple[EpisodeRow, EpisodeRow], kept: KeptEpisode, there: KeptEpisode
) -> EpisodeDifference | None:
    row, other = rows
    left, right = unpack(kept.actions), unpack(there.actions)
    length = min(len(left), len(right))
    comparable = left.shape[1] == right.shape[1]
    step = _first(left[:length], right[:length]) if comparable else 0
    physics = _physics(kept, there)
    if step == length and len(left) == len(right) and left.dtype == right.dtype and physics is None:
        return None
    apart = np.abs(left[:length].astype(float) - right[:length].astype(float)) if comparable else np.zeros((0, 1))
    return EpisodeDifference(
        episode=name,
        step=step,
        apart=float(apart[step].max()) if step < len(apart) else None,
        most=float(apart.max(initial=0.0)),
        physics_step=physics,
        steps=(row.steps, other.steps),
        outcomes=(row.outcome, other.outcome),
    )


def _first(left: Array, right: Array) -> int:
    """Returns how many actions are the same: to the bit, so that 0.0 and -0.0 are not, unless their types differ."""
    if left.dtype == right.dtype:
        left, right = (np.ascontiguousarray(table).view(np.uint8) for table in (left, right))
    unequal = (left != right).any(axis=1)
    return int(unequal.argmax()) if unequal.any() else len(left)


def _physics(kept: KeptEpisode, there: KeptEpisode) -> int | None:
    if not kept.trace or not there.trace:
        return None
    found = Trace.unpack(kept.trace).first_difference(Trace.unpack(there.trace))
    return None if found is None else found.step


def _around(first: RecordedRun, second: RecordedRun) -> Iterator[tuple[str, tuple[Any, Any]]]:
    for kind, left, right in (
        ("settings", first.document.settings, second.document.settings),
        ("policy", _policy(first), _policy(second)),
        ("versions", _versions(first), _versions(second)),
    ):
        for name in sorted({*left, *right}):
            if name not in _OF_THE_PLACE and finite(left.get(name)) != finite(right.get(name)):
                yield f"{kind} {name}", (left.get(name), right.get(name))
    for benchmark in first.plan.tasks:
        drawn = _renderers(first, benchmark), _renderers(second, benchmark)
        if benchmark in second.plan.tasks and drawn[0] != drawn[1]:
            yield f"renderers of {benchmark}", drawn


def _policy(run: RecordedRun) -> Mapping[str, Any]:
    policy = run.document.policy
    facts = {} if policy is None else policy.model_dump(mode="json")
    packages = facts.pop("packages", {})
    machine = facts.pop("machine", {})
    return {
        **facts,
        **{f"package {name}": version for name, version in packages.items()},
        **{f"machine {name}": value for name, value in machine.items()},
    }


def _versions(run: RecordedRun) -> Mapping[str, Any]:
    """Returns the versions of all that has made rows; several of a package where they were mixed."""
    found: dict[str, set[str]] = {}
    for maker in run.makers.values():
        for name, version in maker.versions.get("worker", {}).items():
            found.setdefault(name, set()).add(version)
    return {name: ", ".join(sorted(versions)) for name, versions in found.items()}


def _renderers(run: RecordedRun, benchmark: str) -> list[str]:
    """Returns what has drawn the images of a benchmark: a policy that sees other pixels may act otherwise."""
    return sorted(renderers_of(row for episode, row in run.rows.items() if episode.benchmark == benchmark))


def _has_outcome(first: RecordedRun, second: RecordedRun, episode: EpisodeId) -> bool:
    return all(run.rows[episode].outcome != "error" for run in (first, second))


def _only(run: RecordedRun, other: RecordedRun) -> list[EpisodeId]:
    return [episode for episode in run.plan.ids() if episode in run.rows and episode not in other.rows]


def _names(first: RecordedRun, second: RecordedRun) -> Callable[[EpisodeId], str]:
    """Returns what names episodes so that no two of both runs have the same name."""
    tasks = {(name, task.name) for run in (first, second) for name, tasks in run.plan.tasks.items() for task in tasks}
    benchmarks = Counter(task for _, task in tasks)

    def name(episode: EpisodeId) -> str:
        short, full = names_of(episode)
        return short if benchmarks[episode.task] == 1 else full

    return name

"""What a run is going to do: which episodes of which tasks, each with its seed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparring.env_worker.benchmark import Task, asking
from sparring.env_worker.hub import AssetsError, HubMissing
from sparring.env_worker.registry import get_benchmark
from sparring.orchestrator.machine.environments import interpreter
from sparring.orchestrator.settings import Evaluation, RunSettings
from sparring.protos.advice import Hint
from sparring.protos.errors import UsageError


@dataclass(frozen=True, order=True)
class EpisodeId:
    """What makes an episode that episode; its seed and initial state follow from this and the run's seed."""

    benchmark: str
    task: str
    index: int

    def __str__(self) -> str:
        return f"{self.benchmark}/{self.task}#{self.index}"


@dataclass(frozen=True)
class Plan:
    """All episodes of a run.

    Attributes:
        tasks: Per benchmark, in the order they were selected.
        episodes: How many of each task.
        seed: Of the run.
        only: Some of them, where not all are to be played; None: all.
    """

    tasks: Mapping[str, Sequence[Task]]
    episodes: int
    seed: int
    only: frozenset[EpisodeId] | None = None

    def ids(self) -> list[EpisodeId]:
        """Returns every episode, task by task."""
        every = [
            EpisodeId(benchmark, task.name, index)
            for benchmark, tasks in self.tasks.items()
            for task in tasks
            for index in range(self.episodes)
        ]
        return every if self.only is None else [episode for episode in every if episode in self.only]

    def seed_of(self, episode: EpisodeId) -> int:
        """Returns the seed by LeRobot's rule, so that numbers can be compared: episode k has the run's seed + k."""
        return self.seed + episode.index

    def labels(self) -> dict[str, tuple[str, Task]]:
        """Returns every task with its benchmark, by a name that is unique in the run."""
        names = Counter(task.name for tasks in self.tasks.values() for task in tasks)
        return {
            task.name if names[task.name] == 1 else f"{benchmark}/{task.name}": (benchmark, task)
            for benchmark, tasks in self.tasks.items()
            for task in tasks
        }

    def groups(self) -> dict[str, list[str]]:
        """Returns the groups that were selected, by a name that is unique in the run, and the labels of their tasks.

        A group is one benchmark's: where two have one of the same name, these are two groups.
        """
        groups: dict[tuple[str, str], list[str]] = {}
        for label, (benchmark, task) in self.labels().items():
            groups.setdefault((benchmark, task.group), []).append(label)
        names = Counter(name for _, name in groups)
        return {
            name if names[name] == 1 else f"{benchmark}/{name}": labels for (benchmark, name), labels in groups.items()
        }


def make_plan(settings: RunSettings) -> Plan:
    """Makes the plan that settings ask for.

    Raises:
        UsageError: If a benchmark, a task or a setting of a benchmark is unknown.
    """
    tasks: dict[str, Sequence[Task]] = {}
    for part in settings.plan.parts:
        benchmark = get_benchmark(part.benchmark)
        benchmark.read_settings(benchmark_settings(settings, part))
        with asking(part.benchmark, "tasks()"):
            tasks[part.label] = benchmark.tasks(part.task)
    used = {part.benchmark: get_benchmark(part.benchmark).assets for part in settings.plan.parts}
    if settings.worker.assets is not None and not any(used.values()):
        raise UsageError(f"{Hint('assets')} is of no use here: {' and '.join(used)} has none.")
    return Plan(tasks, settings.plan.episodes, settings.plan.seed)


def benchmark_settings(settings: RunSettings, part: Evaluation) -> dict[str, Any]:
    """Returns what a benchmark is told: its own arguments, and the assets folder if it has assets."""
    assets = get_benchmark(part.benchmark).assets
    if settings.worker.assets is None or assets is None:
        return dict(part.benchmark_arg)
    return {assets.setting: str(settings.worker.assets.absolute()), **part.benchmark_arg}


def assets_of(settings: RunSettings, part: Evaluation) -> Path | None:
    """Returns the assets folder that a setting or a variable names for a benchmark; None: they are downloaded.

    Raises:
        UsageError: If the name means different folders in different places.
    """
    assets = get_benchmark(part.benchmark).assets
    if assets is None:
        return None
    named = benchmark_settings(settings, part).get(assets.setting) or os.environ.get(assets.variable)
    if not named:
        return None
    if not Path(named).is_absolute():
        raise UsageError(f"assets={named!r} means another folder to workers in containers; give its absolute path.")
    return Path(named)


def fetch_assets(settings: RunSettings, part: Evaluation) -> None:
    """Has a benchmark's assets here, downloaded if need be.

    Raises:
        SparringError: If they cannot be had.
    """
    fetch_for(part.benchmark, benchmark_settings(settings, part))


def fetch_for(name: str, given: Mapping[str, Any]) -> None:
    """Has a benchmark's assets here, downloaded if need be, by the Python that can.

    Args:
        name: Of the benchmark whose they are, or `module:Class`.
        given: Its own settings.

    Raises:
        SparringError: If they cannot be had.
    """
    benchmark = get_benchmark(name)
    try:
        with asking(name, "fetch()"):
            benchmark.fetch(benchmark.read_settings(given))
    except HubMissing:
        python = interpreter(benchmark)
        if python == Path(sys.executable):
            raise
        command = [str(python), "-m", "sparring.env_worker.fetch", name, json.dumps(dict(given))]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)  # as long as a download takes
        if done.returncode != 0:
            raise AssetsError(done.stdout or f"the assets of {benchmark.name!r} could not be fetched.") from None


def identity(settings: RunSettings, plan: Plan) -> dict[str, Any]:
    """Returns what decides a run's numbers, beside the policy, and so what must be equal to go on in a folder.

    How many slots, which launcher, where the server is and what is filmed is not part of it.
    """
    named = {part.label: part.benchmark for part in settings.plan.parts if part.name}
    return {
        "tasks": {benchmark: [task.name for task in tasks] for benchmark, tasks in plan.tasks.items()},
        "benchmark_arg": {part.label: dict(part.benchmark_arg) for part in settings.plan.parts},
        **({"benchmarks": named} if named else {}),  # folders of earlier releases know of no names
        "episodes": plan.episodes,
        "seed": plan.seed,
        **settings.plan.rules.that_move(),
    }

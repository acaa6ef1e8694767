"""What a run is going to do: which episodes of which tasks, each with its seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from env_worker.benchmark import Task
from env_worker.registry import get_benchmark
from orchestrator.settings import RunSettings


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
        benchmark: Whose tasks they are.
        tasks: In the order they were selected.
        episodes: How many of each task.
        seed: Of the run.
    """

    benchmark: str
    tasks: Sequence[Task]
    episodes: int
    seed: int

    def ids(self) -> list[EpisodeId]:
        """Every episode, task by task."""
        return [EpisodeId(self.benchmark, task.name, index) for task in self.tasks for index in range(self.episodes)]

    def seed_of(self, episode: EpisodeId) -> int:
        """LeRobot's rule, so that numbers can be compared: episode k of every task has the run's seed + k."""
        return self.seed + episode.index

    def groups(self) -> Mapping[str, list[str]]:
        """Names of the groups that were selected, and of the tasks in each."""
        groups: dict[str, list[str]] = {}
        for task in self.tasks:
            groups.setdefault(task.group, []).append(task.name)
        return groups


def make_plan(settings: RunSettings) -> Plan:
    """The plan that settings ask for.

    Raises:
        UsageError: If the benchmark, a task or a setting of the benchmark is unknown.
    """
    benchmark = get_benchmark(settings.benchmark)
    benchmark.read_settings(settings.benchmark_arg)
    return Plan(benchmark.name, benchmark.tasks(settings.task), settings.episodes, settings.seed)


def identity(settings: RunSettings, plan: Plan) -> dict[str, Any]:
    """What decides a run's numbers, beside the policy, and so what must be equal to go on in a folder.

    How many slots, which launcher, where the server is and what is filmed is not part of it.
    """
    return {
        "benchmark": plan.benchmark,
        "benchmark_arg": dict(settings.benchmark_arg),
        "tasks": [task.name for task in plan.tasks],
        "episodes": plan.episodes,
        "seed": plan.seed,
        "max_steps": settings.max_steps,
    }

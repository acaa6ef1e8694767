"""What a run is going to do: which episodes of which tasks, each with its seed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from sparring.env_worker.benchmark import Task


@dataclass(frozen=True, order=True)
class EpisodeId:
    """What makes an episode that episode; its seed and initial state follow from this and the run's seed.

    Of a plan with repeats it is a play of an episode: those of the first episode come first, then those of the next.
    """

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
        repeats: How often each is played, with another seed of the policy each time.
        seeds: Of benchmarks, or evaluations, that have another one than the run.
    """

    tasks: Mapping[str, Sequence[Task]]
    episodes: int
    seed: int
    only: frozenset[EpisodeId] | None = None
    repeats: int = 1
    seeds: Mapping[str, int] = field(default_factory=dict)

    @property
    def plays(self) -> int:
        """How often each task is played: its episodes, each as often as it is repeated."""
        return self.episodes * self.repeats

    def round_of(self, index: int) -> int:
        """Returns which of a task's episodes a play is of."""
        return index // self.repeats

    @property
    def count(self) -> int:
        """How many `ids` there are, without making them."""
        return self.plays * sum(map(len, self.tasks.values())) if self.only is None else len(self.ids())

    def ids(self) -> list[EpisodeId]:
        """Returns every play of every episode, task by task."""
        every = [
            EpisodeId(benchmark, task.name, index)
            for benchmark, tasks in self.tasks.items()
            for task in tasks
            for index in range(self.plays)
        ]
        return every if self.only is None else [episode for episode in every if episode in self.only]

    def seed_of(self, episode: EpisodeId) -> int:
        """Returns the seed by LeRobot's rule, so that numbers can be compared: episode k has the run's seed + k."""
        return self.seeds.get(episode.benchmark, self.seed) + self.round_of(episode.index)

    def policy_seed_of(self, episode: EpisodeId) -> int:
        """Returns the seed of the policy: the episode's own the first time, and others when it is played again."""
        seed, time = self.seed_of(episode), episode.index % self.repeats
        if time == 0:
            return seed
        return int.from_bytes(sha256(f"{seed} {time}".encode()).digest()[:8]) >> 1

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

"""What files are called that belong to episodes: films and recordings. No two episodes of a plan share a name."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from sparring.orchestrator.plan import EpisodeId, Plan
from sparring.orchestrator.results.row import EpisodeRow
from sparring.protos.record import Outcome

FILMED_LATER: Final = "films"
"""The folder of `sparring film`, in that of the run."""


class FileNames:
    """The names of a plan's files.

    Args:
        plan: Whose episodes.
    """

    def __init__(self, plan: Plan) -> None:
        labels = plan.labels()
        self._labels = {(benchmark, task.name): label for label, (benchmark, task) in labels.items()}
        self._names = unique_file_names(labels)
        groups = plan.groups()
        names = unique_file_names(groups)
        self._places = {
            label: f"{names[group]}_{labels[label][1].number}" for group, members in groups.items() for label in members
        }
        benchmarks = unique_file_names(plan.tasks)
        self._folders = {
            (benchmark, task): f"{benchmarks[benchmark]}/{name}"
            for benchmark, tasks in plan.tasks.items()
            for task, name in unique_file_names(task.name for task in tasks).items()
        }

    def film(self, episode: EpisodeId, outcome: Outcome, suffix: str = "mp4") -> str:
        """Returns the name of an episode's film."""
        label = self._labels.get((episode.benchmark, episode.task), "")
        name = self._names.get(label) or file_name(f"{episode.benchmark}/{episode.task}")
        return f"{name}_{episode.index:04d}_{outcome}.{suffix}"

    def films(self, row: EpisodeRow) -> list[str]:
        """Returns where an episode's film may be in the run's folder: made by the run, or by `sparring film`."""
        later = (f"{FILMED_LATER}/{self.film(row.id, row.outcome, kind)}" for kind in ("mp4", "gif"))
        return [*([row.video] if row.video else []), *later]

    def lerobots_film(self, episode: EpisodeId) -> str:
        """Returns where LeRobot would put an episode's film: a folder for each task of a group."""
        return f"{self._places[self._labels[episode.benchmark, episode.task]]}/eval_episode_{episode.index}.mp4"

    def recording(self, folder: Path, episode: EpisodeId) -> Path:
        """Returns where the recording of an episode is, in a folder of recordings."""
        return folder / self._folders[episode.benchmark, episode.task] / f"{episode.index:04d}.npz"


def unique_file_names(names: Iterable[str]) -> dict[str, str]:
    """Returns a file's name for each name, and no two alike: `a/b` is `a_b`, unless another one would be that, too."""
    made = {name: file_name(name) for name in names}
    count = Counter(made.values())
    return {name: safe if count[safe] == 1 or safe == name else f"{safe}-{_mark(name)}" for name, safe in made.items()}


def file_name(name: str) -> str:
    """Returns the name of a task, a group or a benchmark as one of a file or a folder: never of one further up."""
    safe = name.replace("/", "_").replace(":", "_")
    return safe if safe.strip(".") else "_" * max(1, len(safe))


def _mark(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]

"""The formats that episodes are exported in."""

from __future__ import annotations

import fnmatch
import importlib.util
import shutil
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sparring.orchestrator.export.lerobot_dataset import LeRobotDatasetWriter, fits, layout_of
from sparring.orchestrator.export.lerobot_files import write_json
from sparring.orchestrator.export.recorded import RecordedEpisode
from sparring.orchestrator.run.file_names import file_name
from sparring.protos.advice import Hint
from sparring.protos.errors import UsageError
from sparring.protos.installing import install_command
from sparring.protos.spec import TensorSpec

LEROBOTS_NAMES: Final = "observation.*"


@dataclass(frozen=True)
class ExportOptions:
    """What is to be in a data set.

    Attributes:
        observations: Patterns of their names; none: those with LeRobot's names.
        fps: Frames per simulated second; 0: as many as there are steps.
        success: Whether it is known of all episodes which succeeded.
        run: What is known of the run that they are of, for `sparring.json`.
        every: After how many steps there is something to see; 1: after each.
        as_recorded: Whether episodes come from recordings, which are as they are, and not from replays.
    """

    observations: Sequence[str] = ()
    fps: float = 0.0
    success: bool = True
    run: Mapping[str, Any] = field(default_factory=dict)
    every: int = 1
    as_recorded: bool = False


class ExportFormat(ABC):
    """Writes episodes, one after the other.

    Args:
        folder: An empty one.
        options: What is to be in there.
    """

    def __init__(self, folder: Path, options: ExportOptions) -> None:
        self.folder = folder
        self.options = options

    @classmethod  # noqa: B027  # most need nothing
    def check(cls, options: ExportOptions) -> None:
        """Checks, before anything is played, that what it needs is installed and that it can do what is wished.

        Args:
            options: What is wished.

        Raises:
            UsageError: If not, with what to do.
        """

    @abstractmethod
    def add(self, episode: RecordedEpisode) -> None:
        """Writes an episode.

        Raises:
            UsageError: If it cannot be in such a data set.
        """

    @abstractmethod
    def close(self) -> None:
        """Ends the data set, or leaves what there is of it."""

    @abstractmethod
    def finish(self) -> None:
        """Writes what belongs to all of them; there was at least one."""


class LeRobotFormat(ExportFormat):
    """A LeRobotDataset, version 3."""

    _writer: LeRobotDatasetWriter | None = None

    @classmethod
    def check(cls, options: ExportOptions) -> None:
        missing = [name for name in ("av", "pyarrow") if importlib.util.find_spec(name) is None]
        if missing:
            command = install_command("export") or f"pip install {' '.join(missing)}"
            raise UsageError(f"LeRobot's format needs {' and '.join(missing)}, not installed here: {command}")
        if options.every > 1:
            raise UsageError("LeRobot's format has every step: it has no place for actions between two frames.")

    def add(self, episode: RecordedEpisode) -> None:
        if self._writer is None:
            about, options = episode.about, self.options
            names = named(options.observations, episode.observations)
            layout = layout_of(episode, names, success=options.success)
            fps = options.fps or about.control_hz
            if fps <= 0:
                raise UsageError(
                    f"{about} does not say how many steps a second has; say it with {Hint('fps')}: a data set must."
                )
            self._writer = LeRobotDatasetWriter(
                self.folder, layout, fps=fps, robot_type=about.benchmark, run=options.run
            )
        self._writer.add(episode)

    def finish(self) -> None:
        assert self._writer is not None, "there was no episode"
        self._writer.finish()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


class NpzFormat(ExportFormat):
    """A compressed archive of plain arrays per episode, as `--record` writes them."""

    @classmethod
    def check(cls, options: ExportOptions) -> None:
        if options.fps:
            raise UsageError("an archive of plain arrays has no frames per second: that is for LeRobot's format.")
        if options.observations and options.as_recorded:
            raise UsageError(
                "recordings are copied as they are into archives: what is in them cannot be chosen. Export the output "
                "folder of their run instead: that plays the actions again, and looks at what is named."
            )

    def add(self, episode: RecordedEpisode) -> None:
        about = episode.about
        for name, separators in ((about.benchmark, "/\\\0"), (about.task, "\0")):  # tasks may have a /, as gym's do
            if name in ("", ".", "..") or any(separator in name for separator in separators):
                raise UsageError(
                    f"{str(episode.path)!r} says that it is of {str(about)!r}, and {name!r} cannot be the name of a "
                    "folder. Leave that file out."
                )
        inside = f"{file_name(about.benchmark)}/{file_name(about.task)}/{about.index:04d}.npz"
        place = self.folder / inside
        if place.exists():
            raise UsageError(f"two episodes would be in {inside!r}, one is {about}. Export their tasks apart.")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(episode.path, place)

    def finish(self) -> None:
        if self.options.run:
            write_json(self.folder / "sparring.json", {"format": 1, "run": self.options.run})

    def close(self) -> None:
        """Does nothing: nothing is open."""


FORMATS: Final[Mapping[str, type[ExportFormat]]] = {
    "lerobot": LeRobotFormat,
    "npz": NpzFormat,
}


def named(patterns: Sequence[str], offered: Mapping[str, TensorSpec]) -> list[str]:
    """Returns the observations that go into a data set.

    Args:
        patterns: Names, in which `*` and `?` stand for anything. None: those with LeRobot's names that it has a place
            for; if there is none of such a name, all that it has a place for.
        offered: What was recorded.
    """
    if patterns:
        found = dict.fromkeys(name for pattern in patterns for name in fnmatch.filter(offered, pattern) or [pattern])
        return list(found)
    ours = fnmatch.filter(offered, LEROBOTS_NAMES) or list(offered)
    return [name for name in ours if fits(offered[name])]

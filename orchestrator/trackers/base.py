"""What every tracker does: open a run, take numbers, a table and films, and close it."""

from __future__ import annotations

import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from sparring.protos.errors import CodeBroken, UsageError
from sparring.protos.installing import install_command

TableCell = str | int | float | None
"""Of a table."""


class TrackerBroken(CodeBroken):
    """The tracker's own code raised when it was imported or made."""

    whose = "tracker"


class TrackerSettings(BaseModel):
    """The settings of a tracker: each field is a key of `track_arg`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    films: int = Field(16, ge=0, description="the most films of failures that are handed over")
    """The most films of failures that are handed over."""


@dataclass(frozen=True)
class TrackedRun:
    """What a tracker is told of a run when it is opened.

    Attributes:
        title: A name for people.
        config: Settings and what else is known at the start; what is called a secret is left out.
        id: By which the tracker knew it in an earlier execution; empty: it is new.
        folder: The output folder of the run; None if no files are kept.
        axis: What numbers are drawn over: `step`, of a training, or `episodes`.
    """

    title: str
    config: Mapping[str, Any]
    id: str
    folder: Path | None
    axis: str


S = TypeVar("S", bound=TrackerSettings)


class Tracker(ABC, Generic[S]):
    """Writes what comes of a run where experiments are kept. Derive from this class for one of your own.

    It is made in the thread of whoever evaluates; everything else is called from one thread of ours, one call at a
    time: it may take its time, and whatever it raises ends the tracking with a warning, and never the run.

    Attributes:
        name: As given to `--track`.
        summary: What it is, in a few words.
        library: The module that it needs; empty: none.
        extra: Of Sparring's, which brings that.
        settings: The class of its settings.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    library: ClassVar[str] = ""
    extra: ClassVar[str] = ""
    settings: ClassVar[type[Any]] = TrackerSettings

    def __init__(self, own: S) -> None:
        self.own = own
        """Its settings."""

    @classmethod
    def lacking(cls) -> str:
        """Says what is not installed here, and how to get it; nothing, if it is there."""
        if not cls.library or importlib.util.find_spec(cls.library) is not None:
            return ""
        how = install_command(cls.extra) or f"pip install {cls.library}"
        return f"{cls.library} is not installed; install it: {how}"

    def check(self, folder: Path | None) -> None:
        """Says what is wrong before a run starts: nobody is logged in, a folder is missing.

        Args:
            folder: The output folder of the run; None if no files are kept.

        Raises:
            UsageError: If it could not be opened.
        """

    @abstractmethod
    def open(self, run: TrackedRun) -> str:
        """Begins a run, or goes on with one; returns the id by which it can be gone on with."""

    @abstractmethod
    def log(self, numbers: Mapping[str, float], at: int) -> None:
        """Takes numbers, by their names.

        Args:
            numbers: By names such as `eval/success_rate`.
            at: Where they are on the run's axis.
        """

    @abstractmethod
    def table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[TableCell]], at: int) -> None:
        """Takes a table."""

    @abstractmethod
    def film(self, name: str, path: Path, caption: str, at: int) -> None:
        """Takes a film, a file that stays where it is."""

    @abstractmethod
    def facts(self, facts: Mapping[str, Any], at: int) -> None:
        """Takes what is known of the run when it ends, beside what `config` had."""

    @abstractmethod
    def close(self, *, finished: bool) -> None:
        """Ends it; if the run has not finished, somebody may go on with it."""


def check_library(tracker: type[Tracker[Any]]) -> None:
    """Checks that what a tracker needs is installed.

    Raises:
        UsageError: If it is not, with the command that installs it.
    """
    if lacking := tracker.lacking():
        raise UsageError(f"the tracker {tracker.name!r} cannot be used: {lacking}")

"""Trackio: local files, or a Space of the Hugging Face hub. An open run of the program's own takes the numbers."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from sparring.orchestrator.trackers.base import TableCell, TrackedRun, Tracker, TrackerSettings


class TrackioSettings(TrackerSettings):
    """Says where in Trackio a run is kept."""

    project: str = Field("sparring", description="the project")
    run: str | None = Field(None, description="name of the run; one that there is already is gone on with")
    group: str | None = Field(None, description="that the run is in")
    space_id: str | None = Field(None, description="a Space of the hub to write to; local files, if left out")


class Trackio(Tracker[TrackioSettings]):
    """A run of Trackio."""

    name: ClassVar[str] = "trackio"
    summary: ClassVar[str] = "Trackio, in local files or a Space of the hub"
    library: ClassVar[str] = "trackio"
    extra: ClassVar[str] = "trackio"
    settings: ClassVar[type[TrackerSettings]] = TrackioSettings

    def __init__(self, own: TrackioSettings) -> None:
        super().__init__(own)
        # Asked now: which run is open is said of the thread that asks.
        context = sys.modules.get("trackio.context_vars")
        active = None if context is None else context.current_run.get()
        self._shared = active is not None and own.run in (None, active.name)
        """Whether the run is somebody else's, who goes on with it."""
        self._run: Any = active if self._shared else None

    def open(self, run: TrackedRun) -> str:
        import trackio

        if not self._shared:
            self._run = trackio.init(
                project=self.own.project,
                name=self.own.run or run.id or None,
                group=self.own.group,
                space_id=self.own.space_id,
                config={"title": run.title, **run.config},
                resume="allow",
                embed=False,
            )
        return str(self._run.name)

    def log(self, numbers: Mapping[str, float], at: int) -> None:
        self._run.log(dict(numbers), step=at)

    def table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[TableCell]], at: int) -> None:
        import trackio

        self._run.log({name: trackio.Table(columns=list(columns), data=[list(row) for row in rows])}, step=at)

    def film(self, name: str, path: Path, caption: str, at: int) -> None:
        import trackio

        self._run.log({name: trackio.Video(str(path), caption=caption)}, step=at)

    def facts(self, facts: Mapping[str, Any], at: int) -> None:
        import trackio

        # Its configuration is written with the first numbers, and not again.
        told = "\n".join(f"- {name}: `{value}`" for name, value in facts.items())
        self._run.log({"eval/facts": trackio.Markdown(told)}, step=at)

    def close(self, *, finished: bool) -> None:
        if not self._shared:
            self._run.finish()

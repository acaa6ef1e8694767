"""Weights & Biases. Where the program has a run of its own open, the numbers go into that."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

from pydantic import Field

from sparring.orchestrator.trackers.base import TableCell, TrackedRun, Tracker, TrackerSettings
from sparring.protos.errors import UsageError

_STEP: Final = "eval/step"
_EPISODES: Final = "progress/episodes"

_left_at: Final[dict[str, int]] = {}
"""At which of wandb's own steps an evaluation has left numbers in somebody else's run, by its id."""


class WandbSettings(TrackerSettings):
    """Says where in Weights & Biases a run is kept."""

    project: str = Field("sparring", description="the project")
    entity: str | None = Field(None, description="whose project; wandb's default if left out")
    name: str | None = Field(None, description="of the run; what is evaluated on what, if left out")
    group: str | None = Field(None, description="that the run is in")
    run: str | None = Field(None, description="id of a run to go on in, such as that of the training")
    mode: Literal["online", "offline"] | None = Field(None, description="WANDB_MODE or online, if left out")
    dir: Path | None = Field(None, description="folder of its files; WANDB_DIR or the current one, if left out")


class Wandb(Tracker[WandbSettings]):
    """A run of Weights & Biases."""

    name: ClassVar[str] = "wandb"
    summary: ClassVar[str] = "Weights & Biases, online or offline"
    library: ClassVar[str] = "wandb"
    extra: ClassVar[str] = "wandb"
    settings: ClassVar[type[TrackerSettings]] = WandbSettings

    def __init__(self, own: WandbSettings) -> None:
        super().__init__(own)
        active = getattr(sys.modules.get("wandb"), "run", None)
        self._shared = active is not None and own.run in (None, active.id)
        """Whether the run is somebody else's, who goes on with it."""
        self._run: Any = active if self._shared else None
        self._axis = _EPISODES

    def check(self, folder: Path | None) -> None:
        import wandb

        mode = self.own.mode or os.environ.get("WANDB_MODE") or "online"
        if not self._shared and mode == "online" and not wandb.api.api_key:
            raise UsageError(
                "wandb knows no API key here, and would ask for one: run `wandb login` first, or track offline with "
                "WANDB_MODE=offline in the environment."
            )

    def open(self, run: TrackedRun) -> str:
        import wandb

        own = self.own
        if not self._shared:
            self._run = wandb.init(
                project=own.project,
                entity=own.entity,
                name=own.name or run.title,
                group=own.group,
                id=own.run or run.id or None,
                resume="allow",
                reinit="create_new",
                job_type="evaluation",
                dir=own.dir,
                mode=own.mode,
                # The terminal is ours, and what is on it no part of the run.
                settings=wandb.Settings(silent=True, console="off"),
            )
        self._run.config.update({"sparring": dict(run.config)}, allow_val_change=True)
        if self._shared and _left_at.get(self._run.id) == self._run.step:
            self._run.log({}, commit=True)  # else these numbers would take the place of the last evaluation's
        self._axis = _STEP if run.axis == "step" else _EPISODES
        if not self._shared or run.axis == "step":
            self._run.define_metric("eval/*", step_metric=self._axis)
            self._run.define_metric("failures/*", step_metric=self._axis)
            self._run.define_metric("progress/*", step_metric=_EPISODES)
        return str(self._run.id)

    def log(self, numbers: Mapping[str, float], at: int) -> None:
        self._log(dict(numbers), at)

    def table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[TableCell]], at: int) -> None:
        import wandb

        self._log({name: wandb.Table(columns=list(columns), data=[list(row) for row in rows])}, at)

    def film(self, name: str, path: Path, caption: str, at: int) -> None:
        import wandb

        self._log({name: wandb.Video(str(path), caption=caption, format=path.suffix.removeprefix("."))}, at)

    def facts(self, facts: Mapping[str, Any], at: int) -> None:
        self._run.config.update({"sparring_results": dict(facts)}, allow_val_change=True)

    def close(self, *, finished: bool) -> None:
        if self._shared:
            _left_at[self._run.id] = self._run.step
        else:
            self._run.finish(exit_code=0 if finished else 1)

    def _log(self, values: dict[str, Any], at: int) -> None:
        # Into the row that the owner of a shared run is at: one of ours would move wandb's own step, and it refuses
        # numbers of steps before that.
        self._run.log({**values, self._axis: at}, commit=not self._shared)

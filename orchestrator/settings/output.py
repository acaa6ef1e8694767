"""Settings of the output: what is written, and where."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

from pydantic import Field, field_validator

from sparring.orchestrator.settings.group import Listed, SettingsGroup
from sparring.protos.comma_list import comma_list
from sparring.protos.record import Outcome

_FILMED: Final[Mapping[str, Sequence[Outcome]]] = {
    "none": (),
    "failures": ("failure",),
    "successes": ("success",),
    "all": ("failure", "success", "played"),
}


class OutputSettings(SettingsGroup):
    """What is written, and where."""

    video: Listed = Field(
        "none",
        description="films: none, failures, successes, all, first:N, or single episodes, TASK:INDEX, comma-separated; "
        "they are made by playing episodes again, when no outcome is waited for",
    )
    video_live: bool = Field(
        False, description="film while the policy plays, for simulators that cannot play an episode again"
    )
    video_fps: float = Field(20.0, gt=0, description="frames per simulated second in films")
    video_names: Literal["sparring", "lerobot"] = Field(
        "sparring", description="films are TASK_INDEX_OUTCOME.mp4, or LeRobot's GROUP_ID/eval_episode_INDEX.mp4"
    )
    record: Path | None = Field(
        None, description="folder for recordings: what the policy saw and did, a file per episode"
    )
    actions: bool = Field(
        True, description="keep the executed actions of each episode, some kilobytes, so that it can be played again"
    )
    folder: Path | None = Field(
        None, alias="output", description="folder of the results; the same folder resumes the same run"
    )

    @field_validator("video")
    @classmethod
    def _known_video(cls, video: str) -> str:
        if not re.fullmatch(r"none|failures|successes|all|first:\d+|[^,]+:\d+(,[^,]+:\d+)*", video):
            raise ValueError("must be none, failures, successes, all, first:N, or TASK:INDEX,...")
        return video

    def may_film(self, task: str, index: int, *, benchmark: str) -> bool:
        """Returns whether a film of an episode may be wanted, before its outcome is known."""
        outcomes: tuple[Outcome, ...] = ("success", "failure")
        return any(self.wants_film(task, index, outcome, benchmark=benchmark) for outcome in outcomes)

    def wants_film(self, task: str, index: int, outcome: Outcome, *, benchmark: str | None = None) -> bool:
        """Returns whether a film of an episode is wanted that has ended so. Of an error there is none.

        Args:
            task: Of the episode.
            index: Of the episode.
            outcome: Of the episode.
            benchmark: The label of the task's part of the run; None: any that has been asked for will do.
        """
        if outcome == "error":
            return False
        if self.video in _FILMED:
            return outcome in _FILMED[self.video]
        if self.video.startswith("first:"):
            return index < int(self.video.removeprefix("first:"))
        named, wanted = f"{task}:{index}", comma_list(self.video)
        if benchmark is None:
            return any(name == named or name.endswith(f"/{named}") for name in wanted)
        return named in wanted or f"{benchmark}/{named}" in wanted

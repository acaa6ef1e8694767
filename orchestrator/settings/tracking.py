"""Settings of trackers: where what comes of a run is written beside its folder."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from sparring.orchestrator.settings.group import Listed, SettingsGroup
from sparring.protos.advice import Hint
from sparring.protos.comma_list import comma_list


class TrackSettings(SettingsGroup):
    """Says who is told of the numbers while they come."""

    track: Listed = Field(
        "none",
        description="write settings, rates and films of failures to trackers of experiments, comma-separated: wandb, "
        "trackio, tensorboard, mlflow; see: sparring ls trackers",
    )
    track_step: int | None = Field(
        None,
        ge=0,
        description="the step of the training that the policy is of: what trackers draw the rates over",
    )
    track_arg: dict[str, Any] = Field(
        default_factory=dict, description="a setting of the trackers, KEY=VALUE; may be repeated"
    )

    @model_validator(mode="after")
    def _of_a_tracker(self) -> TrackSettings:
        if "track" in self.model_fields_set:  # an earlier execution may have had one, and this one none
            return self
        for name in ("track_step", "track_arg"):
            if getattr(self, name) not in (None, {}):
                raise ValueError(f"{Hint(name)} goes with {Hint('track')}")
        return self

    @property
    def trackers(self) -> list[str]:
        """Their names, each once."""
        return [name for name in dict.fromkeys(comma_list(self.track)) if name != "none"]

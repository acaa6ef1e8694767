"""When a run may stop before its plan is done."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field, field_validator, model_validator

from sparring.orchestrator.settings.group import SettingsGroup
from sparring.protos.advice import Hint

_HALF_WIDTH: Final = re.compile(r"half[-_]width=([0-9.eE+-]+)")


def _goal(value: Any) -> Any:
    """Reads a mapping, as a file may have it, as what a flag has."""
    if isinstance(value, Mapping) and len(value) == 1:
        return "=".join(map(str, next(iter(value.items()))))
    return value


class StopSettings(SettingsGroup):
    """Says when a run may stop early. It decides after whole rounds, one episode of every task, and says so."""

    until: Annotated[str | None, BeforeValidator(_goal)] = Field(
        None,
        description="stop when the success rate is known this well, half-width=0.05: within 5 points on either side, "
        "by an interval that holds whenever one looks; --episodes is the most that are played of each task",
    )
    against: Path | None = Field(
        None,
        description="folder of a finished run of the same tasks and seed: stop when a difference from it is seen, by a "
        "test on pairs that holds whenever one looks; --episodes is the most",
    )
    alpha: float = Field(
        0.05,
        gt=0,
        le=0.5,
        description="how likely --until may be wrong about the rate, or --against see a difference that is none",
    )
    futility: bool = Field(
        False,
        description="with --against: stop, too, when the rest of the plan is unlikely to show a difference "
        "(less than 5 of 100)",
    )

    @field_validator("until")
    @classmethod
    def _a_known_goal(cls, until: str | None) -> str | None:
        if until is not None and not 0 < _half_width(until) < 0.5:
            raise ValueError("must be half-width=H with H above 0 and below 0.5, such as half-width=0.05")
        return until

    @field_validator("against")
    @classmethod
    def _whole_path(cls, against: Path | None) -> Path | None:
        return None if against is None else against.absolute()  # who resumes may stand elsewhere

    @model_validator(mode="after")
    def _something_to_judge(self) -> StopSettings:
        if self.futility and self.against is None:
            raise ValueError(f"{Hint('futility')} goes with {Hint('against')}")
        if not self.is_asked and self.alpha != type(self).model_fields["alpha"].default:
            raise ValueError(f"{Hint('alpha')} goes with {Hint('until')} or {Hint('against')}")
        return self

    @property
    def is_asked(self) -> bool:
        """Whether the run may stop early."""
        return self.until is not None or self.against is not None

    @property
    def half_width(self) -> float | None:
        """How well the success rate is to be known; None: it does not matter."""
        return None if self.until is None else _half_width(self.until)


def _half_width(until: str) -> float:
    found = _HALF_WIDTH.fullmatch(until.strip())
    try:
        return float(found[1]) if found else 0.0
    except ValueError:
        return 0.0

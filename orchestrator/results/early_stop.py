"""What came of a rule by which a run may stop early: a part of run.json."""

from __future__ import annotations

from pathlib import PurePath
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

StopReason = Literal["half-width", "difference", "futility"]


class EarlyStop(BaseModel):
    """What a run that may stop early has seen, by whole rounds: one episode of every task."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    reason: StopReason | None = Field(
        default=None,
        description="why it has stopped: `half-width` (the rate is known well enough), `difference` or `futility`; "
        "null: it has not, or not yet",
    )
    rounds: int = Field(ge=0, description="whole rounds that were judged; a run that has stopped has these and no more")
    planned: int = Field(ge=1, description="rounds of the whole plan")
    alpha: float = Field(description="how likely the rule may be wrong, over all rounds together")
    half_width: float | None = Field(default=None, description="of --until; null: not asked for")
    interval: tuple[float, float] | None = Field(
        default=None, description="of the success rate, which holds whenever one looks; null: not asked for"
    )
    against: str | None = Field(default=None, description="folder of the run of --against; null: not asked for")
    against_id: str | None = Field(
        default=None, description="`id` of that run; null likewise, or it was made by a release that did not keep it"
    )
    won: float | None = Field(default=None, description="pairs that only this run did; null likewise")
    lost: float | None = Field(default=None, description="pairs that only the other did; null likewise")
    p_value: float | None = Field(
        default=None, description="that there is no difference, which holds whenever one looks; null likewise"
    )
    chance: float | None = Field(
        default=None,
        description="that the rest of the plan shows a difference, when that was last asked; null: it was not",
    )

    @property
    def stopped(self) -> bool:
        """Whether the run has stopped before its plan was done."""
        return self.reason is not None and self.rounds < self.planned

    @property
    def sentence(self) -> str:
        """What people are told of it."""
        if self.stopped:
            told = f"stopped early, after {self.rounds} of {self.planned} rounds: "
        elif self.rounds == self.planned:
            told = "not stopped early: "
        else:
            told = f"may stop early; after {self.rounds} of {self.planned} whole rounds: "
        return told + "; ".join(part for part in (self._of_the_rate(), self._of_the_difference()) if part)

    def _of_the_rate(self) -> str:
        if self.interval is None or self.half_width is None:
            return ""
        low, high = (100 * bound for bound in self.interval)
        goal = f"within {100 * self.half_width:g} points on either side"
        known = f"is known {goal}" if self.reason == "half-width" else f"is not known {goal}"
        sure = f"{100 * (1 - self.alpha):g} %"
        return f"the success rate {known}: {low:.1f} - {high:.1f}, which holds whenever one looks ({sure})"

    def _of_the_difference(self) -> str:
        if self.against is None or self.p_value is None:
            return ""
        other = PurePath(self.against).name
        p = "p < 0.001" if self.p_value < 0.001 else f"p = {self.p_value:.3f}"
        counted = f"{self.won:g} won, {self.lost:g} lost, {p}, which holds whenever one looks"
        if self.p_value <= self.alpha:
            return f"{'better' if (self.won or 0) > (self.lost or 0) else 'worse'} than {other} ({counted})"
        if self.reason == "futility":
            return (
                f"the rest of the plan is unlikely to show a difference from {other} "
                f"({counted}; chance {100 * (self.chance or 0.0):.0f} %)"
            )
        return f"no difference from {other} is seen ({counted})"

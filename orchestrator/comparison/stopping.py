"""Rules by which a run may stop early. Each hears of whole rounds in their order, and says when it has seen enough.

What they have seen is judged by what holds whenever one looks (sequential.py), so a run may stop at any round, for
either of them, or go on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from sparring.orchestrator.comparison.sequential import chance_of_decision, p_value, rate_interval
from sparring.orchestrator.comparison.shares import EpisodeKey, Share
from sparring.orchestrator.results.early_stop import EarlyStop, StopReason

UNLIKELY: Final = 0.05
"""A run is futile whose chance of a decision is below this."""
_LOOKS: Final = 20
"""How often in a plan the chance is asked for: it takes long to find."""

Round = Mapping[EpisodeKey, Share]
"""An episode of every task, and what came of each."""


class StopRule(Protocol):
    """Hears of rounds."""

    def heard(self, played: Round) -> StopReason | None:
        """Hears of the next round; returns why the run may stop after it, if it may."""

    def told(self, so_far: EarlyStop) -> EarlyStop:
        """Adds what it knows by now."""


class PreciseEnough:
    """Stops when the success rate is known well enough.

    Args:
        half_width: How far an interval may reach on either side, on average.
        alpha: How likely the interval may ever be wrong.
    """

    def __init__(self, half_width: float, alpha: float) -> None:
        self._half_width = half_width
        self._alpha = alpha
        self._successes, self._n = 0.0, 0

    def heard(self, played: Round) -> StopReason | None:
        """Counts a round; an episode that ended in an error counts on neither side."""
        judged = [share.success for share in played.values() if share.success is not None]
        self._successes += sum(judged)
        self._n += len(judged)
        low, high = self._interval()
        return "half-width" if (high - low) / 2 <= self._half_width else None

    def told(self, so_far: EarlyStop) -> EarlyStop:
        """Adds the interval."""
        return so_far.model_copy(update={"half_width": self._half_width, "interval": self._interval()})

    def _interval(self) -> tuple[float, float]:
        return rate_interval(self._successes, self._n, self._alpha)


class Different:
    """Stops when a difference from another run is seen, or none is to be expected any more.

    Args:
        other: What came of that run's episodes.
        name: What it is called.
        rounds: How many rounds can be held against it.
        alpha: How likely it may see a difference that is none.
        futility: Whether it stops where nothing is to be expected of the rest.
        id: What that run is known by.
    """

    def __init__(
        self,
        other: Mapping[EpisodeKey, Share],
        name: str,
        rounds: int,
        *,
        alpha: float,
        futility: bool,
        id: str | None = None,
    ) -> None:
        self._other = other
        self._name, self._id = name, id
        self._rounds = rounds
        self._alpha = alpha
        self._futility = futility
        self._heard = self._pairs = 0
        self._won = self._lost = 0.0
        self._p_value = 1.0
        self._chance: float | None = None

    def heard(self, played: Round) -> StopReason | None:
        """Counts the pairs of a round; one of which either ended in an error counts on neither side."""
        if self._heard < self._rounds:
            self._heard += 1
            pairs = [(self._other[episode].success, share.success) for episode, share in played.items()]
            differences = [second - first for first, second in pairs if first is not None and second is not None]
            self._pairs += len(differences)
            self._won += sum(difference for difference in differences if difference > 0)
            self._lost += sum(-difference for difference in differences if difference < 0)
            self._p_value = min(self._p_value, p_value(self._lost, self._won))
        if self._p_value <= self._alpha:
            return "difference"
        if self._futility and self._looks_now():
            remaining = (self._rounds - self._heard) * len(played)
            self._chance = chance_of_decision(self._lost, self._won, self._pairs, remaining, self._alpha)
            if self._chance < UNLIKELY:
                return "futility"
        return None

    def _looks_now(self) -> bool:
        """Returns whether the chance is asked for after this round: by its number, and not by how long things took."""
        return self._heard == self._rounds or self._heard % max(1, self._rounds // _LOOKS) == 0

    def told(self, so_far: EarlyStop) -> EarlyStop:
        """Adds the pairs, and what they come to."""
        return so_far.model_copy(
            update={
                "against": self._name,
                "against_id": self._id,
                "won": self._won,
                "lost": self._lost,
                "p_value": self._p_value,
                "chance": self._chance,
            }
        )


def judged(rules: Sequence[StopRule], played: Round) -> StopReason | None:
    """Lets every rule hear of a round; returns why the run may stop, by the first that says so."""
    reasons = [rule.heard(played) for rule in rules]
    return next((reason for reason in reasons if reason is not None), None)

"""The record of an episode: what came of it, from the slot that played it to the journal.

This is the one place where it is defined. A new column is a field here and a field of the same name in `Result`
(evaluation.proto); the wire, the journal and episodes.csv follow.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Final, Literal, get_args

from sparring.protos import evaluation_pb2 as pb
from sparring.protos.advice import shortened
from sparring.protos.messages import codecs

MAX_SENTENCE: Final = 20_000
"""Characters of what is said about an episode: an exception's text may be a whole array."""

Outcome = Literal["success", "failure", "error", "played"]
"""How an episode ended. `played`: by its end, in a simulator that does not say what success is."""

OUTCOMES: Final[Mapping[Outcome, pb.Outcome.ValueType]] = {
    outcome: pb.Outcome.Value(f"OUTCOME_{outcome.upper()}") for outcome in get_args(Outcome)
}
"""By name, as they are on the wire."""

ErrorKind = Literal["", "simulator", "policy", "action", "limit", "lost", "internal"]
"""What kind of error; evaluation.proto says what each means. Empty: none, or no more is known of it."""


@dataclass(kw_only=True)
class EpisodeRecord:
    """What came of an episode, and where its time went. It is filled step by step, and so not frozen.

    A field with a default may be missing in journals that were written before there was such a column.
    """

    outcome: Outcome
    reward_sum: float = 0.0
    """Of all steps."""
    reward_max: float = 0.0
    """Of one step."""
    steps: int = 0
    """Actions executed."""
    seconds: float = 0.0
    """From the lease's arrival to the result."""
    physics_s: float = 0.0
    """Seconds in simulator resets and steps, without rendering."""
    render_s: float = 0.0
    """Seconds of making images."""
    policy_s: float = 0.0
    """Seconds of queueing and inference in the policy server."""
    transport_s: float = 0.0
    """Seconds of waiting for the policy server, less the above."""
    renders: int = 0
    """Images made."""
    round_trips: int = 0
    """Observations sent to the policy."""
    error: str = ""
    """One sentence, if the outcome is an error."""
    out_of_range: int = 0
    """Of the actions executed, how many the policy had given outside the action space."""
    error_kind: ErrorKind = ""
    """If the outcome is an error."""
    metrics: dict[str, float] = field(default_factory=dict)
    """What the benchmark measured, by name, as it was at the end; finite numbers."""
    renderer: str = ""
    """What drew its images, as GL calls it; empty: nothing was drawn, or GL did not say."""

    @classmethod
    def failed(cls, kind: ErrorKind, sentence: str, *, seconds: float = 0.0) -> EpisodeRecord:
        """Returns the record of an episode that ended in an error."""
        return cls(outcome="error", error=shortened(sentence, MAX_SENTENCE), error_kind=kind, seconds=seconds)

    def to_message(self, lease: int) -> pb.Result:
        """Returns the message that goes over the wire.

        Args:
            lease: The number of the loan that this ends.
        """
        message = pb.Result(lease=lease)
        for name, (write, _) in _WIRE.items():
            write(message, getattr(self, name))
        return message

    @classmethod
    def from_message(cls, message: pb.Result) -> EpisodeRecord:
        """Reads a message from the wire. What nothing can be made of is a record of an error."""
        record = cls(**{name: read(message) for name, (_, read) in _WIRE.items()})
        if record.outcome not in get_args(Outcome):
            record.outcome = "error"
        if record.outcome != "error":
            record.error, record.error_kind = "", ""
        if not record._is_sound():
            seconds = message.seconds if math.isfinite(message.seconds) else 0.0
            return cls.failed("internal", "the worker sent a number that is not finite.", seconds=seconds)
        return record

    def _is_sound(self) -> bool:
        numbers = [getattr(self, f.name) for f in fields(EpisodeRecord)]
        return all(math.isfinite(n) for n in (*numbers, *self.metrics.values()) if isinstance(n, float))


_WIRE: Final = codecs(EpisodeRecord, pb.Result.DESCRIPTOR)

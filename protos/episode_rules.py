"""The rules that episodes are played by: what moves a score or its price, and is not the policy.

This is the one place where they are defined. A new rule is a field here and a field of the same name in `Rules`
(evaluation.proto); its flag, its YAML key and its way to the slot follow. `run_episode` keeps to it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal

from sparring.protos import evaluation_pb2 as pb
from sparring.protos.effect import Effect
from sparring.protos.messages import codecs

OutOfRange = Literal["pass", "clip", "error"]
"""An action outside the action space is executed as it is, moved to the nearest one inside, or an error."""

Observe = Literal["on-demand", "every-step"]
"""Observations are made where the policy looks, or at every step."""

Metric = Literal["success", "return"]
"""What a run is about: the rate of successes, or the mean sum of rewards, which every simulator has."""


def _rule(help: str, *, moves: Effect | None = None, least: int | None = None, zero: str = "") -> dict[str, Any]:
    """Describes a rule.

    Args:
        help: What it decides.
        moves: Which way, if episodes may end otherwise by another value.
        least: Bounds a number.
        zero: What 0 stands for, if it is no number of that kind.
    """
    said = f"{help}; 0: {zero}" if zero else help
    return {"help": said, "moves": moves is not None, "effect": moves, "least": least, "zero": zero}


@dataclass(frozen=True)
class EpisodeRules:
    """The rules by which episodes are played; the help of each field describes it."""

    max_steps: int = field(
        default=0,
        metadata=_rule(
            "end episodes after this many steps",
            moves=Effect(other="lower or the same with fewer (0: the benchmark's own limit)"),
            least=0,
            zero="the benchmark's own limit",
        ),
    )
    out_of_range: OutOfRange = field(
        default="pass",
        metadata=_rule(
            "an action outside the action space is executed as it is, clipped, or an error",
            moves=Effect(other="little where the simulator clips by itself; `error` takes episodes out of the rate"),
        ),
    )
    actions_per_look: int = field(
        default=0,
        metadata=_rule(
            "play at most so many actions of a chunk before the policy looks again",
            moves=Effect(
                other="higher with fewer, for mistakes are seen sooner; lower where a policy's chunks do not fit "
                "together (0: the whole chunk)"
            ),
            least=0,
            zero="all of them",
        ),
    )
    observe: Observe = field(
        default="on-demand",
        metadata=_rule("make observations where the policy looks, or at every step"),
    )
    metric: Metric = field(
        default="success",
        metadata=_rule(
            "what the table is about: success, or the return (sum of rewards), also of simulators that do not say what "
            "success is",
        ),
    )

    def that_move(self) -> dict[str, Any]:
        """Returns those that decide how episodes end, and so must be the same to go on with a run."""
        return {rule.name: getattr(self, rule.name) for rule in fields(self) if rule.metadata["moves"]}

    def to_message(self) -> pb.Rules:
        """Returns them as they go over the wire."""
        message = pb.Rules()
        for name, (write, _) in _WIRE.items():
            write(message, getattr(self, name))
        return message

    @classmethod
    def from_message(cls, message: pb.Rules) -> EpisodeRules:
        """Returns them as they came over the wire; what is not said is as by default."""
        values = {name: read(message) for name, (_, read) in _WIRE.items()}
        return cls(**{name: value for name, value in values.items() if value != ""})


_ZEROS: Final = {rule.name: rule.metadata["zero"] for rule in fields(EpisodeRules) if rule.metadata["zero"]}


def meaning(name: str, value: object) -> str:
    """Returns what a value of a rule stands for if it is not what it looks like, to be read after it; else nothing."""
    return f" ({_ZEROS[name]})" if value == 0 and name in _ZEROS else ""


_WIRE: Final = codecs(EpisodeRules, pb.Rules.DESCRIPTOR)

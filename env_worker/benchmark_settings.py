"""Settings of benchmarks: which values they take, and what is said of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import Field, field
from typing import Any, Final

from sparring.protos.effect import Effect

_SIDE: Final = Effect(other="lower, the further it is from what the policy was trained with; none where states decide")
_TIME: Final = Effect(
    more="higher or the same: slow successes are not cut off", less="lower or the same: slow successes are cut off"
)


def setting(
    default: Any,
    *,
    least: float | None = None,
    most: float | None = None,
    choices: Sequence[Any] = (),
    only_seen: bool = False,
    what: str = "",
    effect: Effect | None = None,
    in_protocol: bool = True,
) -> Any:
    """Returns a field of a benchmark's settings that says which values it takes: a run with others is refused.

    Args:
        default: If it is not given.
        least: The smallest value.
        most: The largest.
        choices: The only values, where they can be listed.
        only_seen: Whether it changes what is seen and nothing else: the same actions come to the same end.
        what: It decides, in words for `sparring protocol show`.
        effect: Which way it usually moves a score.
        in_protocol: Whether it can move a score, so that it is a rule of protocols.
    """
    metadata = {"least": least, "most": most, "choices": tuple(choices), "only_seen": only_seen}
    return field(default=default, metadata={**metadata, "what": what, "effect": effect, "in_protocol": in_protocol})


def image_side(default: int, what: str) -> Any:
    """Returns the setting of a side of what is rendered, in pixels."""
    return setting(default, least=16, most=4096, only_seen=True, what=what, effect=_SIDE)


def step_limit(default: int, what: str) -> Any:
    """Returns the setting of the steps that an episode has at most."""
    return setting(default, least=1, most=100_000, what=what, effect=_TIME)


def not_taken(of: Field[Any], value: Any) -> str:
    """Returns what a setting must be, if it takes no such value; empty if it does."""
    least, most, choices = (of.metadata.get(name) for name in ("least", "most", "choices"))
    if choices and value not in choices:
        return " or ".join(map(str, choices))
    # A value that is not a number is in no range.
    if (least is not None and not value >= least) or (most is not None and not value <= most):
        return f"{least:g} to {most:g}" if most is not None and least is not None else _one_sided(least, most)
    return ""


def _one_sided(least: float | None, most: float | None) -> str:
    return f"at least {least:g}" if least is not None else f"at most {most:g}"

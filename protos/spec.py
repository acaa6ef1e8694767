"""What a benchmark offers and what a policy needs, and whether the two fit together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from sparring.protos import policy_pb2 as pb
from sparring.protos.advice import Hint, together
from sparring.protos.errors import SparringError
from sparring.protos.limits import MAX_ACTION_DIM, MAX_HISTORY, MAX_NAME, MAX_OBSERVATIONS
from sparring.protos.tensor import MAX_AXES, MAX_TENSOR_BYTES, dtype_code, dtype_of


class SpecMismatch(SparringError):
    """A policy and a benchmark that do not fit together; the message shows both sides as a table."""


@dataclass(frozen=True)
class TensorSpec:
    """Type and shape of one named tensor. In a need, None means "whatever is offered"."""

    dtype: str | None = None
    """Of its numbers, as numpy calls it: `float32`."""
    shape: tuple[int, ...] | None = None
    """-1 stands for any length of that axis."""

    def __post_init__(self) -> None:
        if self.dtype is not None:
            object.__setattr__(self, "dtype", dtype_of(dtype_code(self.dtype)).name)
        if self.shape is not None:
            object.__setattr__(self, "shape", tuple(int(n) for n in self.shape))

    def __str__(self) -> str:
        shape = "any shape" if self.shape is None else str(self.shape).replace("-1", "any")
        return f"{self.dtype or 'any type'} {shape}"

    @property
    def definite(self) -> bool:
        """Whether nothing is left open."""
        return self.dtype is not None and self.shape is not None and all(n >= 0 for n in self.shape)

    def accepts(self, offered: TensorSpec) -> bool:
        """Returns whether an offered tensor is what is needed here."""
        if self.dtype is not None and self.dtype != offered.dtype:
            return False
        if self.shape is None:
            return True
        if offered.shape is None or len(offered.shape) != len(self.shape):
            return False
        return all(need in (-1, have) for need, have in zip(self.shape, offered.shape, strict=True))


@dataclass(frozen=True)
class Offer:
    """What a simulator can show and can be told to do.

    Attributes:
        observations: Type and shape of everything that it can show, by name.
        action_low: The least of each number of an action.
        action_high: The greatest.
        control_hz: Actions per simulated second; 0: that is not known.
    """

    observations: Mapping[str, TensorSpec]
    action_low: tuple[float, ...]
    action_high: tuple[float, ...]
    control_hz: float = 0.0
    control: str = ""
    """What the numbers of an action mean, where a benchmark says so: `relative` or `absolute`."""

    @property
    def action_dim(self) -> int:
        """Size of one action."""
        return len(self.action_low)

    def to_message(self) -> pb.Offer:
        """Returns its form in a Hello."""
        return pb.Offer(
            observations=_spec_messages(self.observations),
            action_low=self.action_low,
            action_high=self.action_high,
            control_hz=self.control_hz,
            control=self.control,
        )

    @classmethod
    def from_message(cls, message: pb.Offer) -> Offer:
        """Reads an offer from a Hello.

        Raises:
            SpecMismatch: If it is none, or beyond the bounds of the contract.
        """
        _check_bounds(message)
        if len(message.action_low) != len(message.action_high):
            raise SpecMismatch(
                f"the offer has {len(message.action_low)} lower and {len(message.action_high)} upper action bounds."
            )
        observations = _specs(message.observations)
        for name, spec in observations.items():
            if not spec.definite:
                raise SpecMismatch(f"{name!r} is offered as {spec}; an offer must say type and shape.")
        return cls(
            observations=observations,
            action_low=tuple(message.action_low),
            action_high=tuple(message.action_high),
            control_hz=message.control_hz,
            control=message.control,
        )


@dataclass(frozen=True)
class PolicySpec:
    """What a policy looks at and answers with.

    Attributes:
        observations: What it looks at. A name alone (or a spec without type or shape) takes what is offered.
        action_dim: Size of one action; None takes what the benchmark takes.
        chunk_length: The most actions in one answer; they are played without looking.
        history: How many of the last steps it looks at; with more than one, tensors have a leading axis of that length.
        control: What its actions mean, `relative` or `absolute`, where a benchmark says what it takes; empty: not said.
        own_names: For a policy whose observations can be renamed: what it calls each of them itself.
        made_for: Of observations that it takes in any shape: what it was trained on, to warn of anything else.
    """

    observations: Mapping[str, TensorSpec] | Sequence[str] = field(default_factory=dict)
    action_dim: int | None = None
    chunk_length: int = 1
    history: int = 1
    control: str = ""
    own_names: Mapping[str, str] | None = field(default=None, compare=False)
    made_for: Mapping[str, TensorSpec] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.observations, Mapping):
            if isinstance(self.observations, str):
                raise SparringError(f"observations must be a list of names, not the text {self.observations!r}.")
            object.__setattr__(self, "observations", {name: TensorSpec() for name in self.observations})
        for name, value, least in (("chunk_length", self.chunk_length, 1), ("history", self.history, 1)):
            if not isinstance(value, int) or value < least:
                raise SparringError(f"a policy's {name} must be a whole number of at least {least}, not {value!r}.")
        if self.action_dim is not None and (not isinstance(self.action_dim, int) or self.action_dim < 1):
            raise SparringError(
                f"a policy's action_dim must be a whole number of at least 1 or None, not {self.action_dim!r}."
            )

    @property
    def named(self) -> Mapping[str, TensorSpec]:
        """The observations as a mapping, which they always are after construction."""
        assert isinstance(self.observations, Mapping)
        return self.observations

    def to_message(self) -> pb.Needs:
        """Returns its form in a Welcome."""
        return pb.Needs(
            observations=_spec_messages(self.named),
            history=self.history,
            action_dim=self.action_dim or 0,
            chunk_length=self.chunk_length,
            control=self.control,
        )

    @classmethod
    def from_message(cls, message: pb.Needs) -> PolicySpec:
        """Reads a spec from a Welcome."""
        return cls(
            observations=_specs(message.observations),
            action_dim=message.action_dim or None,
            chunk_length=message.chunk_length,
            history=message.history,
            control=message.control,
        )

    def settle(self, offer: Offer) -> PolicySpec:
        """Returns the same needs with every open type, shape and size filled in from what is offered.

        Raises:
            SpecMismatch: If something needed is not offered, with both sides as a table.
        """
        rows: list[tuple[str, str, str, str]] = []
        settled: dict[str, TensorSpec] = {}
        for name, need in self.named.items():
            have = offer.observations.get(name)
            if have is None:
                rows.append((name, str(need), "-", "not offered"))
            elif not have.definite:
                rows.append((name, str(need), str(have), "not definite"))
            elif not need.accepts(have):
                rows.append((name, str(need), str(have), "differs"))
            else:
                rows.append((name, str(need), str(have), ""))
                settled[name] = have
        needs_action = "any size" if self.action_dim is None else f"{self.action_dim}"
        action_differs = self.action_dim not in (None, offer.action_dim)
        rows.append(("action", needs_action, str(offer.action_dim), "differs" if action_differs else ""))
        if self.control:
            # A pose that is taken for a change of pose fits in every size, and is a silent 0 %.
            verdict = "" if self.control == offer.control else "differs" if offer.control else "not offered"
            rows.append(("control", self.control, offer.control or "-", verdict))
        if any(row[3] for row in rows):
            unused = sorted(set(offer.observations) - set(self.named))
            rows += [(name, "-", str(offer.observations[name]), "") for name in unused]
            advice = self._advice(offer, unused)
            # In front of the table, which may be cut when it is too long for the wire.
            raise SpecMismatch(f"the policy and the benchmark do not fit together{advice}:\n{_table(rows)}")
        return replace(self, observations=settled, action_dim=offer.action_dim)

    def _advice(self, offer: Offer, unused: Sequence[str]) -> str:
        """Returns settings that would or might make the two fit, as the end of a sentence."""
        hints: list[Hint] = []
        free = list(unused)
        for name, need in self.named.items():
            have = offer.observations.get(name)
            if have is None and self.own_names is not None:
                name_there = _nearest(need, free, offer)
                if name_there is None:
                    continue
                free.remove(name_there)
                hints.append(Hint("rename", self.own_names.get(name, name), name_there))
                have = offer.observations[name_there]
            if have is not None and _is_image(need) and _is_image(have) and not need.accepts(have):
                assert need.shape is not None
                height, width, _ = need.shape
                if height == width and _is_square(have):
                    hints.append(Hint("benchmark_arg", "resolution", height))
        advice = ""
        if self.control and offer.control and self.control != offer.control:
            hint = Hint("benchmark_arg", "control", self.control)
            # Who takes movements can be told to take poses; of who takes poses, some cannot be told.
            where = ", if the benchmark has that setting" if self.control == "relative" else ""
            advice += f"; its actions are {self.control}, so give {hint}{where}"
        return f"{advice}; if they mean the same, try {together(hints)}" if hints else advice

    def warnings(self, offer: Offer) -> list[str]:
        """Returns sentences on what is offered, and taken, but is not what the policy was made for."""
        sentences = []
        for name, made_for in self.made_for.items():
            have = offer.observations.get(name)
            if have is None or have.shape is None or made_for.shape is None or made_for.accepts(have):
                continue
            wanted, shown = ("×".join(str(n) for n in spec.shape[:2]) for spec in (made_for, have) if spec.shape)
            sentence = (
                f"the policy was trained on images of {wanted} as {name!r} and is shown {shown}. If it does not resize "
                "them by itself, that alone can make it fail"
            )
            side, width, *_ = made_for.shape
            if side == width and _is_square(have):
                sentence += f"; {Hint('benchmark_arg', 'resolution', side)} shows it what it knows"
            sentences.append(f"{sentence}.")
        return sentences

    def batched_shape(self, name: str) -> tuple[int, ...]:
        """Returns the shape of a settled observation as it is sent: with the history axis, if there is one."""
        shape = self.named[name].shape
        assert shape is not None
        return (self.history, *shape) if self.history > 1 else shape


def check_settled(needs: PolicySpec, offer: Offer) -> None:
    """Checks that needs which a server calls settled are: of what was offered, as it was offered, for its actions.

    Raises:
        SpecMismatch: If not, with both sides.
    """
    for name, spec in needs.named.items():
        have = offer.observations.get(name)
        if have != spec:
            raise SpecMismatch(
                f"it asks for {name!r} as {spec}, which is offered {f'as {have}' if have else 'not at all'}."
            )
        if needs.history * math.prod(have.shape or ()) > MAX_TENSOR_BYTES:
            raise SpecMismatch(f"it asks for the last {needs.history} of {name!r}, {have}: more than a message holds.")
    if needs.history > MAX_HISTORY:
        raise SpecMismatch(f"it asks for the last {needs.history} steps; at most {MAX_HISTORY} are kept.")
    if needs.action_dim != offer.action_dim:
        raise SpecMismatch(
            f"its actions have {needs.action_dim or 'no'} dimensions, the action space has {offer.action_dim}."
        )


def _is_image(spec: TensorSpec) -> bool:
    return spec.dtype == "uint8" and spec.shape is not None and len(spec.shape) == 3 and spec.shape[2] in (1, 3)


def _is_square(spec: TensorSpec) -> bool:
    """Returns whether an image is as high as wide: of others, no single number says the resolution."""
    return spec.shape is not None and len(spec.shape) > 1 and spec.shape[0] == spec.shape[1]


def _nearest(need: TensorSpec, names: Sequence[str], offer: Offer) -> str | None:
    """Returns what is offered under another name and would do: of the right shape, or at least an image as well."""
    fitting = [name for name in names if need.accepts(offer.observations[name])]
    images = [name for name in names if _is_image(need) and _is_image(offer.observations[name])]
    # Names of LeRobot's layout first: images under other names may hang upside down.
    return min(fitting or images, key=lambda name: not name.startswith("observation."), default=None)


def _table(rows: list[tuple[str, str, str, str]]) -> str:
    header = ("", "policy needs", "benchmark offers", "")
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(4)]
    return "\n".join(
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in [header, *rows]
    )


def _check_bounds(message: pb.Offer) -> None:
    """Checks how much is offered, before any of it is read: what follows takes its time for each thing offered."""
    for what, count, most in (
        ("observations", len(message.observations), MAX_OBSERVATIONS),
        ("lower action bounds", len(message.action_low), MAX_ACTION_DIM),
        ("upper action bounds", len(message.action_high), MAX_ACTION_DIM),
        ("characters in the name of its control", len(message.control), MAX_NAME),
    ):
        if count > most:
            raise SpecMismatch(f"the offer has {count} {what}; at most {most} are allowed.")
    for spec in message.observations:
        if len(spec.name) > MAX_NAME:
            start = f"{spec.name[:32]}..."
            raise SpecMismatch(
                f"the observation {start!r} has a name of {len(spec.name)} characters; at most {MAX_NAME} are allowed."
            )
        if len(spec.shape) > MAX_AXES:
            raise SpecMismatch(f"{spec.name!r} is offered with {len(spec.shape)} axes; at most {MAX_AXES} are allowed.")
        if math.prod(length for length in spec.shape if length > 0) > MAX_TENSOR_BYTES:
            raise SpecMismatch(
                f"{spec.name!r} is offered with the shape {tuple(spec.shape)}; no observation has more than "
                f"{MAX_TENSOR_BYTES} bytes."
            )


def _spec_messages(specs: Mapping[str, TensorSpec]) -> list[pb.TensorSpec]:
    return [
        pb.TensorSpec(
            name=name,
            dtype=pb.DTYPE_UNSPECIFIED if spec.dtype is None else dtype_code(spec.dtype),  # type: ignore[arg-type]
            shape=spec.shape or (),
            any_shape=spec.shape is None,
        )
        for name, spec in specs.items()
    ]


def _specs(messages: Any) -> dict[str, TensorSpec]:
    return {
        m.name: TensorSpec(
            dtype=None if m.dtype == pb.DTYPE_UNSPECIFIED else dtype_of(m.dtype).name,
            shape=None if m.any_shape else tuple(m.shape),
        )
        for m in messages
    }


def spec_of(array: Any) -> TensorSpec:
    """Returns the spec of an array as it is."""
    array = np.asarray(array)
    return TensorSpec(dtype=array.dtype.name, shape=array.shape)

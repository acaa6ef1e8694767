"""What is called what on the two sides of a bridge: a benchmark's observations and a foreign policy's, and its actions.

The wires of other projects carry names and arrays, and do not say what they mean. A layout says it, in full: it is
shown before a run, and saved with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

import numpy as np

from sparring.policy_server.bridges.rotations import axis_angle, axis_angles_of_six, shorter_axis_angle, six_numbers
from sparring.protos.errors import UsageError, unknown
from sparring.protos.spec import PolicySpec
from sparring.protos.tensor import Array

GRIPPERS: Final[Mapping[str, str]] = {
    "as-given": "the last number of an action, its gripper, is played as it comes",
    "sign": "the last number of an action, its gripper, is played as its sign",
    "zero-one-inverted": "the last number of an action, its gripper, is 0 to 1 with 1 for open, and played as 1 to -1",
    "zero-one": "the last number of an action, its gripper, is played as 1 if it is above 0.5, else as -1",
}
"""What may be done with the last number of an action."""
ROTATIONS: Final[Mapping[str, str]] = {
    "as-given": "",
    "six-numbers": "numbers 4 to 9 of an action are two columns of a rotation's matrix, and played as its axis-angle",
}
"""What may be done with the rotation in an action."""
_CONVERSIONS: Final[Mapping[str, Callable[[Array], Array]]] = {
    "": lambda read: read,
    "axis-angle": axis_angle,
    "shorter-axis-angle": shorter_axis_angle,
    "six-numbers": six_numbers,
}
_ZEROS: Final = "zeros"
"""A part of a state that is none of the benchmark's: zeros[0:3] are three of them."""

STATE: Final = "observation.state"
"""What checkpoints of LeRobot's layout call the state."""
_PART: Final = re.compile(r"(?P<name>[^:\[\]]+)(:(?P<conversion>[a-z-]+))?(\[(?P<first>\d+)(:(?P<last>\d+))?\])?")


@dataclass(frozen=True)
class BridgeLayout:
    """How a foreign policy is shown a benchmark, and how its answers are played.

    Attributes:
        images: What the benchmark calls each image, by the policy's name for it.
        side: Pixels of each side that images are scaled to, with black bars where they are not square; 0: not at all.
        states: The parts of each state, by the policy's name for it. A part is an observation of the benchmark,
            `:axis-angle` after it turns a quaternion (x, y, z, w) into one, `:shorter-axis-angle` a quaternion or a
            rotation's matrix into one of at most pi, `:six-numbers` takes two columns of a matrix, `[2]` and `[0:3]`
            take some of its numbers; `zeros[0:3]` are zeros.
        dtype: Of states.
        instruction: The policy's name for the sentence; empty: it is not sent, for its server has one of its own.
        gripper: What is done with the last number of an action: one of `GRIPPERS`.
        actions: Names of the parts of an action, in order, where an answer has one array for each; else nothing.
        play: The most actions of an answer that are played before it looks again.
        rotation: What is done with the rotation in an action: one of `ROTATIONS`.
        control: What actions mean where a benchmark takes both, `relative` or `absolute`; empty: it need not be said.
        constants: What is sent with every observation, as it is, where a wire has a place for it.
        channels: Where images have their colours: `last`, as the benchmarks, or `first`.
        nested: Whether `a/b`, as a name, is `b` in the map `a`, where a wire can have maps in maps.
    """

    images: Mapping[str, str] = field(default_factory=dict)
    side: int = 0
    states: Mapping[str, Sequence[str]] = field(default_factory=dict)
    dtype: str = "float64"
    instruction: str = "prompt"
    gripper: str = "as-given"
    actions: Sequence[str] = ()
    play: int = 1
    rotation: str = "as-given"
    control: str = ""
    constants: Mapping[str, Any] = field(default_factory=dict)
    channels: str = "last"
    nested: bool = False

    def __post_init__(self) -> None:
        for parts in self.states.values():
            for part in parts:
                _Part.parse(part)
        if self.gripper not in GRIPPERS:
            raise unknown("gripper", self.gripper, GRIPPERS)
        if self.rotation not in ROTATIONS:
            raise unknown("rotation", self.rotation, ROTATIONS)
        if self.control not in ("", "relative", "absolute"):
            raise unknown("control", self.control, ("relative", "absolute"))
        if self.dtype not in ("float32", "float64"):
            raise unknown("type of states", self.dtype, ("float32", "float64"))
        if self.channels not in ("last", "first"):
            raise unknown("place of channels", self.channels, ("last", "first"))
        if not isinstance(self.nested, bool):
            raise UsageError(f"nested must be true or false, not {self.nested!r}.")
        names = {*self.images, *self.states, *self.sentence(""), *self.constants}
        if self.nested and (both := names & {name.partition("/")[0] for name in names if "/" in name}):
            raise UsageError(f"{both.pop()!r} cannot be a map and something else: give one of them another name.")
        for name, value, least in (("side", self.side, 0), ("play", self.play, 1)):
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise UsageError(f"{name} must be a whole number of at least {least}, not {value!r}.")

    def changed(self, given: Mapping[str, Any], *, others: Iterable[str] = ()) -> BridgeLayout:
        """Returns it with what a user gave instead.

        Args:
            given: By the names of its attributes.
            others: What else may be given to a policy, for who has mistyped it.

        Raises:
            UsageError: If that is not of a layout.
        """
        names = [f.name for f in fields(self)]
        for name in given:
            if name not in names:
                raise unknown("argument of the policy:", name, [*names, "preset", *others])
        for name in ("images", "states", "constants"):
            if name in given and not isinstance(given[name], Mapping):
                others = "values" if name == "constants" else "the benchmark's"
                raise UsageError(f"{name} must map the policy's names to {others}, not {given[name]!r}.")
        states = {k: [v] if isinstance(v, str) else list(v) for k, v in given.get("states", self.states).items()}
        sentence = given.get("instruction", self.instruction)
        if sentence is not None and not isinstance(sentence, str):
            raise UsageError(f"instruction must be the policy's name for the sentence, not {sentence!r}.")
        # What is empty on a command line is read as nothing.
        return replace(self, **{**given, "states": states, "instruction": sentence or ""})

    def __str__(self) -> str:
        scaling = f" at {self.side}×{self.side}" if self.side else ""
        scaling += ", channels first" if self.channels == "first" else ""
        images = [f"{name} = {ours}{scaling}" for name, ours in self.images.items()]
        states = [f"{name} = {' + '.join(parts)} as {self.dtype}" for name, parts in self.states.items()]
        played = "1 action is" if self.play == 1 else f"up to {self.play} actions are"
        constants = [f"{name} = {value!r}" for name, value in self.constants.items()]
        sentence = f"{self.instruction} = the sentence" if self.instruction else "no sentence"
        shown = ", ".join([*images, *states, sentence, *constants])
        shown += " (a/b is b in the map a)" if self.nested else ""
        meant = [f"actions are {self.control}"] if self.control else []
        meant += [GRIPPERS[self.gripper], *filter(None, [ROTATIONS[self.rotation]])]
        return f"{shown}; {played} played before it looks again; {'; '.join(meant)}"

    @property
    def spec(self) -> PolicySpec:
        """What the benchmark must offer."""
        parts = [_Part.parse(part).name for parts in self.states.values() for part in parts]
        names = [*self.images.values(), *(part for part in parts if part != _ZEROS)]
        return PolicySpec(observations=list(dict.fromkeys(names)), chunk_length=self.play, control=self.control)

    def shown(self, observation: Mapping[str, Array]) -> dict[str, Array]:
        """Returns an observation of the benchmark's as the policy knows it, without the sentence."""
        found: dict[str, Array] = {}
        for name, ours in self.images.items():
            found[name] = self.placed(scaled(np.ascontiguousarray(observation[ours]), self.side))
        for name, parts in self.states.items():
            read = [_Part.parse(part).of(observation) for part in parts]
            found[name] = np.concatenate(read).astype(self.dtype)
        return found

    def placed(self, image: Array) -> Array:
        """Returns an image with its channels where the policy wants them."""
        return np.moveaxis(image, -1, 0) if self.channels == "first" else image

    def sentence(self, said: str) -> dict[str, str]:
        """Returns the sentence by the policy's name for it; nothing, if it is not sent."""
        return {self.instruction: said} if self.instruction else {}

    def folded(self, shown: Mapping[str, Any]) -> dict[str, Any]:
        """Returns what is shown with maps in it, if names are of such."""
        if not self.nested:
            return dict(shown)
        found: dict[str, Any] = {}
        for name, value in shown.items():
            outer, slash, inner = name.partition("/")
            if slash:
                found.setdefault(outer, {})[inner] = value
            else:
                found[name] = value
        return found

    def unfolded(self, shown: Mapping[str, Any]) -> dict[str, Any]:
        """Returns what a foreign client shows without maps in it: the way back of `folded`."""
        if not self.nested:
            return dict(shown)
        maps = {outer: value for outer, value in shown.items() if isinstance(value, dict)}
        inner = {f"{outer}/{name}": value for outer, found in maps.items() for name, value in found.items()}
        return {**{name: value for name, value in shown.items() if name not in maps}, **inner}

    def understood(self, shown: Mapping[str, Any]) -> dict[str, Array]:
        """Returns what a foreign client shows, by the names of LeRobot's layout: the way back of `shown`.

        Images stay as they were scaled, and there is one state, of all parts.
        """
        found = {ours: np.asarray(shown[name]) for name, ours in self.images.items() if name in shown}
        if self.channels == "first":
            found = {name: np.moveaxis(image, 0, -1) if image.ndim == 3 else image for name, image in found.items()}
        parts = [np.ravel(np.asarray(shown[name])) for name in self.states if name in shown]
        if parts:
            found[STATE] = np.concatenate(parts)
        return found

    def given_back(self, actions: Array) -> Array:
        """Returns a chunk of ours as a foreign client expects it: the way back of `played`."""
        if self.gripper != "zero-one-inverted":
            return actions
        return np.concatenate([actions[:, :-1], (1.0 - actions[:, -1:]) / 2.0], axis=1).astype(actions.dtype)

    def played(self, actions: Any) -> Array:
        """Returns an answer as a chunk for the benchmark, cut to what is played of it.

        Raises:
            ValueError: If it is not one action, or one after the other, of numbers.
        """
        chunk = np.atleast_2d(np.asarray(actions, dtype=np.float64 if np.asarray(actions).dtype.kind != "f" else None))
        if chunk.ndim != 2 or not chunk.size:
            raise ValueError(f"actions of the shape {chunk.shape}")
        chunk = chunk[: self.play]
        if self.rotation == "six-numbers":
            if chunk.shape[1] < _POSE_OF_SIX:
                raise ValueError(f"actions of {chunk.shape[1]} numbers, where a pose of {_POSE_OF_SIX} was due")
            turned = axis_angles_of_six(chunk[:, 3:9]).astype(chunk.dtype)
            chunk = np.concatenate([chunk[:, :3], turned, chunk[:, 9:_POSE_OF_SIX]], axis=1)
        if self.gripper == "as-given":
            return chunk
        signs = _SIGNS[self.gripper](chunk[:, -1])
        return np.concatenate([chunk[:, :-1], signs[:, None].astype(chunk.dtype)], axis=1)


_POSE_OF_SIX: Final = 10
"""Numbers of an action: a position, two columns of a matrix, a gripper. What comes after them is another arm's."""
# As the other side's own loops have it: zero is closed by the one, and nothing at all by the other.
_SIGNS: Final[Mapping[str, Callable[[Array], Array]]] = {
    "sign": lambda last: np.where(last < 0, -1.0, 1.0),
    "zero-one-inverted": lambda last: -np.sign(2.0 * last - 1.0),
    "zero-one": lambda last: np.where(last > 0.5, 1.0, -1.0),
}


@dataclass(frozen=True)
class _Part:
    name: str
    conversion: str
    numbers: slice

    @classmethod
    def parse(cls, text: Any) -> _Part:
        found = _PART.fullmatch(text) if isinstance(text, str) else None
        if found is None:
            raise UsageError(f"{text!r} is no part of a state: give NAME, NAME:axis-angle or either with [2] or [0:3].")
        conversion = found["conversion"] or ""
        if conversion not in _CONVERSIONS:
            raise unknown("conversion of a state:", conversion, [name for name in _CONVERSIONS if name])
        if found["name"] == _ZEROS and found["last"] is None:
            raise UsageError(f"{text!r} does not say how many zeros: give {_ZEROS}[0:3] for three.")
        numbers = slice(None)
        if found["first"] is not None:
            first = int(found["first"])
            numbers = slice(first, int(found["last"]) if found["last"] else first + 1)
        return cls(found["name"], conversion, numbers)

    def of(self, observation: Mapping[str, Array]) -> Array:
        if self.name == _ZEROS:
            return np.zeros(self.numbers.stop - self.numbers.start)
        return _CONVERSIONS[self.conversion](np.ravel(observation[self.name]))[self.numbers]


def scaled(image: Array, side: int) -> Array:
    """Returns an image of `side` by `side` pixels, undistorted, with black bars; as it is, if `side` is 0."""
    return fitted(image, side, side) if side else image


def fitted(image: Array, high: int, wide: int) -> Array:
    """Returns an image of so many pixels, undistorted, with black bars."""
    height, width = image.shape[:2]
    if (height, width) == (high, wide):
        return image
    from PIL import Image

    ratio = max(width / wide, height / high)
    small = Image.fromarray(image).resize((int(width / ratio), int(height / ratio)), Image.Resampling.BILINEAR)
    whole = Image.new(small.mode, (wide, high), 0)
    whole.paste(small, ((wide - small.width) // 2, (high - small.height) // 2))
    return np.asarray(whole)

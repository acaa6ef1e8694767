"""Environments that draw in every step: which of their functions does it, and having it done only where somebody looks.

Gymnasium makes observations in `step`, whoever looks at them. Where the function that draws is known, it is replaced in
that one environment: it counts and times what it draws, and when nobody looks, it may return a blank image instead.
That this changes nothing else is tried out before it is relied on.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

import numpy as np

from sparring.env_worker.benchmark import NOTHING, Names, RenderMeter
from sparring.env_worker.benchmarks._gym.spaces import images_among, named
from sparring.protos.advice import Hint
from sparring.protos.errors import UsageError
from sparring.protos.tensor import Array

PLACES: Final = (
    "_env.physics.render",  # dm_control inside an environment, as in gym-aloha
    "env.physics.render",
    "physics.render",
    "mujoco_renderer.render",  # of Gymnasium's own MuJoCo environments
    "_render_frame",
    "_render",  # gym-pusht
    "render",  # what wrappers that add pixels call
)
"""Where functions that draw are known to be, from the innermost environment; the innermost of several is taken."""
_TRIAL_STEPS: Final = 4

_Key = str
"""The arguments of a call: which camera, which size."""


class Drawing:
    """The function of one environment that draws, with ours in its place.

    Attributes:
        place: Where it is in the environment.
        images: The observations that are images.
        wanted: Those that somebody looks at now.
        on_look: Whether only what is looked at is drawn.
    """

    def __init__(self, env: Any, place: str, images: Names, meter: RenderMeter) -> None:
        self.place = place
        self.images = images
        self.wanted = images
        self.on_look = False
        self.calls = 0
        self._meter = meter
        self._silent = False
        self._last: dict[_Key, Array] = {}
        self._feeds: Mapping[str, frozenset[_Key]] | None = None
        *path, self._name = place.split(".")
        self._owner = reduce(getattr, path, env.unwrapped)
        self._own = vars(self._owner).get(self._name) if hasattr(self._owner, "__dict__") else None
        self._draw: Callable[..., Any] = getattr(self._owner, self._name)
        setattr(self._owner, self._name, self)

    def __call__(self, *arguments: Any, **named_arguments: Any) -> Any:
        """Draws, or not; called by the environment."""
        key = repr((arguments, sorted(named_arguments.items())))
        self.calls += 1
        if self.on_look and not self._silent and key in self._last and not self._is_needed(key):
            return np.zeros_like(self._last[key])
        if self._silent:
            return self._draw(*arguments, **named_arguments)
        with self._meter.image():
            frame = self._draw(*arguments, **named_arguments)
        if isinstance(frame, np.ndarray):
            self._last[key] = frame.copy() if self._feeds is None else frame
        return frame

    def remove(self) -> None:
        """Puts the environment's own function back."""
        if self._own is not None:
            setattr(self._owner, self._name, self._own)
        else:
            delattr(self._owner, self._name)

    @contextmanager
    def drawn_for_others(self) -> Iterator[None]:
        """Draws whatever is asked for, and counts nothing: whoever asks does that."""
        self._silent = True
        try:
            yield
        finally:
            self._silent = False

    def learn(self, observation: Mapping[str, Array]) -> None:
        """Finds out which call each image of an observation comes from: all of them, where that cannot be seen."""
        self._feeds = {
            name: frozenset(key for key, frame in self._last.items() if np.array_equal(frame, observation[name]))
            for name in self.images
        }

    def forget(self) -> None:
        """Draws everything where anything is looked at."""
        self._feeds = {}

    def _is_needed(self, key: _Key) -> bool:
        feeds = self._feeds or {}
        return any(key in (feeds.get(name) or {key}) for name in self.wanted & self.images)


def find_drawing(env: Any, place: str, meter: RenderMeter) -> Drawing | None:
    """Finds the function that an environment draws with in its steps, and replaces it by one that counts.

    Args:
        env: Which shows images.
        place: Where it is; empty: wherever it is known to be.
        meter: Counts what is drawn.

    Returns:
        None if it is in none of the places that are known.

    Raises:
        UsageError: If it is not in the place that is named.
    """
    images = images_among(named(env.observation_space.sample()))
    found = [known for known in ([place] if place else PLACES) if callable(_at(env, known))]
    for known in found:
        drawing = Drawing(env, known, images, meter)
        env.reset(seed=0)
        env.step(_actions(env, 1)[0])
        if drawing.calls:
            return drawing
        drawing.remove()
    if place:
        why = "it is not called in its steps" if found else "there is no such function"
        raise UsageError(f"{_name(env)} does not draw with {place!r}: {why}. {_how_to_name()}")
    return None


def draw_on_look(env: Any, drawing: Drawing | None) -> Drawing:
    """Lets an environment draw only where somebody looks, and tries out that nothing else changes.

    Args:
        env: Which shows images.
        drawing: The function that draws; None: it was not found.

    Raises:
        UsageError: If that cannot be, with why.
    """
    if drawing is None:
        raise UsageError(
            f"{_name(env)} draws its images in every step, and with which function is not known. {_how_to_name()}"
        )
    always = _trial(env, drawing, looks=lambda step: drawing.images)
    drawing.learn(named(always[-1].observation))
    drawing.on_look = True
    last = len(always) - 1

    def seldom() -> Sequence[_Moment]:
        return _trial(env, drawing, looks=lambda step: drawing.images if step == last else NOTHING)

    difference = _difference(always, seldom(), drawing.images)
    if difference:  # an image may be made of several
        drawing.forget()
        difference = _difference(always, seldom(), drawing.images)
    if difference:
        drawing.on_look = False
        raise UsageError(
            f"{_name(env)} cannot draw on look: {difference} Leave out {Hint('benchmark_arg', 'draw', 'on-look')}."
        )
    return drawing


@dataclass(frozen=True)
class _Moment:
    observation: Any
    said: tuple[float, bool, bool]


def _trial(env: Any, drawing: Drawing, looks: Callable[[int], Names]) -> Sequence[_Moment]:
    drawing.wanted = looks(0)
    moments = [_Moment(copy.deepcopy(env.reset(seed=0)[0]), (0.0, False, False))]
    for step, action in enumerate(_actions(env, _TRIAL_STEPS), start=1):
        drawing.wanted = looks(step)
        observation, reward, terminated, truncated, _ = env.step(action)
        moments.append(_Moment(copy.deepcopy(observation), (float(reward), bool(terminated), bool(truncated))))
        if terminated or truncated:
            break
    drawing.wanted = drawing.images
    return moments


def _difference(always: Sequence[_Moment], seldom: Sequence[_Moment], images: Names) -> str:
    """Returns what differs where nobody looks, beside the images, or in those where somebody does, in a sentence."""
    for step, (one, other) in enumerate(zip(always, seldom, strict=False)):
        if one.said != other.said:
            return f"its rewards or ends are others at step {step} if it does not draw."
        expected, seen = named(one.observation), named(other.observation)
        for name in expected:
            if name not in images and not np.array_equal(expected[name], seen[name], equal_nan=True):
                return f"its {name!r} is another at step {step} if it does not draw."
            if name in images and step == len(always) - 1 and not np.array_equal(expected[name], seen[name]):
                return f"{name!r} has something of steps before in it, or is not the same twice."
    return "" if len(always) == len(seldom) else "it ends at another step if it does not draw."


def _actions(env: Any, count: int) -> list[Any]:
    """Returns random actions, always the same, without a trace in the environment's own generator."""
    space = copy.deepcopy(env.action_space)
    space.seed(0)
    return [space.sample() for _ in range(count)]


def _at(env: Any, place: str) -> Any:
    try:
        return reduce(getattr, place.split("."), env.unwrapped)
    except AttributeError:
        return None


def _name(env: Any) -> str:
    return str(env.spec.id if env.spec else env)


def _how_to_name() -> str:
    return (
        f"Name it with {Hint('benchmark_arg', 'drawn_by')}, from the environment inside all wrappers on: "
        "'_env.physics.render' is where gym-aloha has it."
    )

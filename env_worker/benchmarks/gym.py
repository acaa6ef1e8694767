"""Any registered Gymnasium environment: `--benchmark gym --task CartPole-v1`, or `--task my_module:MyEnv-v0`."""

from __future__ import annotations

import importlib.util
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np

from sparring import env_worker
from sparring.env_worker.benchmark import Benchmark, Names, Observation, RenderMeter, Simulator, Step, Task, setting
from sparring.env_worker.benchmarks._gym.drawing import Drawing, draw_on_look, find_drawing
from sparring.env_worker.benchmarks._gym.registration import make, module_of
from sparring.env_worker.benchmarks._gym.spaces import action_space, images_among, named
from sparring.env_worker.rendering.viewers import draw_with_own, free_viewers
from sparring.protos.advice import Hint
from sparring.protos.comma_list import comma_list
from sparring.protos.errors import UsageError
from sparring.protos.spec import Offer, TensorSpec, spec_of
from sparring.protos.tensor import Array

IMAGE: Final = "observation.image"
EVERY_STEP: Final = "every-step"
ON_LOOK: Final = "on-look"
_SUCCESS_KEYS: Final = ("is_success", "success")
_TRIAL_SECONDS: Final = 1.0
"""For an episode of random actions, to see whether the environment says what success is."""


@dataclass(frozen=True)
class GymSettings:
    """What --benchmark-arg takes.

    Attributes:
        render: Offer the rendered frame as "observation.image"; needed for films.
        success_return: An episode with at least this sum of rewards is a success; NaN: as the environment says.
        max_steps: Truncate after this many steps; 0: as the environment says.
        kwargs: Keyword arguments of gymnasium.make.
        draw: Of environments whose observations have images: "every-step" leaves them as they are, "on-look" has them
            draw only where somebody looks.
        drawn_by: The function that draws, from the environment inside all wrappers on: "_env.physics.render"; empty:
            wherever it is known to be.
    """

    render: bool = False
    success_return: float = math.nan
    max_steps: int = setting(0, least=0)
    kwargs: Mapping[str, Any] | None = None
    draw: str = setting(EVERY_STEP, choices=[EVERY_STEP, ON_LOOK])
    drawn_by: str = ""


class Gym(Benchmark):
    """A user's own environment, or one of Gymnasium's."""

    name: ClassVar[str] = "gym"
    summary: ClassVar[str] = "any registered Gymnasium environment, by its id"
    requires: ClassVar[Sequence[str]] = ("gymnasium",)
    preload: ClassVar[Sequence[str]] = ("gymnasium",)
    settings: ClassVar[type[Any]] = GymSettings
    packages: ClassVar[Sequence[str]] = ("gymnasium",)
    extra: ClassVar[str] = "gym"
    code_settings: ClassVar[Sequence[str]] = ("kwargs", "drawn_by")
    shown_with: ClassVar[Mapping[str, Mapping[str, Any]]] = {IMAGE: {"render": True}}
    environment: ClassVar[Path | None] = Path(env_worker.__file__).resolve().parent / "environments" / "gym"

    def tasks(self, selection: str) -> Sequence[Task]:
        names = dict.fromkeys(comma_list(selection))
        if not names:
            raise UsageError(
                f"no environment was named; give registered ids, for example {Hint('task', value='CartPole-v1')}."
            )
        return [Task(name, name, name) for name in names]

    def groups(self) -> Mapping[str, Sequence[str]]:
        return {}

    def modules(self, tasks: Sequence[Task]) -> Sequence[str]:
        """Returns the module before the colon of an ID, or else that of its namespace, if there is one of that name."""
        parts = [re.match(r"([\w.]+):|(\w+)/", task.name) for task in tasks]
        return list(dict.fromkeys(part[1] or part[2] for part in parts if part is not None))

    def module_named_by(self, task: str) -> str:
        return module_of(task)

    def draws_with_mujoco(self) -> bool:
        """Returns whether that is installed: some environments do."""
        return importlib.util.find_spec("mujoco") is not None

    def make(self, task: Task, settings: GymSettings) -> Simulator:
        arguments = dict(settings.kwargs or {})
        if settings.render:
            arguments.setdefault("render_mode", "rgb_array")
        another = partial(make, task.name, arguments)
        return GymSimulator(another(), settings, another)


def _speaks_of_success(make: Callable[[], Any], most: int) -> bool | None:
    """Plays an episode of random actions, in an environment of its own, to see whether it says what success is.

    One that takes longer than a moment is left unfinished, and None returned: then the first of the policy shows it.

    Args:
        make: Makes the environment.
        most: Steps after which an episode ends.
    """
    env = make()
    try:
        deadline = time.monotonic() + _TRIAL_SECONDS
        env.reset(seed=0)
        env.action_space.seed(0)
        for _ in range(most):
            _, _, terminated, truncated, info = env.step(env.action_space.sample())
            if any(key in info for key in _SUCCESS_KEYS):
                return True
            if time.monotonic() > deadline:
                return None
            if terminated or truncated:
                break
    finally:
        env.close()
    return False


class GymSimulator(Simulator):
    """Shows what the environment returns: a Dict space by its keys, anything else as "observation".

    Args:
        env: The environment.
        settings: Of the benchmark.
        another: Makes one more, to try out.
    """

    success_advice = (
        "An environment says what success is by 'is_success' or 'success' in its info, or by a reward threshold in its "
        f"registration; else {Hint('benchmark_arg', 'success_return')}, a number, says which return is one."
    )

    def __init__(self, env: Any, settings: GymSettings, another: Callable[[], Any]) -> None:
        self._env = env
        self._another = another
        self._success_return = settings.success_return
        spec = env.spec
        self.max_steps = settings.max_steps or (spec.max_episode_steps if spec else None) or 100_000
        if math.isnan(self._success_return) and spec is not None and spec.reward_threshold is not None:
            self._success_return = float(spec.reward_threshold)
        self._steps = 0
        self._return = 0.0
        self.meter = RenderMeter()
        low, high, self._to_action = action_space(env.action_space)
        shown = named(env.observation_space.sample())
        specs = {name: spec_of(array) for name, array in shown.items()}
        self._images = images_among(shown)
        self._drawing: Drawing | None = None
        if self._images:
            self._drawing = find_drawing(env, settings.drawn_by, self.meter)
            if settings.draw == ON_LOOK:
                self._drawing = draw_on_look(env, self._drawing)
        if settings.render:
            env.reset(seed=0)
            specs[IMAGE] = TensorSpec("uint8", self._render().shape)
            self.camera = IMAGE
        hz = float(env.metadata.get("render_fps") or 30.0)
        self.offers = Offer(observations=specs, action_low=tuple(low), action_high=tuple(high), control_hz=hz)

    def reset(self, *, seed: int, index: int, look: Names) -> Observation:
        with self._looked_at(look):
            raw, _ = self._env.reset(seed=seed)
        self._steps, self._return = 0, 0.0
        return self._observe(raw, look)

    def step(self, action: Array, *, look: Names) -> Step:
        with self._looked_at(look):
            raw, reward, terminated, truncated, info = self._env.step(self._to_action(action))
        self._steps += 1
        self._return += float(reward)
        truncated = bool(truncated) or self._steps >= self.max_steps
        ended = bool(terminated) or truncated
        success = self._success(info, ended)
        return Step(self._observe(raw, look), float(reward), bool(terminated), truncated, success)

    @cached_property
    def tells_success(self) -> bool | None:
        """Tried out, where no threshold says it, and only if somebody asks."""
        return self.has_threshold or _speaks_of_success(self._another, self.max_steps)

    @property
    def has_threshold(self) -> bool:
        """Whether the sum of rewards says what a success is, if nothing else does."""
        return not math.isnan(self._success_return)

    def close(self) -> None:
        free_viewers(self._env.unwrapped)
        self._env.close()

    def snapshot(self) -> Array | None:
        """Returns the rendered frame, where rendering is on."""
        if self.camera is None:
            return None
        with self.meter.image():
            return self._render()

    def physics_state(self) -> Array | None:
        """Returns what MuJoCo's environments have as `data`, and those of classic control as `state`."""
        inner = self._env.unwrapped
        data: Any = getattr(inner, "data", None)
        state: Any = getattr(inner, "state", None)
        if hasattr(data, "qpos") and hasattr(data, "qvel"):
            return np.concatenate([np.ravel(data.qpos), np.ravel(data.qvel)])
        numbers = np.ravel(np.asarray(state)) if isinstance(state, (tuple, list, np.ndarray)) else np.empty(0)
        return numbers.astype(np.float64) if numbers.dtype.kind in "fiu" and numbers.size else None

    @contextmanager
    def _looked_at(self, look: Names) -> Iterator[None]:
        """Counts what is drawn in a reset or a step, and lets an environment that can leave out what is not seen."""
        before = self.meter.renders
        if self._drawing is not None:
            self._drawing.wanted = look
        yield
        if self._drawing is None:
            self.meter.renders += len(self._images)  # at least; how long that took is not known
        if self.meter.renders > before and not look & self._images:
            self.warnings = [self._drawn_unseen()]

    def _drawn_unseen(self) -> str:
        name = self._env.spec.id if self._env.spec else str(self._env)
        always = f"{name} draws its images in every step, whether the policy looks or not"
        if self._drawing is not None:
            return f"{always}. To have them drawn where it looks: {Hint('benchmark_arg', 'draw', ON_LOOK)}."
        return (
            f"{always}, with a function that is not known: their time counts as physics. Name it with "
            f"{Hint('benchmark_arg', 'drawn_by')} to have them drawn where the policy looks."
        )

    def _success(self, info: Mapping[str, Any], ended: bool) -> bool | None:
        for key in _SUCCESS_KEYS:
            if key in info:
                return bool(info[key])
        if self.has_threshold:
            return ended and self._return >= self._success_return  # a return is one only at the end
        return None

    def _observe(self, raw: Any, look: Names) -> Observation:
        observation = {name: array for name, array in named(raw).items() if name in look}
        if IMAGE in look and IMAGE not in observation:
            with self.meter.image():
                observation[IMAGE] = self._render()
        return observation

    def _render(self) -> Array:
        draw_with_own(self._env.unwrapped)
        with self._drawing.drawn_for_others() if self._drawing else nullcontext():
            frame = self._env.render()
        if not isinstance(frame, np.ndarray) or frame.ndim != 3:
            raise UsageError(f"{self._env.spec.id if self._env.spec else self._env} does not render to an RGB array.")
        return np.ascontiguousarray(frame)

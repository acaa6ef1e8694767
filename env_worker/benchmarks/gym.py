"""Any registered Gymnasium environment: `--benchmark gym --task CartPole-v1`, or `--task my_module:MyEnv-v0`."""

from __future__ import annotations

import importlib.util
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np

from sparring import env_worker
from sparring.env_worker.benchmark import Benchmark, Names, Observation, RenderMeter, Simulator, Step, Task, setting
from sparring.protos.advice import Hint
from sparring.protos.errors import UsageError
from sparring.protos.spec import Offer, TensorSpec, spec_of
from sparring.protos.tensor import Array

IMAGE: Final = "observation.image"
OBSERVATION: Final = "observation"
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
    """

    render: bool = False
    success_return: float = math.nan
    max_steps: int = setting(0, least=0)
    kwargs: Mapping[str, Any] | None = None


class Gym(Benchmark):
    """A user's own environment, or one of Gymnasium's."""

    name: ClassVar[str] = "gym"
    summary: ClassVar[str] = "any registered Gymnasium environment, by its id"
    requires: ClassVar[Sequence[str]] = ("gymnasium",)
    preload: ClassVar[Sequence[str]] = ("gymnasium",)
    settings: ClassVar[type[Any]] = GymSettings
    packages: ClassVar[Sequence[str]] = ("gymnasium",)
    extra: ClassVar[str] = "gym"
    environment: ClassVar[Path | None] = Path(env_worker.__file__).resolve().parent / "environments" / "gym"

    def tasks(self, selection: str) -> Sequence[Task]:
        names = dict.fromkeys(filter(None, (part.strip() for part in selection.split(","))))
        if not names:
            raise UsageError(
                f"no environment was named; give registered ids, for example {Hint('task', value='CartPole-v1')}."
            )
        return [Task(name, name, name) for name in names]

    def groups(self) -> Mapping[str, Sequence[str]]:
        return {}

    def make(self, task: Task, settings: GymSettings) -> Simulator:
        import gymnasium

        arguments = dict(settings.kwargs or {})
        if settings.render:
            arguments.setdefault("render_mode", "rgb_array")
        module, colon, _ = task.name.rpartition(":")
        if colon and not _importable(module):
            raise UsageError(
                f"there is no module {module!r} to take the environment {task.name!r} from; run from the folder it is "
                "in, or put that on PYTHONPATH."
            )
        try:
            env = gymnasium.make(task.name, **arguments)
        except (gymnasium.error.UnregisteredEnv, gymnasium.error.DeprecatedEnv) as error:
            raise UsageError(f"there is no Gymnasium environment {task.name!r}: {error}") from error
        except (gymnasium.error.Error, TypeError) as error:  # of what is missing, or arguments that it does not take
            raise UsageError(f"gymnasium cannot make {task.name!r}: {error}") from error
        return GymSimulator(env, settings, lambda: gymnasium.make(task.name, **arguments))


def _importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ModuleNotFoundError, ValueError):  # its package is not there, or what was given is no name of a module
        return False


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
        low, high, self._to_action = _action_space(env.action_space)
        specs = {name: spec_of(array) for name, array in _named(env.observation_space.sample()).items()}
        if settings.render:
            env.reset(seed=0)
            specs[IMAGE] = TensorSpec("uint8", self._render().shape)
            self.camera = IMAGE
        hz = float(env.metadata.get("render_fps") or 30.0)
        self.offers = Offer(observations=specs, action_low=tuple(low), action_high=tuple(high), control_hz=hz)

    def reset(self, *, seed: int, index: int, look: Names) -> Observation:
        raw, _ = self._env.reset(seed=seed)
        self._steps, self._return = 0, 0.0
        return self._observe(raw, look)

    def step(self, action: Array, *, look: Names) -> Step:
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
        self._env.close()

    def _success(self, info: Mapping[str, Any], ended: bool) -> bool | None:
        for key in _SUCCESS_KEYS:
            if key in info:
                return bool(info[key])
        if self.has_threshold:
            return ended and self._return >= self._success_return  # a return is one only at the end
        return None

    def _observe(self, raw: Any, look: Names) -> Observation:
        observation = {name: array for name, array in _named(raw).items() if name in look}
        if IMAGE in look and IMAGE not in observation:
            with self.meter.image():
                observation[IMAGE] = self._render()
        return observation

    def _render(self) -> Array:
        frame = self._env.render()
        if not isinstance(frame, np.ndarray) or frame.ndim != 3:
            raise UsageError(f"{self._env.spec.id if self._env.spec else self._env} does not render to an RGB array.")
        return np.ascontiguousarray(frame)


def _named(raw: Any) -> dict[str, Array]:
    if isinstance(raw, Mapping):
        flat: dict[str, Array] = {}
        for key, value in raw.items():
            inner = _named(value)
            flat.update({key if name == OBSERVATION else f"{key}.{name}": array for name, array in inner.items()})
        return flat
    return {OBSERVATION: np.asarray(raw)}


def _action_space(space: Any) -> tuple[list[float], list[float], Any]:
    """Bounds of a flat vector of actions, and how such a vector becomes an action of the space."""
    from gymnasium import spaces

    if isinstance(space, spaces.Box):
        low, high = space.low.ravel().tolist(), space.high.ravel().tolist()
        return low, high, lambda vector: np.asarray(vector, dtype=space.dtype).reshape(space.shape)
    if isinstance(space, spaces.Discrete):
        first, last = int(space.start), int(space.start + space.n - 1)
        # The nearest whole number counts, so each has a whole unit of the range: uniform in the range is uniform in the
        # actions, which it would not be if the range began at the first and ended at the last.
        return [first - 0.5], [last + 0.5], lambda vector: int(np.clip(round(float(vector[0])), first, last))
    raise UsageError(
        f"actions of the kind {type(space).__name__} are not supported; "
        "wrap the environment to have a Box or Discrete space."
    )

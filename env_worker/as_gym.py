"""A Simulator as a gymnasium.Env, for people who want to train on exactly what will be evaluated.

from sparring import make_env
env = make_env("metaworld", "reach-v3", look=["observation.state"])
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import gymnasium
import numpy as np

from sparring.env_worker.benchmark import Simulator
from sparring.env_worker.registry import get_benchmark
from sparring.protos.errors import unknown
from sparring.protos.spec import TensorSpec
from sparring.protos.tensor import Array


def make_env(benchmark: str, task: str, *, look: Iterable[str] = (), **settings: Any) -> SimulatorEnv:
    """Makes an environment of a benchmark's task.

    Args:
        benchmark: As in `sparring ls benchmarks`.
        task: One task of it.
        look: The observations to return; all that are offered, by default.
        settings: What --benchmark-arg takes.
    """
    found = get_benchmark(benchmark)
    resolved = found.read_settings(settings)
    found.prepare(resolved)
    return SimulatorEnv(found.make(found.tasks(task)[0], resolved), look=look)


class SimulatorEnv(gymnasium.Env[Any, Array]):
    """Observations are a dict of what is looked at; `info` has the benchmark's own `success`, if known, and `metrics`.

    Args:
        simulator: What to drive.
        look: The observations to return at every step; all that are offered, by default.
    """

    def __init__(self, simulator: Simulator, *, look: Iterable[str] = ()) -> None:
        offers = simulator.offers
        names = list(look) or list(offers.observations)
        for name in names:
            if name not in offers.observations:
                raise unknown("observation", name, offers.observations)
        self._simulator = simulator
        self._look = frozenset(names)
        self._episodes = 0
        self.observation_space = gymnasium.spaces.Dict({name: _space(offers.observations[name]) for name in names})
        low, high = np.array(offers.action_low, np.float32), np.array(offers.action_high, np.float32)
        self.action_space = gymnasium.spaces.Box(low, high, dtype=np.float32)

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, Array], dict[str, Any]]:
        """Begins an episode; `options={"index": k}` chooses among official initial states, else they take turns."""
        super().reset(seed=seed)
        index = int((options or {}).get("index", self._episodes))
        self._episodes += 1
        drawn = seed if seed is not None else int(self.np_random.integers(2**31))
        return dict(self._simulator.reset(seed=drawn, index=index, look=self._look)), {}

    def step(self, action: Array) -> tuple[dict[str, Array], float, bool, bool, dict[str, Any]]:
        """Executes one action."""
        step = self._simulator.step(np.asarray(action), look=self._look)
        info: dict[str, Any] = {"metrics": dict(step.metrics)}
        if step.success is not None:
            info["success"] = step.success
        return dict(step.observation), step.reward, step.terminated, step.truncated, info

    def close(self) -> None:
        """Frees the simulator."""
        self._simulator.close()


def _space(spec: TensorSpec) -> gymnasium.spaces.Box:
    dtype = np.dtype(str(spec.dtype))
    bounds: tuple[Any, Any] = (-np.inf, np.inf)
    if dtype.kind in "iu":
        bounds = (np.iinfo(dtype).min, np.iinfo(dtype).max)
    elif dtype.kind == "b":
        bounds = (0, 1)
    return gymnasium.spaces.Box(*bounds, shape=spec.shape, dtype=dtype.type)

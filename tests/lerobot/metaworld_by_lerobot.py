"""LeRobot's Meta-World as its own evaluation makes it, for episodes that can be compared with Sparring's."""

from __future__ import annotations

import os
from typing import Any

from sparring.env_worker.gl import choose_backend


def make_envs(config: Any, tasks: str, *, steps: int, side: int) -> dict[str, dict[int, Any]]:
    """LeRobot's environments of some tasks, by group and number, one simulator in each.

    What is not LeRobot's: episodes are short, images may be small, and up to 0.6.0, which passes the seed to a reset()
    that ignores it, each episode's goal is drawn from its seed. Since 0.6.1 LeRobot does that itself.
    """
    os.environ["MUJOCO_GL"] = choose_backend()
    from gymnasium.vector import SyncVectorEnv
    from lerobot.envs.metaworld import create_metaworld_envs

    size = {"observation_width": side, "observation_height": side}
    made: dict[str, dict[int, Any]] = create_metaworld_envs(
        tasks, 1, {**config.gym_kwargs, **size}, env_cls=SyncVectorEnv
    )
    for vector in (vector for group in made.values() for vector in group.values()):
        (env,) = vector.envs
        env._max_episode_steps = steps
        simulator = _simulator(env)
        simulator.mujoco_renderer.width = simulator.mujoco_renderer.height = side
        if not simulator.seeded_rand_vec:
            simulator.seeded_rand_vec = True
            vector.reset = _seeding(vector.reset, simulator)
    return made


def _simulator(env: Any) -> Any:
    """Meta-World's own environment inside LeRobot's, which makes it at the first reset() since 0.5."""
    if env._env is None:
        env._ensure_env()
    return env._env


def _seeding(reset: Any, simulator: Any) -> Any:
    def seeded(*, seed: list[int] | range, **options: Any) -> Any:
        simulator.seed(next(iter(seed)))
        return reset(seed=list(seed), **options)

    return seeded

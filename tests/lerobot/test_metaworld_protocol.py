"""Meta-World's protocol `lerobot-0.6` against LeRobot 0.6.1's own environment: its rules, and the same actions."""

from __future__ import annotations

import os
from importlib.metadata import version
from typing import Any

import numpy as np
import pytest
from tiny_models import LEROBOT

from sparring.env_worker.benchmarks.metaworld import IMAGE, STATE, Metaworld
from sparring.env_worker.gl import choose_backend
from sparring.env_worker.protocol import protocols_of, whole

BENCHMARK = Metaworld()
PROTOCOL = whole(BENCHMARK, protocols_of(BENCHMARK)["lerobot-0.6"])

pytestmark = [
    pytest.mark.requires("rendering"),
    pytest.mark.skipif(LEROBOT < (0, 6), reason="the protocol is that of LeRobot 0.6"),
]


def theirs() -> Any:
    os.environ["MUJOCO_GL"] = choose_backend()
    from lerobot.envs.metaworld import MetaworldEnv

    return MetaworldEnv("drawer-open-v3", obs_type="pixels_agent_pos")


def test_the_rules_are_those_of_lerobot_0_6() -> None:
    from lerobot.configs.eval import EvalPipelineConfig

    assert version("lerobot") == "0.6.1"
    env = theirs()
    simulator = BENCHMARK.make(BENCHMARK.tasks("drawer-open-v3")[0], BENCHMARK.read_settings(PROTOCOL.settings))
    assert simulator.max_steps == env._max_episode_steps == 500
    assert PROTOCOL.settings["resolution"] == env.observation_height == env.observation_width
    assert PROTOCOL.seed == EvalPipelineConfig.__dataclass_fields__["seed"].default
    simulator.close()


def test_the_same_actions_lead_to_the_same_bits() -> None:
    env, seed, generator = theirs(), PROTOCOL.seed + 3, np.random.default_rng(0)
    simulator = BENCHMARK.make(BENCHMARK.tasks("drawer-open-v3")[0], BENCHMARK.read_settings(PROTOCOL.settings))
    seen = simulator.reset(seed=seed, index=3, look=frozenset([IMAGE, STATE]))
    observation, _ = env.reset(seed=seed)
    for _ in range(3):
        assert np.array_equal(seen[IMAGE], observation["pixels"])
        assert np.array_equal(seen[STATE], observation["agent_pos"].astype(np.float32))
        action = generator.uniform(-1, 1, 4).astype(np.float32)
        step = simulator.step(action, look=frozenset([IMAGE, STATE]))
        observation, reward, terminated, _, info = env.step(action)
        seen = step.observation
        assert (step.reward, step.success, step.terminated) == (reward, info["is_success"], terminated)
    simulator.close()
    env.close()

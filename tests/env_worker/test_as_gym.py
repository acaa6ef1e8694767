"""A Simulator as a gymnasium.Env."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from sparring.env_worker.as_gym import make_env
from sparring.env_worker.benchmarks.metaworld import ENVIRONMENT_STATE, MetaworldSettings, MetaworldSimulator
from sparring.protos.errors import UsageError


def test_gymnasium_finds_nothing_wrong_with_it() -> None:
    check_env(make_env("toy", "short", look=["position", "image"]), skip_render_check=True)


def test_it_is_exactly_what_is_evaluated() -> None:
    env = make_env("metaworld", "push-v3", look=[ENVIRONMENT_STATE])
    simulator = MetaworldSimulator("push-v3", MetaworldSettings())
    look = frozenset({ENVIRONMENT_STATE})
    seen, _ = env.reset(seed=4)
    assert np.array_equal(seen[ENVIRONMENT_STATE], simulator.reset(seed=4, index=0, look=look)[ENVIRONMENT_STATE])
    for action in np.random.default_rng(0).uniform(-1, 1, (20, 4)):
        seen, reward, terminated, truncated, info = env.step(action)
        step = simulator.step(action, look=look)
        assert np.array_equal(seen[ENVIRONMENT_STATE], step.observation[ENVIRONMENT_STATE])
        assert (reward, terminated, truncated, info["success"]) == (
            step.reward, step.terminated, step.truncated, step.success
        )  # fmt: skip


def test_what_the_benchmark_measures_is_in_the_info() -> None:
    env = make_env("toy", "short", look=["position"])
    seen, _ = env.reset(seed=4)
    before = seen["position"][0]
    *_, info = env.step(np.array([1.0]))
    assert info["metrics"] == {"distance": pytest.approx(1.0 - before - 0.1)}


def test_an_unknown_observation_is_named() -> None:
    with pytest.raises(UsageError, match="Did you mean 'position'"):
        make_env("toy", "short", look=["positoin"])

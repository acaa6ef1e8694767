"""PushT as a benchmark of its own, with gym-pusht itself."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

from sparring.env_worker.benchmark import NOTHING
from sparring.env_worker.benchmarks.pusht import IMAGE, KEYPOINTS, STATE, Pusht, PushtSettings
from sparring.env_worker.compliance import check_benchmark
from sparring.policy_server.policies._pusht.player import PushtPlayer

SEEN = frozenset({IMAGE, STATE, KEYPOINTS})
STATES = SEEN - {IMAGE}


def make(**settings: Any) -> Any:
    benchmark = Pusht()
    return benchmark.make(benchmark.tasks("PushT-v0")[0], PushtSettings(**settings))


def random_actions(count: int) -> Any:
    return np.random.default_rng(1).uniform(0, 512, (count, 2)).astype(np.float32)


def expert_actions(seed: int) -> list[Any]:
    """Those of an episode that succeeds, which nobody looks at."""
    simulator, player, actions = make(), PushtPlayer(), []
    seen, step = simulator.reset(seed=seed, index=0, look=STATES), None
    while step is None or not (step.terminated or step.truncated):
        actions.append(player.act(seen[STATE].astype(float), seen[KEYPOINTS].astype(float).reshape(8, 2)))
        step = simulator.step(actions[-1], look=STATES)
        seen = step.observation
    assert step.success
    assert step.metrics["coverage"] > 0.95
    assert simulator.meter.renders == 0
    return actions


def test_pusht_holds_the_rules() -> None:
    verdicts = check_benchmark("pusht", task="PushT-v0", episodes=2, steps=12, settings={"max_steps": 40})
    assert {verdict.kind for verdict in verdicts} == {"ok"}


def test_it_is_the_environment_that_gymnasium_makes() -> None:
    theirs = gymnasium.make("gym_pusht:gym_pusht/PushT-v0", obs_type="pixels_agent_pos", max_episode_steps=15)
    simulator = make(max_steps=15)
    seen, ours = theirs.reset(seed=4)[0], simulator.reset(seed=4, index=0, look=SEEN)
    for action in random_actions(15):
        np.testing.assert_array_equal(ours[IMAGE], seen["pixels"])
        np.testing.assert_array_equal(ours[STATE], seen["agent_pos"].astype(np.float32))
        seen, reward, terminated, truncated, info = theirs.step(action)
        step = simulator.step(action, look=SEEN)
        ours = step.observation
        assert (step.terminated, step.truncated, step.success) == (terminated, truncated, info["is_success"])
        # Theirs takes the T's bars from a set, whose order, and with it the last bit of a sum, is another each time.
        assert (step.reward, step.metrics["coverage"]) == pytest.approx((reward, info["coverage"]), rel=1e-15)
    assert truncated
    assert simulator.offers.control_hz == theirs.metadata["render_fps"] == 10
    assert simulator.offers.control == "absolute"


def test_what_nobody_looks_at_is_not_drawn_and_changes_nothing() -> None:
    always, seldom = make(), make()
    always.reset(seed=3, index=0, look=SEEN)
    seldom.reset(seed=3, index=0, look=NOTHING)
    actions = random_actions(10)
    for number, action in enumerate(actions, start=1):
        one = always.step(action, look=SEEN)
        other = seldom.step(action, look=SEEN if number == len(actions) else STATES)
        assert one.reward == other.reward
        np.testing.assert_array_equal(always.physics_state(), seldom.physics_state())
    np.testing.assert_array_equal(one.observation[IMAGE], other.observation[IMAGE])
    assert (always.meter.renders, seldom.meter.renders) == (11, 1)


def test_a_film_is_lerobots_with_a_cross_where_the_action_points_and_none_of_the_episode_before() -> None:
    simulator = make()
    simulator.reset(seed=0, index=0, look=NOTHING)
    first = simulator.picture(simulator.camera)
    assert first.shape == (384, 384, 3)
    simulator.step(np.array([100.0, 400.0]), look=NOTHING)
    assert tuple(simulator.picture(simulator.camera)[300, 75]) == (255, 0, 0)
    simulator.reset(seed=0, index=0, look=NOTHING)
    np.testing.assert_array_equal(simulator.picture(simulator.camera), first)


def test_rewards_are_the_same_bits_in_every_simulator() -> None:
    actions = expert_actions(1000)
    simulators = [make() for _ in range(6)]  # at other places in memory, so that sets of their parts have other orders
    rewards = []
    for simulator in simulators:
        simulator.reset(seed=1000, index=0, look=NOTHING)
        rewards.append([simulator.step(action, look=NOTHING).reward for action in actions])
    assert all(row == rewards[0] for row in rewards)
    assert rewards[0][-1] == 1.0


@pytest.mark.parametrize("seed", [1000, 1002, 1010, 8])  # 8: most places to push from cannot be reached at first
def test_the_expert_succeeds(seed: int) -> None:
    assert 10 < len(expert_actions(seed)) < 100

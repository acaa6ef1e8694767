"""Meta-World's protocols against the package's own evaluation: the same goals, the same bits, the same end.

metaworld 3.1.1: its `make_mt_envs` and its `evaluation`. LeRobot's are in tests/lerobot.
"""

from __future__ import annotations

from functools import partial
from importlib.metadata import version
from typing import Any

import numpy as np
import pytest
from support import EVERYTHING

from sparring.env_worker.benchmark import Simulator
from sparring.env_worker.benchmarks.metaworld import ENVIRONMENT_STATE, GOALS, Metaworld
from sparring.env_worker.protocol import protocols_of, whole

pytestmark = pytest.mark.processes

BENCHMARK = Metaworld()
PAPER = whole(BENCHMARK, protocols_of(BENCHMARK)["metaworld-paper"])
STATES = frozenset([ENVIRONMENT_STATE])
# One that moves things, one whose goal is drawn with the object, one with a wall.
TASKS = ("push-v3", "drawer-open-v3", "reach-wall-v3")


def ours(task: str) -> Simulator:
    return BENCHMARK.make(BENCHMARK.tasks(task)[0], BENCHMARK.read_settings(PAPER.settings))


def theirs(task: str, index: int) -> Any:
    """The package's environment of a task, which has one of its goals to choose from."""
    import metaworld

    benchmark = metaworld.MT1(task, seed=PAPER.seed)
    chosen = [benchmark.train_tasks[index]]
    return metaworld._init_each_env(benchmark.train_classes[task], chosen, seed=PAPER.seed, terminate_on_success=True)


def expert(task: str) -> Any:
    from metaworld.policies import ENV_POLICY_MAP

    return ENV_POLICY_MAP[task]()


def test_this_is_the_version() -> None:
    assert version("metaworld") == "3.1.1"


@pytest.mark.parametrize("task", TASKS[: None if EVERYTHING else 1])
def test_the_same_actions_lead_to_the_same_bits(task: str) -> None:
    index, player = 7, expert(task)
    simulator, env = ours(task), theirs(task, index)
    simulator.reset(seed=PAPER.seed, index=0, look=STATES)  # another goal before it, which must leave nothing
    seen = simulator.reset(seed=PAPER.seed + index, index=index, look=STATES)[ENVIRONMENT_STATE]
    observation, _ = env.reset()
    assert np.array_equal(seen, observation)
    for _ in range(simulator.max_steps):
        action = np.clip(player.get_action(observation), -1, 1).astype(np.float32)
        step = simulator.step(action, look=STATES)
        observation, reward, terminated, truncated, info = env.step(action)
        assert np.array_equal(step.observation[ENVIRONMENT_STATE], observation)
        assert (step.reward, step.success) == (reward, bool(info["success"]))
        assert (step.terminated, step.truncated) == (terminated, truncated)
        if terminated or truncated:
            break
    assert step.success
    simulator.close()
    env.close()


def test_the_package_s_evaluation_comes_to_the_same() -> None:
    from gymnasium.vector import AutoresetMode, SyncVectorEnv
    from metaworld.evaluation import evaluation

    task, index = "drawer-open-v3", 3

    class Agent:
        def __init__(self) -> None:
            self._expert = expert(task)

        def eval_action(self, observations: Any) -> Any:
            return np.stack([np.clip(self._expert.get_action(one), -1, 1) for one in observations]).astype(np.float32)

        def reset(self, env_mask: Any) -> None:
            pass

    envs = SyncVectorEnv([partial(theirs, task, index)], autoreset_mode=AutoresetMode.SAME_STEP)
    rate, _, _, returns = evaluation(Agent(), envs, num_episodes=1)
    simulator, player = ours(task), expert(task)
    seen, total = simulator.reset(seed=PAPER.seed + index, index=index, look=STATES), 0.0
    while True:
        action = np.clip(player.get_action(seen[ENVIRONMENT_STATE]), -1, 1).astype(np.float32)
        step = simulator.step(action, look=STATES)
        seen, total = step.observation, total + step.reward
        if step.terminated or step.truncated:
            break
    assert (rate, returns[task][0]) == (float(step.success), pytest.approx(total, rel=1e-6))
    simulator.close()


def test_episode_k_has_goal_k_of_fifty() -> None:
    simulator = ours("reach-v3")
    goals = [
        simulator.reset(seed=PAPER.seed + k, index=k, look=STATES)[ENVIRONMENT_STATE][-3:] for k in (0, 1, 49, GOALS)
    ]
    assert np.array_equal(goals[0], goals[3])
    assert len({tuple(goal) for goal in goals}) == 3
    planned = BENCHMARK.planned(BENCHMARK.tasks("reach-v3"), BENCHMARK.read_settings(PAPER.settings))
    assert [task.initial_states for task in planned] == [GOALS]
    simulator.close()


def test_the_limit_is_the_package_s() -> None:
    assert ours("reach-v3").max_steps == theirs("reach-v3", 0).unwrapped.max_path_length == 500

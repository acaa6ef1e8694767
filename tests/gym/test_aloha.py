"""ALOHA as a benchmark of its own, with gym-aloha itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sparring.env_worker.benchmark import NOTHING
from sparring.env_worker.benchmarks.aloha import ENVIRONMENT_STATE, IMAGE, STATE, Aloha, AlohaSettings
from sparring.env_worker.compliance import check_benchmark
from sparring.env_worker.gl import choose_backend
from sparring.policy_server.policies.aloha_expert import AlohaExpert
from sparring.policy_server.policies.base import Instruction

choose_backend()  # as a worker does, before anything imports MuJoCo

TASKS = {"AlohaInsertion-v0": "insertion", "AlohaTransferCube-v0": "transfer_cube"}
SMALL = {"height": 48, "width": 64}
SEEN = frozenset({IMAGE, STATE})


def make(task: str, **settings: Any) -> Any:
    benchmark = Aloha()
    return benchmark.make(benchmark.tasks(task)[0], AlohaSettings(**settings))


def planned(task: str, simulator: Any, seed: int) -> Any:
    """The expert's actions of an episode, after its reset."""
    objects = simulator.reset(seed=seed, index=0, look=frozenset({ENVIRONMENT_STATE}))
    expert = AlohaExpert()
    script = expert.new_session(Instruction("", name=task, offer=simulator.offers), seed)
    (actions,) = expert.act([objects], [script])
    assert actions.dtype == np.float32
    return actions


def test_aloha_holds_the_rules() -> None:
    task = "AlohaTransferCube-v0"
    verdicts = check_benchmark("aloha", task=task, episodes=1, steps=4, settings={**SMALL, "max_steps": 12})
    assert {verdict.kind for verdict in verdicts} == {"ok"}


@pytest.mark.parametrize("task", TASKS)
def test_it_is_gym_alohas_environment(task: str) -> None:
    """Theirs draws at every step, which takes long: few of them."""
    from gym_aloha.env import AlohaEnv

    theirs, simulator = AlohaEnv(TASKS[task], obs_type="pixels_agent_pos"), make(task)
    actions = planned(task, simulator, 3)[40:44]
    seen, ours = theirs.reset(seed=3)[0], simulator.reset(seed=3, index=0, look=SEEN)
    for number, action in enumerate(actions):
        np.testing.assert_array_equal(ours[STATE], seen["agent_pos"].astype(np.float32))
        if number in (0, 3):
            np.testing.assert_array_equal(ours[IMAGE], seen["pixels"]["top"])
        seen, reward, terminated, _, info = theirs.step(action)
        step = simulator.step(action, look=SEEN if number == 2 else SEEN - {IMAGE})
        ours = step.observation
        assert (step.reward, step.terminated, step.success) == (reward, terminated, info["is_success"])
    assert simulator.offers.control_hz == theirs.metadata["render_fps"] == 50
    assert simulator.offers.control == "absolute"


def test_seeds_above_those_that_numpy_takes_begin_again() -> None:
    simulator = make("AlohaTransferCube-v0")
    objects = [
        simulator.reset(seed=seed, index=0, look=frozenset({ENVIRONMENT_STATE}))[ENVIRONMENT_STATE]
        for seed in (3, 2**32 + 3)
    ]
    np.testing.assert_array_equal(*objects)


def test_what_nobody_looks_at_is_not_drawn() -> None:
    simulator = make("AlohaTransferCube-v0", **SMALL)
    simulator.reset(seed=0, index=0, look=SEEN)
    for action in np.zeros((20, 14), np.float32):
        simulator.step(action, look=frozenset({STATE}))
    assert simulator.meter.renders == 1


def test_actions_reach_as_far_as_the_motors_do() -> None:
    offers = make("AlohaInsertion-v0").offers
    assert (offers.action_low[6], offers.action_high[6], offers.action_low[13], offers.action_high[13]) == (0, 1, 0, 1)
    np.testing.assert_allclose(offers.action_low[:3], [-3.14158, -1.85005, -1.76278])
    np.testing.assert_allclose(offers.action_high[7:10], [3.14158, 1.25664, 1.6057])


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("seed", range(1000, 1004))
def test_the_expert_succeeds(task: str, seed: int) -> None:
    simulator = make(task)
    actions = planned(task, simulator, seed)
    offers = simulator.offers
    assert (actions >= np.array(offers.action_low, np.float32)).all()
    assert (actions <= np.array(offers.action_high, np.float32)).all()
    for action in actions:
        step = simulator.step(action, look=NOTHING)
        if step.terminated:
            break
    assert step.success
    assert step.reward == 4
    assert simulator.meter.renders == 0

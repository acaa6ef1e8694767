"""LeRobot policies that remember more than queues: their own loop, one copy of the weights, nobody else's memory."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_rnn
import torch
from checkpoints import act_config, features, save, saving, tdmpc_config
from sessions import SIDE, Player, alone, by_lerobot, load, together
from test_lerobot_policy import refusal
from tiny_rnn import TinyRNNConfig
from tiny_vla import TinyVLAConfig

from sparring.protos.advice import FLAGS, render

try:
    from lerobot.policies.sac.configuration_sac import SACConfig as ActorConfig
except ImportError:  # what LeRobot 0.6 has made of it
    from lerobot.policies.gaussian_actor.configuration_gaussian_actor import GaussianActorConfig as ActorConfig

CONFIGS: dict[str, Callable[[], Any]] = {
    "tdmpc": lambda: tdmpc_config(SIDE, n_action_repeats=1),
    "tdmpc-repeats": lambda: tdmpc_config(SIDE, n_action_repeats=3),
    "tdmpc-chunks": lambda: tdmpc_config(SIDE, n_action_repeats=1, n_action_steps=3),
    "tiny_rnn": lambda: TinyRNNConfig(**features(SIDE)),
    "tiny_rnn-late": lambda: TinyRNNConfig(**features(SIDE), late=True),
    "tiny_vla-kept": lambda: TinyVLAConfig(**features(SIDE), diary="kept"),
    "tiny_vla-cleared": lambda: TinyVLAConfig(**features(SIDE), diary="cleared"),
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    return saving(CONFIGS, tmp_path_factory.mktemp("checkpoints"))


@pytest.mark.parametrize("name", CONFIGS)
def test_a_session_alone_does_what_select_action_does(name: str, saved: Any) -> None:
    policy, theirs = load(saved(name)), by_lerobot(saved(name), 7)
    assert (policy.spec.chunk_length, policy.spec.history) == (1, 1)
    policy.warm_up()
    assert alone(policy, 7).tobytes() == theirs.tobytes(), "bit by bit: it is the same loop"
    assert np.ptp(theirs, axis=0).max() > 0.05, "a policy that always does the same would prove nothing"


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("name", CONFIGS)
def test_sessions_do_together_what_they_do_alone(name: str, deterministic: bool, saved: Any) -> None:
    policy = load(saved(name), deterministic=deterministic)
    try:
        mixed = together(policy, (1, 2, 3), ["Reach a goal position"] * 3)
        expected = [alone(policy, seed) for seed in (1, 2, 3)]
    finally:
        torch.use_deterministic_algorithms(False)
    assert not np.allclose(expected[0], expected[1], atol=1e-3)
    assert np.asarray(mixed).tobytes() == np.asarray(expected).tobytes()


def test_the_memory_matters(saved: Any) -> None:
    """Two sessions that share one memory, as they would on one LeRobot policy, do something else."""
    policy = load(saved("tiny_rnn"))
    one, other = Player(policy, 1), Player(policy, 2)
    expected = alone(policy, 1)
    while not one.done:
        for player in (one, other):
            player.play(policy.act([player.look()], [player.state])[0])
        one.state.memory = other.state.memory
    assert not np.allclose(one.actions, expected, atol=1e-3)


def test_it_says_what_it_does_and_why(saved: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        load(saved("tdmpc"))
    assert "of type 'tdmpc' is driven through its own select_action, as it keeps _prev_mean from step" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        policy = load(saved("tiny_rnn"))
        together(policy, (1, 2, 3), ["Reach a goal position"] * 3)
    assert caplog.text.count("is driven through its own select_action, as it keeps _hidden, _seen from step") == 1
    assert len(caplog.records) == 1


@pytest.mark.parametrize("name", CONFIGS)
def test_in_a_program_that_trains_it_does_the_same(name: str, saved: Any) -> None:
    """There passes are made without inference mode, though the policy was tried out in it when it was loaded."""
    policy = load(saved(name))
    expected = alone(policy, 7)
    policy.in_training = True
    assert alone(policy, 7).tobytes() == expected.tobytes()


def test_a_memory_inside_the_network_is_noticed_and_told(saved: Any) -> None:
    policy = load(saved("tiny_vla-kept"))
    (warning,) = policy.warnings
    assert "is driven through its own select_action, as what it answers depends on what it saw before" in warning
    assert load(save(TinyVLAConfig(**features(SIDE)), saved("tiny_vla-kept") / "plain")).warnings == []


def test_a_policy_that_cannot_be_tried_out_is_told_to_whoever_evaluates_it(tmp_path: Path) -> None:
    policy = load(save(TinyVLAConfig(**features(SIDE), picky=True), tmp_path / "picky"))
    assert policy.spec.chunk_length == 4
    (warning,) = policy.warnings
    assert "ValueError: what is the goal?" in warning
    assert "--policy-arg own_loop=true" in render(warning, FLAGS)
    assert load(tmp_path / "picky", own_loop=True).spec.chunk_length == 1


def test_weights_are_loaded_once(saved: Any) -> None:
    policy = load(saved("tiny_rnn-late"))
    weights = {parameter.data_ptr() for parameter in policy._module.parameters()}
    tiny_rnn.LOADED.clear()
    players = [Player(policy, seed) for seed in range(4)]
    for _ in range(3):
        for player, chunk in zip(
            players, policy.act([p.look() for p in players], [p.state for p in players]), strict=True
        ):
            player.play(chunk)
    assert {parameter.data_ptr() for parameter in policy._module.parameters()} == weights
    assert not tiny_rnn.LOADED, "what the policy loads when it is first called was loaded when it was tried"
    buffers = {
        next(iter(p.state.memory["kept"][policy._module.leaky]["_buffers"].values())).data_ptr() for p in players
    }
    assert len(buffers) == len(players)


def test_a_policy_without_chunks_has_its_own_loop(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = ActorConfig(**features(SIDE), latent_dim=8, image_encoder_hidden_dim=8, storage_device="cpu")
    folder = save(config, tmp_path / "actor")
    with caplog.at_level(logging.WARNING):
        policy = load(folder)
    assert "as it does not predict chunks of actions" in caplog.text
    assert alone(policy, 7).tobytes() == by_lerobot(folder, 7).tobytes()


def test_it_can_be_asked_for(tmp_path: Path) -> None:
    folder = save(act_config(SIDE), tmp_path / "act")
    assert load(folder).spec.chunk_length == 5
    policy = load(folder, own_loop=True)
    assert policy.spec.chunk_length == 1
    assert alone(policy, 7).tobytes() == by_lerobot(folder, 7).tobytes()


def test_a_policy_that_fails_leaves_no_trace_in_others(saved: Any) -> None:
    policy = load(saved("tdmpc"))
    expected = alone(policy, 1)
    player, broken = Player(policy, 1), Player(policy, 2)
    while not player.done:
        player.play(policy.act([player.look()], [player.state])[0])
        looked = broken.look()
        spoiled = type(looked)({**looked, "observation.state": np.zeros(3, np.float32)}, looked.task, looked.step)
        with pytest.raises(RuntimeError):
            policy.act([spoiled], [broken.state])
    assert np.asarray(player.actions).tobytes() == expected.tobytes()


def test_networks_that_are_made_anew_in_every_episode(tmp_path: Path) -> None:
    folder = save(TinyRNNConfig(**features(SIDE), new_parts=True), tmp_path / "new")
    assert "'tiny_rnn' makes new parts of its network in reset()" in refusal(folder)

"""PushT and ALOHA here and in LeRobot's own loop: the same observations, rewards, success and eval_info.json.

LeRobot 0.6.1 with gym-pusht 0.1.8, pymunk 6 and gym-aloha 0.1.5, for an interpreter that has LeRobot and what
`sparring env create` installs for either: make test-gym.
"""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from checkpoints import ACTION, IMAGE, STATE, act_config, save
from gym_by_lerobot import assert_same, by_sparring, rollout
from support import Sparring

from sparring.env_worker.gl import choose_backend
from sparring.env_worker.protocol import protocols_of, whole
from sparring.env_worker.registry import get_benchmark
from sparring.policy_server.policies._aloha.handover import hand_over
from sparring.policy_server.policies._pusht.player import PushtPlayer
from sparring.protos.tensor import Array

pytestmark = pytest.mark.requires("gym-packages")

KEYPOINTS = "observation.environment_state"
TOP = "observation.images.top"
CUBE = "AlohaTransferCube-v0"

choose_backend()  # as a worker does, before anything imports MuJoCo


def test_these_are_the_versions() -> None:
    found = {name: version(name) for name in ("lerobot", "gym-pusht", "gym-aloha")}
    assert found == {"lerobot": "0.6.1", "gym-pusht": "0.1.8", "gym-aloha": "0.1.5"}
    assert version("pymunk").startswith("6.")


def make(benchmark: str, task: str, **settings: Any) -> Any:
    known = get_benchmark(benchmark)
    return known.make(known.tasks(task)[0], known.read_settings(settings))


def expert_actions(seed: int) -> Array:
    """Those of an episode that succeeds."""
    simulator, player, look = make("pusht", "PushT-v0"), PushtPlayer(), frozenset({STATE, KEYPOINTS})
    seen, actions, ended = simulator.reset(seed=seed, index=0, look=look), [], False
    while not ended:
        actions.append(player.act(seen[STATE].astype(float), seen[KEYPOINTS].astype(float).reshape(8, 2)))
        step = simulator.step(actions[-1], look=look)
        seen, ended = step.observation, step.terminated or step.truncated
    assert step.success
    return np.array(actions, np.float32)


@pytest.mark.parametrize("kind", ["pusht", "aloha"])
def test_the_protocol_has_lerobots_limit_and_the_settings_that_are_played_below(kind: str) -> None:
    from lerobot.envs.configs import AlohaEnv, PushtEnv

    known = get_benchmark(kind)
    protocol = whole(known, protocols_of(known)["lerobot-0.6"])
    env = PushtEnv() if kind == "pusht" else AlohaEnv()
    assert protocol.settings["max_steps"] == env.episode_length
    assert protocol.values == whole(known, protocols_of(known)["ours"]).values  # by which all tests here are played


@pytest.mark.parametrize(
    ("kind", "names"),
    [("pixels_agent_pos", [IMAGE, STATE]), ("environment_state_agent_pos", [KEYPOINTS, STATE])],
)
def test_an_episode_of_pusht_that_succeeds_is_lerobots(kind: str, names: list[str]) -> None:
    from lerobot.envs.configs import PushtEnv

    actions = expert_actions(1000)
    ours = by_sparring(make("pusht", "PushT-v0"), actions, 1000, names)
    assert_same(ours, rollout(PushtEnv(obs_type=kind), actions, 1000))
    assert ours["success"] == [False] * (len(actions) - 1) + [True]
    assert max(ours["reward"]) == 1.0


def test_an_episode_of_pusht_that_runs_out_of_time_is_lerobots() -> None:
    from lerobot.envs.configs import PushtEnv

    actions = np.random.default_rng(3).uniform(0, 512, (25, 2)).astype(np.float32)
    ours = by_sparring(make("pusht", "PushT-v0", max_steps=25), actions, 7, [IMAGE, STATE])
    assert_same(ours, rollout(PushtEnv(episode_length=25), actions, 7))
    assert len(ours["done"]) == 25
    assert not any(ours["success"])


def test_an_episode_of_aloha_is_lerobots() -> None:
    """Short, for LeRobot draws three images in every step: the end of one that succeeds is another test's."""
    from lerobot.envs.configs import AlohaEnv

    simulator = make("aloha", CUBE, max_steps=8)
    cube = simulator.reset(seed=1001, index=0, look=frozenset({"environment_state"}))["environment_state"]
    actions = hand_over(cube[:3])[60:68]  # where the arm has the longest way to go
    ours = by_sparring(simulator, actions, 1001, [TOP, STATE])
    assert_same(ours, rollout(AlohaEnv(task=CUBE, episode_length=8), actions, 1001))
    assert ours["done"] == [False] * 7 + [True]
    assert ours["observation"][TOP].shape[1:] == (480, 640, 3)
    assert not np.array_equal(ours["observation"][TOP][0], ours["observation"][TOP][-2]), "something has moved"


def evaluated(config: Any, checkpoint: Path, episodes: int) -> dict[str, Any]:
    """What `lerobot-eval` puts in eval_info.json, from its own `eval_policy_all`, without films."""
    from lerobot.configs.policies import PreTrainedConfig
    from lerobot.envs.factory import make_env, make_env_pre_post_processors
    from lerobot.policies.factory import make_policy, make_pre_post_processors
    from lerobot.scripts.lerobot_eval import eval_policy_all

    policy_config = PreTrainedConfig.from_pretrained(checkpoint, cli_overrides=["--device=cpu"])
    policy_config.pretrained_path = checkpoint
    policy = make_policy(policy_config, env_cfg=config, rename_map={"": ""})  # a map: sizes are not compared
    pre, post = make_pre_post_processors(policy_config, pretrained_path=str(checkpoint))
    env_pre, env_post = make_env_pre_post_processors(config, policy_config)
    with torch.no_grad():
        info: dict[str, Any] = eval_policy_all(
            make_env(config, n_envs=1), policy, env_pre, env_post, pre, post, episodes, start_seed=1000,
            max_episodes_rendered=0,
        )  # fmt: skip
    return info


def told(info: dict[str, Any]) -> tuple[Any, list[bool], Any]:
    """What LeRobot tells of its one task: where it is, what has succeeded, and sums and maxima of rewards."""
    (task,) = info["per_task"]
    numbers = task["metrics"]["sum_rewards"] + task["metrics"]["max_rewards"]
    return (task["task_group"], task["task_id"]), task["metrics"]["successes"], pytest.approx(numbers, rel=1e-12)


def statistics(numbers: int) -> dict[str, dict[str, torch.Tensor]]:
    """Of a data set whose actions and states are of a board of 512, or of joints."""
    middle, wide = (256.0, 100.0) if numbers == 2 else (0.0, 0.5)
    return {
        STATE: {"mean": torch.full((numbers,), middle), "std": torch.full((numbers,), wide)},
        ACTION: {"mean": torch.full((numbers,), middle), "std": torch.full((numbers,), wide)},
    }


@pytest.mark.processes
@pytest.mark.parametrize("kind", ["pusht", "aloha"])
def test_only_the_commands_name_changes(sparring: Sparring, tmp_path: Path, kind: str) -> None:
    from lerobot.configs.types import FeatureType, PolicyFeature
    from lerobot.envs.configs import AlohaEnv, PushtEnv

    camera, size, numbers = (IMAGE, (96, 96), 2) if kind == "pusht" else (TOP, (480, 640), 14)
    steps, episodes = (20, 2) if kind == "pusht" else (4, 1)  # LeRobot draws three images in each step of ALOHA
    config = act_config(96, (camera,))
    config.input_features[camera] = PolicyFeature(FeatureType.VISUAL, (3, *size))
    config.input_features[STATE] = PolicyFeature(FeatureType.STATE, (numbers,))
    config.output_features[ACTION] = PolicyFeature(FeatureType.ACTION, (numbers,))
    checkpoint = save(config, tmp_path / "checkpoint", statistics=statistics(numbers))
    env = PushtEnv(episode_length=steps) if kind == "pusht" else AlohaEnv(task=CUBE, episode_length=steps)
    theirs = evaluated(env, checkpoint, episodes)
    done = sparring(
        "lerobot-eval", f"--policy.path={checkpoint}", "--policy.device=cpu", f"--env.type={kind}",
        f"--env.task={env.task}", f"--env.episode_length={steps}", f"--eval.n_episodes={episodes}",
        "--eval.batch_size=1", "--output_dir=out", timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    ours = json.loads((tmp_path / "out" / "eval_info.json").read_text())
    place, successes, rewards = told(theirs)
    assert told(ours)[:2] == (place, successes) == ((kind, 0), [False] * episodes)
    metrics = ours["per_task"][0]["metrics"]
    assert metrics["sum_rewards"] + metrics["max_rewards"] == rewards
    assert any(metrics["sum_rewards"]) or kind == "aloha"
    assert (tmp_path / f"out/videos/{kind}_0/eval_episode_0.mp4").is_file()

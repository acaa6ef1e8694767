"""X-VLA on LIBERO: LeRobot's environment processors around LeRobot's policy, here and in LeRobot's own loop."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lerobot.configs.policies import PreTrainedConfig
from lerobot.envs.configs import LiberoEnv
from lerobot.envs.factory import make_env_pre_post_processors
from lerobot.envs.utils import preprocess_observation
from lerobot.policies.factory import get_policy_class, make_pre_post_processors
from support import Sparring
from tiny_xvla import IMAGES, SENTENCES, save_xvla, xvla_config

from sparring.env_worker.benchmarks._libero.observations import lerobot_state, offers
from sparring.policy_server.policies import load_policy
from sparring.policy_server.policies.base import Array, Instruction, Observation
from sparring.protos.errors import UsageError
from sparring.protos.spec import SpecMismatch

SIDE, STEPS = 64, 10
OFFER = offers(control="absolute", resolution=SIDE)
OTHER_NAMES = ("observation.images.camera1", "observation.images.camera2")
TO_OTHER_NAMES = dict(zip(IMAGES, OTHER_NAMES, strict=True))

CHECKPOINTS: dict[str, Callable[[Path], Path]] = {
    "published": lambda folder: save_xvla(xvla_config(SIDE), folder),
    "trained": lambda folder: save_xvla(xvla_config(SIDE), folder, published=False),
    "bfloat16": lambda folder: save_xvla(xvla_config(SIDE, dtype="bfloat16"), folder),
    "other names": lambda folder: save_xvla(xvla_config(SIDE, OTHER_NAMES), folder),
    "three cameras": lambda folder: save_xvla(xvla_config(SIDE, (*IMAGES, "observation.images.image3")), folder),
    "auto": lambda folder: save_xvla(xvla_config(SIDE, size=7, action_mode="auto"), folder, published=False),
    "auto poses": lambda folder: save_xvla(xvla_config(SIDE, size=20, action_mode="auto"), folder),
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folders: dict[str, Path] = {}

    def checkpoint(name: str) -> Path:
        if name not in folders:
            folders[name] = CHECKPOINTS[name](tmp_path_factory.mktemp("xvla") / "checkpoint")
        return folders[name]

    return checkpoint


def load(folder: Path, **arguments: Any) -> Any:
    return _loaded(folder, json.dumps({"device": "cpu", **arguments}))


@cache
def _loaded(folder: Path, arguments: str) -> Any:
    return load_policy(f"lerobot:{folder}", json.loads(arguments))


def film(seed: int) -> list[dict[str, Any]]:
    """Observations as a vector of one of LeRobot's LIBERO environments has them, images as they are rendered."""
    rng = np.random.default_rng(seed)
    return [
        {
            "pixels": {name: rng.integers(0, 256, (1, SIDE, SIDE, 3), np.uint8) for name in ("image", "image2")},
            "robot_state": {
                "eef": {
                    "pos": rng.uniform(-1, 1, (1, 3)),
                    "quat": rng.uniform(-1, 1, (1, 4)),
                    "mat": np.linalg.qr(rng.normal(size=(1, 3, 3)))[0],
                },
                "gripper": {"qpos": rng.random((1, 2)), "qvel": rng.random((1, 2))},
                "joints": {"pos": rng.random((1, 7)), "vel": rng.random((1, 7))},
            },
        }
        for _ in range(STEPS)
    ]


def offered(raw: dict[str, Any]) -> dict[str, Array]:
    """The same as LIBERO's worker would send it; tests/libero holds that it does."""
    pose, fingers = raw["robot_state"]["eef"], raw["robot_state"]["gripper"]["qpos"][0]
    return {
        IMAGES[0]: raw["pixels"]["image"][0, ::-1, ::-1],
        IMAGES[1]: raw["pixels"]["image2"][0, ::-1, ::-1],
        "robot0_eef_pos": pose["pos"][0],
        "robot0_eef_mat": pose["mat"][0],
        "observation.state": lerobot_state(pose["pos"][0], pose["quat"][0], fingers),
    }


class LeRobotsLoop:
    """`lerobot-eval` on one environment, step by step, with the global generator seeded for the episode."""

    def __init__(self, folder: Path, seed: int, sentence: str = SENTENCES[0], **renamed: str) -> None:
        config = PreTrainedConfig.from_pretrained(folder)
        self.policy = get_policy_class(config.type).from_pretrained(folder, config=config)
        self.pre, self.post = make_pre_post_processors(
            config,
            pretrained_path=str(folder),
            preprocessor_overrides={"rename_observations_processor": {"rename_map": renamed}},
        )
        self.env_pre, self.env_post = make_env_pre_post_processors(LiberoEnv(), config)
        self.sentence = sentence
        self.policy.reset()
        torch.manual_seed(seed)

    def step(self, raw: dict[str, Any]) -> Array:
        observation = {**preprocess_observation(raw), "task": [self.sentence]}
        with torch.inference_mode():
            action = self.policy.select_action(self.pre(self.env_pre(observation)))
        action = self.post(action).float()  # numpy, which the next line goes through, has no bfloat16
        return np.asarray(self.env_post({"action": action})["action"][0])

    def play(self, seed: int) -> Array:
        return np.asarray([self.step(raw) for raw in film(seed)])


class Player:
    """A session as a worker of LIBERO plays it."""

    def __init__(self, policy: Any, seed: int, sentence: str = SENTENCES[0], benchmark: str = "libero") -> None:
        self.needs = policy.spec_for(benchmark).settle(OFFER)
        self.task = Instruction(sentence, benchmark=benchmark, name="libero_goal/8", offer=OFFER)
        self.film = [offered(raw) for raw in film(seed)]
        self.state = policy.new_session(self.task, seed)
        self.actions: list[Array] = []

    def look(self) -> Observation:
        shown = self.film[len(self.actions)]
        return Observation({name: shown[name] for name in self.needs.named}, self.task, len(self.actions))

    def play(self, chunk: Array) -> None:
        assert chunk.shape == (self.needs.chunk_length, 7)
        self.actions = [*self.actions, *chunk][:STEPS]


def played(policy: Any, players: Sequence[Player], *, at_once: int = 1) -> list[Array]:
    """The actions of sessions that take turns, alone or `at_once` in a batch."""
    while waiting := [player for player in players if len(player.actions) < STEPS]:
        for first in range(0, len(waiting), at_once):
            now = waiting[first : first + at_once]
            chunks = policy.act([player.look() for player in now], [player.state for player in now])
            for player, chunk in zip(now, chunks, strict=True):
                player.play(chunk)
    return [np.asarray(player.actions) for player in players]


def alone(policy: Any, seed: int) -> Array:
    return played(policy, [Player(policy, seed)])[0]


# ------------------------------------------------------------------------------------ the same numbers as LeRobot's


@pytest.mark.parametrize("name", ["published", "auto poses", "bfloat16"])
def test_two_sessions_that_take_turns_do_what_lerobots_loop_does(name: str, saved: Any) -> None:
    policy = load(saved(name))
    assert policy.warnings == [], "it was tried out, and found to remember nothing but queues"
    theirs = [LeRobotsLoop(saved(name), seed, s).play(seed) for seed, s in zip((7, 8), SENTENCES[:2], strict=True)]
    ours = played(policy, [Player(policy, seed, s) for seed, s in zip((7, 8), SENTENCES[:2], strict=True)])
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)
    assert np.ptp(theirs[0][:, :6], axis=0).min() > 0.05, "a policy that always does the same would prove nothing"
    assert set(np.asarray(ours)[..., 6].ravel()) == {-1.0, 1.0}


def test_sessions_that_share_batches_do_what_they_do_alone(saved: Any) -> None:
    policy = load(saved("published"))
    expected = [alone(policy, seed) for seed in (1, 2, 3)]
    mixed = played(policy, [Player(policy, seed) for seed in (1, 2, 3)], at_once=2)
    np.testing.assert_allclose(mixed, expected, atol=1e-4)


def test_in_deterministic_mode_they_do_exactly_that(saved: Any) -> None:
    policy = load(saved("published"), deterministic=True, pad_to=3)
    expected = [played(policy, [Player(policy, seed, SENTENCES[seed % 2])])[0] for seed in (1, 2, 3)]
    mixed = played(policy, [Player(policy, seed, SENTENCES[seed % 2]) for seed in (1, 2, 3)], at_once=2)
    assert np.asarray(mixed).tobytes() == np.asarray(expected).tobytes()
    assert not any("could not be tried out" in warning for warning in policy.warnings)


@pytest.mark.parametrize("part", ["image", "image2", "turned", "pos", "mat", "sentence"])
def test_everything_that_is_shown_matters(part: str, saved: Any) -> None:
    """So that the same numbers mean the same pictures, the right way up, and the same pose."""
    policy = load(saved("published"))
    player, other = (Player(policy, 7, SENTENCES[1 if n and part == "sentence" else 0]) for n in range(2))
    changed = {name: np.array(array) for name, array in other.film[0].items()}
    if part in ("image", "image2"):
        changed[f"observation.images.{part}"] //= 2
    elif part == "turned":
        changed[IMAGES[1]] = changed[IMAGES[1]][::-1, ::-1]
    elif part != "sentence":
        changed[f"robot0_eef_{part}"] *= 0.5
    other.film[0] = changed
    chunks = [policy.act([who.look()], [who.state])[0] for who in (player, other)]
    assert np.abs(chunks[0] - chunks[1]).max() > 1e-3


def test_names_of_the_policys_own_change_nothing_about_what_is_mirrored(saved: Any) -> None:
    rename = {"camera1": "agentview_image", "camera2": "robot0_eye_in_hand_image"}
    policy = load(saved("other names"), rename=rename)
    ours = alone(policy, 7)
    np.testing.assert_allclose(ours, LeRobotsLoop(saved("other names"), 7, **TO_OTHER_NAMES).play(7), atol=1e-6)
    np.testing.assert_allclose(ours, alone(load(saved("published")), 7), atol=1e-6)


def test_a_camera_that_libero_does_not_have_is_masked_as_lerobot_masks_it(saved: Any) -> None:
    folder = saved("three cameras")
    with pytest.raises(SpecMismatch, match="image3"):
        load(folder).spec_for("libero").settle(OFFER)
    ours = alone(load(folder, empty=["image3"]), 7)
    np.testing.assert_allclose(ours, LeRobotsLoop(folder, 7).play(7), rtol=1e-6, atol=1e-6)


def test_images_are_normalised_once_where_the_checkpoint_does_it_itself(saved: Any) -> None:
    """What lerobot-train saves has the step in its own pre-processor, too: there LeRobot's evaluation breaks off."""
    with pytest.raises(ValueError, match="outside"):
        LeRobotsLoop(saved("trained"), 7).play(7)
    np.testing.assert_allclose(alone(load(saved("trained")), 7), alone(load(saved("published")), 7), atol=1e-6)


def test_a_step_without_a_registered_name_takes_no_other_away(saved: Any, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(saved("published"), tmp_path / "checkpoint"))
    processor = json.loads((folder / "policy_preprocessor.json").read_text())
    step = next(step for step in processor["steps"] if step["registry_name"] == "to_batch_processor")
    step["class"] = "lerobot.processor.batch_processor.AddBatchDimensionProcessorStep"
    del step["registry_name"]
    (folder / "policy_preprocessor.json").write_text(json.dumps(processor))
    trusted = load(folder, trust=True)  # or a class would not be called, LeRobot's own included
    np.testing.assert_allclose(alone(trusted, 7), alone(load(saved("published")), 7), atol=1e-6)


# ------------------------------------------------------------------------------------ what fits, and what does not


def test_relative_control_is_refused_with_the_flag_to_give(saved: Any) -> None:
    needs = load(saved("published")).spec_for("libero")
    assert needs.settle(OFFER).action_dim == 7
    with pytest.raises(SpecMismatch, match=r"give benchmark_arg=\{\"control\": \"absolute\"\}:"):
        needs.settle(replace(OFFER, control="relative"))


def test_a_state_of_another_name_is_refused(saved: Any) -> None:
    with pytest.raises(SpecMismatch, match="made by LeRobot's environment processor"):
        load(saved("published"), rename={"state": "robot0_joint_pos"}).spec_for("libero")


def test_one_that_was_fine_tuned_on_liberos_own_actions_is_served_like_any_other(saved: Any) -> None:
    policy = load(saved("auto"))
    assert policy.spec_for("libero") is policy.spec
    assert policy.spec.settle(replace(OFFER, control="relative")).action_dim == 7
    assert not np.array_equal(np.abs(alone(policy, 7)[:, 6]), np.ones(STEPS)), "its gripper is not made -1 or 1"


def test_elsewhere_it_has_no_environment_processors(saved: Any) -> None:
    policy = load(saved("published"))
    assert policy.spec_for("metaworld") is policy.spec
    assert policy.spec.control == ""


def test_half_precision_is_the_checkpoints_unless_another_is_asked_for(saved: Any) -> None:
    assert next(load(saved("bfloat16"))._module.parameters()).dtype == torch.bfloat16
    for name, dtype in (("bfloat16", "float32"), ("published", "bfloat16")):
        asked = load(saved(name), dtype=dtype)
        assert next(asked._module.parameters()).dtype == getattr(torch, dtype)
        assert np.isfinite(alone(asked, 7)).all()
    with pytest.raises(UsageError, match="float16"):
        load(saved("published"), dtype="float16")


# ------------------------------------------------------------------------------------ in LIBERO itself


@pytest.mark.requires("libero", "libero-assets")
def test_lerobot_eval_on_libero_plays_what_lerobot_would_have_answered(
    saved: Any, sparring: Sparring, tmp_path: Path
) -> None:
    """The worker in LIBERO's Python, the policy server in this one; LeRobot's loop is shown what was seen."""
    folder, steps = saved("published"), 8
    done = sparring(
        "lerobot-eval", f"--policy.path={folder}", "--policy.device=cpu", "--env.type=libero", "--env.task=libero_goal",
        "--env.task_ids=[1]", "--env.control_mode=absolute", f"--env.observation_height={SIDE}",
        f"--env.observation_width={SIDE}", f"--env.episode_length={steps}", "--eval.n_episodes=2",
        "--eval.batch_size=1", "--seed=1000", "--output_dir=out", "--", "--record", "seen", "--video", "none",
        "--retries", "0", timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for index in range(2):
        with np.load(tmp_path / "seen" / "libero" / "libero_goal_1" / f"{index:04}.npz") as episode:
            about = json.loads(episode["about"].tobytes())
            seen = {name.removeprefix("observations/"): episode[name] for name in episode if "observations/" in name}
            looks, actions = list(episode["looks"]), episode["actions"]
        assert looks == [0, 4]
        assert seen.keys() == {*IMAGES, "robot0_eef_pos", "robot0_eef_mat"}
        assert len(actions) == steps
        rotations = seen["robot0_eef_mat"]
        np.testing.assert_allclose(rotations @ rotations.transpose(0, 2, 1), [np.eye(3)] * 2, atol=1e-6)
        loop = LeRobotsLoop(folder, about["seed"], about["instruction"])
        for step in range(steps):
            look = step // 4  # LeRobot looks at every step, and answers from the queue at most of them
            answer = loop.step(
                {
                    "pixels": {
                        "image": seen[IMAGES[0]][look][None, ::-1, ::-1].copy(),
                        "image2": seen[IMAGES[1]][look][None, ::-1, ::-1].copy(),
                    },
                    "robot_state": {
                        "eef": {"pos": seen["robot0_eef_pos"][look][None], "mat": seen["robot0_eef_mat"][look][None]}
                    },
                }
            )
            np.testing.assert_allclose(actions[step], answer, rtol=1e-6, atol=1e-6)


@pytest.mark.everything
@pytest.mark.requires("libero", "libero-assets")
def test_lerobot_eval_names_its_own_flag_where_control_is_relative(
    saved: Any, sparring: Sparring, tmp_path: Path
) -> None:
    done = sparring(
        "lerobot-eval", f"--policy.path={saved('published')}", "--policy.device=cpu", "--env.type=libero",
        "--env.task=libero_goal", "--env.task_ids=[1]", "--eval.n_episodes=1", "--eval.batch_size=1",
        "--output_dir=out", timeout=200,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    sentence = next(line for line in done.stderr.splitlines() if "do not fit together" in line)
    assert sentence.endswith("its actions are absolute, so give --env.control_mode=absolute:")

"""`sparring lerobot-eval` beside LeRobot's own evaluation: the same flags, the same eval_info.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import act_config, save
from metaworld_by_lerobot import make_envs
from support import Sparring

SIDE, STEPS, EPISODES, SEED = 96, 12, 2, 1000
TASKS = "reach-v3,metaworld-door-open-v3"


def by_lerobot(checkpoint: Path, tasks: str = TASKS) -> dict[str, Any]:
    """What `lerobot-eval` puts in eval_info.json, from its own `eval_policy_all`, without films."""
    from lerobot.configs.policies import PreTrainedConfig
    from lerobot.envs.configs import MetaworldEnv
    from lerobot.envs.factory import make_env_pre_post_processors
    from lerobot.policies.factory import make_policy, make_pre_post_processors
    from lerobot.scripts.lerobot_eval import eval_policy_all

    config = PreTrainedConfig.from_pretrained(checkpoint, cli_overrides=["--device=cpu", "--n_action_steps=3"])
    config.pretrained_path = checkpoint
    env_config = MetaworldEnv(task=tasks)
    envs = make_envs(env_config, tasks, steps=STEPS, side=SIDE)
    policy = make_policy(config, env_cfg=env_config, rename_map={"": ""})  # a map: sizes are not compared
    pre, post = make_pre_post_processors(config, pretrained_path=str(checkpoint))
    env_pre, env_post = make_env_pre_post_processors(env_config, config)
    with torch.no_grad():
        info: dict[str, Any] = eval_policy_all(
            envs, policy, env_pre, env_post, pre, post, EPISODES, start_seed=SEED, max_episodes_rendered=0
        )
    return info


def without(info: Any, *keys: str) -> Any:
    if isinstance(info, dict):
        return {key: without(value, *keys) for key, value in info.items() if key not in keys}
    return [without(value, *keys) for value in info] if isinstance(info, list) else info


def flat(info: Any, path: str = "") -> dict[str, Any]:
    """Every number and name by its place."""
    pairs = info.items() if isinstance(info, dict) else enumerate(info) if isinstance(info, list) else ()
    inner = {k: v for key, value in pairs for k, v in flat(value, f"{path}/{key}").items()}
    return inner or {path: info}


def test_only_the_commands_name_changes(sparring: Sparring, tmp_path: Path) -> None:
    checkpoint = save(act_config(SIDE), tmp_path / "checkpoint")
    theirs = by_lerobot(checkpoint)
    done = sparring(
        "lerobot-eval", f"--policy.path={checkpoint}", "--policy.device=cpu", "--policy.n_action_steps=3",
        "--env.type=metaworld", f"--env.task={TASKS}", f"--eval.n_episodes={EPISODES}", "--eval.batch_size=1",
        f"--seed={SEED}", "--output_dir=out",
        "--", "--max-steps", str(STEPS), "--benchmark-arg", f"resolution={SIDE}", timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    ours = json.loads((tmp_path / "out" / "eval_info.json").read_text())
    newer = {"predicted_video_paths"} - theirs["overall"].keys()  # written for everyone, and LeRobot 0.4 has none
    assert list(without(ours, *newer)["overall"]) == list(theirs["overall"])
    changing = ("video_paths", "eval_s", "eval_ep_s", *newer)
    found, wanted = flat(without(ours, *changing)), flat(without(theirs, *changing))
    assert found == {
        place: pytest.approx(value, rel=1e-6) if isinstance(value, float) else value for place, value in wanted.items()
    }
    sums = [total for task in ours["per_task"] for total in task["metrics"]["sum_rewards"]]
    assert len({round(total, 3) for total in sums}) == 2 * EPISODES, "episodes that are all alike would prove nothing"
    assert found["/per_task/1/task_group"] == "metaworld-door-open-v3"
    assert len(ours["overall"]["video_paths"]) == 2 * EPISODES
    assert all((tmp_path / path).is_file() for path in ours["overall"]["video_paths"])


@pytest.mark.everything
def test_images_of_another_size_are_shown_as_lerobot_shows_them_and_it_is_said(
    sparring: Sparring, tmp_path: Path
) -> None:
    checkpoint = save(act_config(64), tmp_path / "checkpoint")
    theirs = by_lerobot(checkpoint, "reach-v3")
    own = ("--max-steps", str(STEPS), "--benchmark-arg", f"resolution={SIDE}", "--video", "none")
    done = sparring(
        "lerobot-eval", f"--policy.path={checkpoint}", "--policy.device=cpu", "--policy.n_action_steps=3",
        "--env.type=metaworld", "--env.task=reach-v3", f"--eval.n_episodes={EPISODES}", "--eval.batch_size=1",
        f"--seed={SEED}", "--output_dir=out", "--", *own, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    ours = json.loads((tmp_path / "out" / "eval_info.json").read_text())
    sums = ours["per_task"][0]["metrics"]["sum_rewards"]
    assert sums == pytest.approx(theirs["per_task"][0]["metrics"]["sum_rewards"], rel=1e-6)
    said = "the policy was trained on images of 64×64 as 'observation.image' and is shown 96×96."
    flag = "-- --benchmark-arg resolution=64"
    for place in (done.stderr, done.stdout):
        assert said in " ".join(place.split())
        assert flag in " ".join(place.split())
    (warning,) = json.loads((tmp_path / "out" / "run.json").read_text())["server_stats"]["warnings"]
    assert said in warning

    strict = sparring(
        "run", "--policy", f"lerobot:{checkpoint}", "--policy-arg", "device=cpu", "--benchmark", "metaworld",
        "--task", "reach-v3", "--episodes", "1", *own, timeout=100,
    )  # fmt: skip
    assert strict.returncode == 2, strict.stdout + strict.stderr
    assert "--benchmark-arg resolution=64" in strict.stderr


def test_a_checkpoint_that_is_not_there_is_a_sentence(sparring: Sparring, tmp_path: Path) -> None:
    done = sparring(
        "lerobot-eval", "--policy.path=nowhere/to be found", "--env.type=metaworld", "--env.task=reach-v3",
        "--output_dir=out",
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert "there is no folder 'nowhere/to be found'" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.everything
def test_a_setting_that_the_checkpoint_does_not_have_is_named(sparring: Sparring, tmp_path: Path) -> None:
    checkpoint = save(act_config(SIDE), tmp_path / "checkpoint")
    done = sparring(
        "lerobot-eval", f"--policy.path={checkpoint}", "--policy.n_action_step=3", "--env.type=metaworld",
        "--env.task=reach-v3", "--output_dir=out",
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert "n_action_step" in done.stderr
    assert "n_action_steps" in done.stderr

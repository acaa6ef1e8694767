"""`sparring lerobot-eval` from LeRobot's flags to LeRobot's output folder.

The checkpoint is replaced by the scripted expert (after `--`, Sparring's own flags win): what is tested here is the
command and what it writes. tests/lerobot is about checkpoints.
"""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from support import Sparring

FLAGS = ("--policy.path=me/act", "--env.type=metaworld", "--eval.n_episodes=2", "--seed=40", "--output_dir=out/eval")
EXPERT = ("--policy", "expert", "--benchmark-arg", "resolution=32", "--video-fps", "4")


def as_lerobot(tasks: list[tuple[str, int, dict[str, list[Any]]]]) -> dict[str, Any]:
    """What LeRobot's `eval_policy_all` makes of the metrics of tasks, but for the times; written after its source."""
    accumulated: dict[str, dict[str, list[Any]]] = {}
    for group, _, metrics in tasks:
        for key, values in metrics.items():
            for name in (group, ""):
                accumulated.setdefault(name, {}).setdefault(key, []).extend(values)

    def aggregated(found: dict[str, list[Any]]) -> dict[str, Any]:
        return {
            "avg_sum_reward": float(np.nanmean(np.array(found["sum_rewards"], dtype=float))),
            "avg_max_reward": float(np.nanmean(np.array(found["max_rewards"], dtype=float))),
            "pc_success": float(np.nanmean(np.array(found["successes"], dtype=float))) * 100,
            "n_episodes": len(found["sum_rewards"]),
            "video_paths": found["video_paths"],
            "predicted_video_paths": found["predicted_video_paths"],
        }

    return {
        "per_task": [{"task_group": g, "task_id": i, "metrics": m} for g, i, m in tasks],
        "per_group": {name: aggregated(found) for name, found in accumulated.items() if name},
        "overall": aggregated(accumulated[""]),
    }


def test_the_output_folder_is_lerobots(sparring: Sparring, tmp_path: Path) -> None:
    # Two groups of one task each: by its name, and with the prefix that LeRobot takes off.
    done = sparring("lerobot-eval", *FLAGS, "--env.task=reach-v3,metaworld-drawer-close-v3", "--", *EXPERT)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "out" / "eval"
    info = json.loads((folder / "eval_info.json").read_text())
    with (folder / "episodes.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["seed"]) for row in rows] == [40, 41] * 2
    tasks = []
    for group, name in (("reach-v3", "reach-v3"), ("metaworld-drawer-close-v3", "drawer-close-v3")):
        found = [row for row in rows if row["task"] == name]
        metrics = {
            "sum_rewards": [float(row["reward_sum"]) for row in found],
            "max_rewards": [float(row["reward_max"]) for row in found],
            "successes": [row["outcome"] == "success" for row in found],
            "video_paths": [f"out/eval/videos/{group}_0/eval_episode_{k}.mp4" for k in range(2)],
            "predicted_video_paths": [],
        }
        tasks.append((group, 0, metrics))
    overall = info["overall"]
    seconds, per_episode = overall.pop("eval_s"), overall.pop("eval_ep_s")
    assert info == as_lerobot(tasks)
    assert per_episode == seconds / 4
    assert json.loads((folder / "run.json").read_text())["status"] == "finished"
    for path in overall["video_paths"]:
        with av.open(str(tmp_path / path)) as film:
            assert sum(1 for _ in film.decode(video=0)) > 1


@pytest.mark.everything
def test_ten_episodes_of_a_task_are_filmed_and_a_group_counts_its_tasks(sparring: Sparring, tmp_path: Path) -> None:
    done = sparring(
        "lerobot-eval", "--policy.path", "me/act", "--env.type", "metaworld", "--env.task", "hard",
        "--eval.n_episodes", "1", "--output_dir", "out", "--", *EXPERT, "--max-steps", "3", "--video-fps", "80",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    info = json.loads((tmp_path / "out" / "eval_info.json").read_text())
    assert [(task["task_group"], task["task_id"]) for task in info["per_task"]] == [("hard", k) for k in range(6)]
    assert sorted(str(p.relative_to(tmp_path)) for p in (tmp_path / "out" / "videos").rglob("*.mp4")) == [
        f"out/videos/hard_{k}/eval_episode_0.mp4" for k in range(6)
    ]


def test_what_cannot_be_understood_ends_with_a_sentence(usage: Sparring, tmp_path: Path) -> None:
    for flags, sentence in (
        (("--env.tsak=reach-v3",), "unknown flag '--env.tsak'. Did you mean '--env.task'"),
        (("--env.task=reach-v9",), "unknown task or group of metaworld: 'reach-v9'. Did you mean 'reach-v3'"),
        (("--env.task=reach-v3", "--", "--vide", "none"), "No such option '--vide'"),
        (("--env.task=reach-v3", "--", "--config", "run.yaml"), "--config cannot follow --: give its settings there"),
    ):
        done = usage("lerobot-eval", *FLAGS, *flags)
        assert done.returncode == 2, done.stderr
        assert sentence in done.stderr
        assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("own", "said"),
    [
        (("--dry-run",), "nothing was started, nothing was written\n"),
        (("--debug", "--index", "1"), "metaworld/reach-v3#1, seed 41: played in this process"),
    ],
)
def test_flags_of_ours_that_are_no_settings_hold_too(
    own: tuple[str, ...], said: str, usage: Sparring, tmp_path: Path
) -> None:
    done = usage("lerobot-eval", *FLAGS, "--env.task=reach-v3", "--", *EXPERT, "--max-steps", "2", *own)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout
    assert not (tmp_path / "out").exists()


def test_help_names_the_flags(usage: Sparring) -> None:
    done = usage("lerobot-eval", "--help")
    assert done.returncode == 0
    for flag in ("--policy.path", "--env.camera_name_mapping", "--eval.batch_size", "--rename_map"):
        assert flag in done.stdout


def test_the_live_page_is_asked_for_after_two_dashes(usage: Sparring, tmp_path: Path) -> None:
    asked = ("lerobot-eval", *FLAGS, "--env.task=reach-v3", "--", *EXPERT, "--video", "none", "--max-steps", "5")
    done = usage(*asked, "--in-process", "--view-listen", "127.0.0.1:0")
    assert done.returncode == 0, done.stderr
    assert re.search(r"live page: http://127\.0\.0\.1:\d+/", done.stderr)
    refused = usage(*asked, "--output", "other", "--view-listen", "0.0.0.0:0")
    assert refused.returncode == 2
    assert "the live page" in refused.stderr
    assert "view-token-file" in refused.stderr
    assert not (tmp_path / "other").exists()

"""`sparring preflight` on LIBERO, whose simulators have a Python of their own: right set-ups, and mistakes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from preflight.training_sets import changed

pytestmark = [pytest.mark.requires("libero", "libero-assets"), pytest.mark.everything]

IMAGE, RAW = "observation.images.image", "agentview_image"
ON = ("--benchmark", "libero", "--task", "libero_goal/1", "--benchmark-arg", "resolution=64")
SEEING = ("--policy", "seeing_policies:Seeing", "--policy-arg", "size=7")


def sparring(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sparring", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=280, check=False)


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("training")
    play = (
        "--episodes",
        "2",
        "--max-steps",
        "48",
        "--slots",
        "1",
        "--seed",
        "7",
        "--record",
        "seen",
        "--output",
        "run",
    )
    done = sparring("run", *ON, *SEEING, "--policy-arg", f"image={IMAGE}", *play, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "seen"


def found(folder: Path, *more: str, image: str = IMAGE) -> tuple[int, dict[str, Any]]:
    """What is found, by its rule, and the exit code."""
    policy = (*SEEING, "--policy-arg", f"image={image}", "--policy-arg", "chunk=6")
    done = sparring("preflight", *ON, *policy, "--dataset", "set", "--episodes", "1", "--json", *more, cwd=folder)
    assert done.returncode in (0, 3), done.stderr
    checks = json.loads(done.stdout)["checks"]
    return done.returncode, {check["rule"]: check for check in checks if check["verdict"] == "found"}


def test_a_right_set_up_is_left_alone(recordings: Path, tmp_path: Path) -> None:
    changed(recordings, tmp_path, lambda arrays: None)
    assert found(tmp_path) == (0, {})


def test_robosuites_images_where_lerobots_were_trained_on(recordings: Path, tmp_path: Path) -> None:
    changed(recordings, tmp_path, lambda arrays: None)
    code, findings = found(tmp_path, "--dataset-feature", f"{RAW}={IMAGE}", image=RAW)
    hangs = findings[f"{RAW}: it hangs as in training: not upside down, not mirrored."]
    assert code == 3
    assert "it is shown mirrored" in hangs["detail"]
    assert {"setting": "rename", "key": RAW, "value": IMAGE} in hangs["set"]


def times(*factors: float) -> Callable[[dict[str, Any]], None]:
    def change(arrays: dict[str, Any]) -> None:
        arrays["actions"] = arrays["actions"] * np.array(factors)

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [(times(1, 1, 1, 1, 1, 1, -1), "of 'observation.state'"), (times(1, -1, 1, 1, 1, 1, 1), "the other way")],
    ids=["gripper", "a movement"],
)
def test_the_sign_of_actions(change: Any, words: str, recordings: Path, tmp_path: Path) -> None:
    changed(recordings, tmp_path, change)
    _, findings = found(tmp_path)
    rule = "Actions of training do in the simulator what they did then: same sign, same scale, same meaning."
    assert words in findings[rule]["detail"]

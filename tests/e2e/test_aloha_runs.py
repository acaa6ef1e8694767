"""ALOHA in its own Python, with the expert in ours: a run that draws nothing, a film of it, and its replay."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support import Sparring, read_csv

pytestmark = [pytest.mark.processes, pytest.mark.requires("aloha")]


def test_the_expert_is_evaluated_verified_and_filmed(sparring: Sparring, tmp_path: Path) -> None:
    done = sparring(
        "run", "--benchmark=aloha", "--task=all", "--policy=expert", "--episodes=1", "--slots=1", "--output=out",
        "--benchmark-arg=height=60", "--benchmark-arg=width=80", "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["overall"]["success_rate"] == 1.0
    rows = read_csv(tmp_path / "out")
    assert [(row["outcome"], row["renders"], row["round_trips"]) for row in rows] == [("success", "0", "1")] * 2
    versions = json.loads((tmp_path / "out/run.json").read_text())["versions"]
    (worker,) = [found for found in versions.values() if "gym-aloha" in found]
    assert (worker["gym-aloha"], worker["mujoco"]) == ("0.1.5", "3.8.1")

    assert sparring("verify", "out").returncode == 0
    one = ("--episodes=AlohaTransferCube-v0:0", "--fps=2", "--camera=observation.images.top,angle")
    done = sparring("film", "out", *one, "--output=films")
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "films").rglob("*.mp4"))) == 1

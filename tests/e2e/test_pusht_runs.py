"""PushT in its own Python, with the expert in ours: a run, its films, and what can be made of it afterwards."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support import Sparring, read_csv

pytestmark = [pytest.mark.processes, pytest.mark.requires("pusht")]


def test_the_expert_is_evaluated_filmed_verified_and_exported(sparring: Sparring, tmp_path: Path) -> None:
    done = sparring(
        "run", "--benchmark=pusht", "--task=all", "--policy=expert", "--episodes=2", "--slots=1", "--output=out",
        "--video=all", "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["overall"]["success_rate"] == 1.0
    rows = read_csv(tmp_path / "out")
    assert [(row["outcome"], row["renders"]) for row in rows] == [("success", "0")] * 2, "films are made afterwards"
    assert all(json.loads(row["metrics"])["coverage"] > 0.95 for row in rows)
    assert all((tmp_path / "out" / row["video"]).stat().st_size > 1000 for row in rows)
    versions = json.loads((tmp_path / "out/run.json").read_text())["versions"]
    (worker,) = [found for found in versions.values() if "gym-pusht" in found]
    assert (worker["gym-pusht"], worker["pymunk"]) == ("0.1.8", "6.11.1")
    assert "gym-pusht" not in versions["orchestrator"]

    for command in (
        ("verify", "out"),
        ("film", "out", "--episodes=all", "--camera=observation.image", "--output=films"),
        ("export", "out", "dataset", "--format=lerobot"),
    ):
        done = sparring(*command)
        assert done.returncode == 0, f"{command}: {done.stdout} {done.stderr}"
    info = json.loads((tmp_path / "dataset/meta/info.json").read_text())
    assert info["fps"] == 10
    assert info["features"]["observation.image"]["shape"] == [96, 96, 3]
    assert info["features"]["observation.state"]["shape"] == [2]

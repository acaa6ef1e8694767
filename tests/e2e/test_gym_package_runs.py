"""A run whose environments come from packages in a Python of their own: found by itself, and its policy stays here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support import Sparring, read_csv

pytestmark = [pytest.mark.processes, pytest.mark.requires("gym")]


def test_packages_are_played_in_their_own_python(sparring: Sparring, tmp_path: Path) -> None:
    done = sparring(
        "run", "--benchmark=gym", "--task=gym_pusht/PushT-v0,gym_aloha/AlohaInsertion-v0", "--policy=random",
        "--episodes=1", "--slots=1", "--max-steps=8", "--benchmark-arg=draw=on-look", "--output=out",
        "--benchmark-arg", 'kwargs={"obs_type": "pixels_agent_pos"}',
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [(row["steps"], row["renders"]) for row in read_csv(tmp_path / "out")] == [("8", "0")] * 2
    versions = json.loads((tmp_path / "out/run.json").read_text())["versions"]
    worker = next(found for name, found in versions.items() if "gym-pusht" in found)
    assert worker["gym-pusht"] == "0.1.8"
    assert "gym-pusht" not in versions["orchestrator"]


def test_pusht_is_evaluated_by_return_as_by_success(sparring: Sparring, tmp_path: Path) -> None:
    flags = ("run", "--benchmark=gym", "--task=gym_pusht/PushT-v0", "--policy=random", "--episodes=2", "--slots=1")
    results = {}
    for metric in ("return", "success"):
        done = sparring(*flags, "--max-steps=60", f"--metric={metric}", f"--output={metric}", "--json")
        assert done.returncode == 0, done.stderr
        results[metric] = json.loads(done.stdout)["overall"]
    returns = [float(row["reward_sum"]) for row in read_csv(tmp_path / "return")]
    assert returns == [float(row["reward_sum"]) for row in read_csv(tmp_path / "success")], "the same episodes"
    assert any(returns), "its reward is how much of the goal is covered: one of these episodes begins on it"
    for found in results.values():
        assert found["return"]["mean"] == pytest.approx(sum(returns) / 2)
        assert (found["n"], found["judged"], found["errors"]) == (2, 2, 0), "it says what success is, too"

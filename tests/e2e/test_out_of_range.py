"""Actions outside the action space: executed, clipped or an error, and counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support import Sparring, read_csv
from toy_policies import Forward

from sparring import Evaluator
from sparring.policy_server.policies.metaworld_expert import MetaworldExpert

TOY = ("run", "--benchmark", "toy", "--task", "short", "--episodes", "2", "--policy", "toy_policies:Forward")


def run(warm: Evaluator, output: Path, gain: float, **settings: Any) -> list[dict[str, str]]:
    warm.evaluate(Forward(gain), benchmark="toy", tasks="short", episodes=2, slots=2, output=output, **settings)
    return read_csv(output)


def test_by_default_they_are_executed_as_they_are_counted_and_told(sparring: Sparring, tmp_path: Path) -> None:
    done = sparring(*TOY, "--policy-arg", "gain=2", "--policy-arg", "chunk=3", "--output", "out")
    assert done.returncode == 0, done.stderr
    rows = read_csv(tmp_path / "out")
    assert all(int(row["steps"]) <= 10 for row in rows), "two steps at once"
    assert [row["out_of_range"] for row in rows] == [row["steps"] for row in rows], "only what was executed counts"
    total = sum(int(row["steps"]) for row in rows)
    assert f"{total} of {total} actions were outside the action space" in done.stdout
    assert json.loads((tmp_path / "out" / "run.json").read_text())["out_of_range"] == total


def test_actions_inside_are_not_counted_nor_told(warm: Evaluator, tmp_path: Path) -> None:
    rows = run(warm, tmp_path / "out", gain=1.0000001)  # single precision rounds further than that
    assert [row["out_of_range"] for row in rows] == ["0", "0"]
    assert json.loads((tmp_path / "out" / "run.json").read_text())["out_of_range"] == 0


def test_clipped_they_are_the_nearest_inside(warm: Evaluator, tmp_path: Path) -> None:
    clipped = run(warm, tmp_path / "clipped", gain=7, out_of_range="clip")
    inside = run(warm, tmp_path / "inside", gain=1)
    assert [row["out_of_range"] for row in clipped] == [row["steps"] for row in clipped]
    for one, other in zip(clipped, inside, strict=True):
        assert {**one, "out_of_range": ""} == {**other, "out_of_range": ""}


def test_as_an_error_they_say_what_was_wrong(warm: Evaluator, tmp_path: Path) -> None:
    rows = run(warm, tmp_path / "out", gain=-2.5, out_of_range="error", retries_of={"action": 1})
    assert [(row["outcome"], row["error_kind"], row["attempts"]) for row in rows] == [("error", "action", "2")] * 2
    assert rows[0]["error"].startswith(
        "the policy gave -2.5 in dimension 0 of its action for step 0; the action space is -1 to 1 there. "
    )


def test_what_becomes_of_them_is_part_of_the_plan(sparring: Sparring, usage: Sparring) -> None:
    assert sparring(*TOY, "--output", "out").returncode == 0
    done = usage(*TOY, "--out-of-range", "clip", "--output", "out")
    assert done.returncode == 2
    assert 'out_of_range: "pass" there, "clip" now' in done.stderr


@pytest.mark.everything
def test_meta_world_gets_them_as_they_are(warm: Evaluator, tmp_path: Path) -> None:
    """The scripted experts go beyond the action space; Meta-World itself clips, and LeRobot leaves that to it."""
    rows = {}
    for setting in ("pass", "clip"):
        warm.evaluate(
            MetaworldExpert(), benchmark="metaworld", tasks="reach-v3", episodes=2, slots=2, out_of_range=setting,
            output=tmp_path / setting,
        )  # fmt: skip
        rows[setting] = read_csv(tmp_path / setting)
    assert all(int(row["out_of_range"]) > 0 for row in rows["pass"])
    assert [float(row["reward_sum"]) for row in rows["pass"]] == pytest.approx(
        [float(row["reward_sum"]) for row in rows["clip"]]
    )

"""Actions outside the action space: executed, clipped or an error, and counted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support import Sparring, read_csv

TOY = ("run", "--benchmark", "toy", "--task", "short", "--episodes", "2", "--policy", "toy_policies:Forward")


def run(sparring: Sparring, tmp_path: Path, *flags: str, code: int = 0) -> tuple[list[dict[str, str]], str]:
    done = sparring(*TOY, *flags, "--output", "out")
    assert done.returncode == code, done.stderr
    return read_csv(tmp_path / "out"), done.stdout


def test_by_default_they_are_executed_as_they_are_and_counted(sparring: Sparring, tmp_path: Path) -> None:
    rows, told = run(sparring, tmp_path, "--policy-arg", "gain=2", "--policy-arg", "chunk=3")
    assert all(int(row["steps"]) <= 10 for row in rows), "two steps at once"
    assert [row["out_of_range"] for row in rows] == [row["steps"] for row in rows], "only what was executed counts"
    total = sum(int(row["steps"]) for row in rows)
    assert f"{total} of {total} actions were outside the action space" in told
    assert json.loads((tmp_path / "out" / "run.json").read_text())["out_of_range"] == total


def test_actions_inside_are_not_counted_nor_told(sparring: Sparring, tmp_path: Path) -> None:
    rows, told = run(sparring, tmp_path, "--policy-arg", "gain=1.0000001")  # single precision rounds further than that
    assert [row["out_of_range"] for row in rows] == ["0", "0"]
    assert "outside" not in told


def test_clipped_they_are_the_nearest_inside(sparring: Sparring, tmp_path: Path) -> None:
    clipped, _ = run(sparring, tmp_path, "--policy-arg", "gain=7", "--out-of-range", "clip")
    (tmp_path / "out").rename(tmp_path / "clipped")
    inside, _ = run(sparring, tmp_path, "--policy-arg", "gain=1")
    assert [row["out_of_range"] for row in clipped] == [row["steps"] for row in clipped]
    for one, other in zip(clipped, inside, strict=True):
        assert {**one, "out_of_range": ""} == {**other, "out_of_range": ""}


def test_as_an_error_they_say_what_was_wrong(sparring: Sparring, tmp_path: Path) -> None:
    flags = ("--policy-arg", "gain=-2.5", "--out-of-range", "error", "--retries", "1")
    rows, _ = run(sparring, tmp_path, *flags, code=3)
    assert [(row["outcome"], row["error_kind"], row["attempts"]) for row in rows] == [("error", "action", "2")] * 2
    assert rows[0]["error"] == (
        "the policy gave -2.5 in dimension 0 of its action for step 0; the action space is -1 to 1 there. "
        "Execute such actions with --out-of-range clip, or pass."
    )


def test_what_becomes_of_them_is_part_of_the_plan(sparring: Sparring, tmp_path: Path) -> None:
    run(sparring, tmp_path)
    done = sparring(*TOY, "--out-of-range", "clip", "--output", "out")
    assert done.returncode == 2
    assert 'out_of_range: "pass" there, "clip" now' in done.stderr


def test_meta_world_gets_them_as_they_are(sparring: Sparring, tmp_path: Path) -> None:
    """The scripted experts go beyond the action space; Meta-World itself clips, and LeRobot leaves that to it."""
    rows = {}
    for setting in ("pass", "clip"):
        done = sparring(
            "run", "--benchmark", "metaworld", "--task", "reach-v3", "--policy", "expert", "--episodes", "2",
            "--out-of-range", setting, "--output", setting,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        rows[setting] = read_csv(tmp_path / setting)
    assert all(int(row["out_of_range"]) > 0 for row in rows["pass"])
    assert [float(row["reward_sum"]) for row in rows["pass"]] == pytest.approx(
        [float(row["reward_sum"]) for row in rows["clip"]]
    )

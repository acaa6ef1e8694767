"""Output folders of earlier releases go on with this one."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

from support import ROOT, Sparring

OLD = ROOT / "tests" / "fixtures" / "release-0.1.0"


def lines(path: Path, *columns: str) -> list[dict[str, str]]:
    with path.open() as file:
        return [{name: row[name] for name in columns or row} for row in csv.DictReader(file)]


def test_an_unfinished_run_is_finished_with_the_same_numbers(sparring: Sparring, tmp_path: Path) -> None:
    shutil.copytree(OLD / "unfinished", tmp_path / "out")
    before = lines(tmp_path / "out" / "episodes.csv")
    done = sparring("resume", "out")
    assert done.returncode == 0, done.stderr
    columns = ("benchmark", "task", "index", "seed", "outcome", "reward_sum", "reward_max", "steps", "round_trips")
    assert lines(tmp_path / "out" / "episodes.csv", *columns) == lines(OLD / "unfinished-whole.csv", *columns)
    assert len(before) < len(lines(OLD / "unfinished-whole.csv"))
    after = lines(tmp_path / "out" / "episodes.csv", *before[0])
    assert all(row in after for row in before), "an episode that was done was played again"


def test_a_finished_run_tries_its_errors_again_and_nothing_else(sparring: Sparring, tmp_path: Path) -> None:
    shutil.copytree(OLD / "finished", tmp_path / "out")
    before = lines(tmp_path / "out" / "episodes.csv")
    done = sparring("resume", "out")
    assert done.returncode == 3, done.stderr
    after = lines(tmp_path / "out" / "episodes.csv")
    for old, new in zip(before, after, strict=True):
        if old["outcome"] == "error":
            assert (new["outcome"], new["error_kind"]) == ("error", "simulator")
            assert new["error"].startswith(f"{old['error']} (traceback: errors/simulator-"), "found again, and kept"
            assert new["seconds"] != old["seconds"], "it was not tried again"
        else:
            assert new == {
                **old,
                "error_kind": "",
                "metrics": "",
                "worker": "",
                "host": "",
                "maker": "0",
                "renderer": "",
            }
    assert "4 episodes ended in an error (4 simulator)" in done.stdout

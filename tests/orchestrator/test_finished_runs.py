"""Finished runs: asked for again they are shown and left alone, and more episodes of the same plan are added."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from support import ROOT, Sparring, read_csv

OLD = ROOT / "tests" / "fixtures" / "release-0.1.0"
POLICY = "from toy_policies import Wanderer as Mine\n"


def run(usage: Sparring, *more: str, output: str = "out", episodes: int = 3) -> None:
    done = usage(*command(*more, output=output, episodes=episodes))
    assert done.returncode == 0, done.stderr


def command(*more: str, output: str = "out", episodes: int = 3) -> tuple[str, ...]:
    plan = ("--benchmark", "toy", "--task", "good", "--policy", "mine:Mine", "--episodes", str(episodes))
    return ("run", *plan, "--output", output, "--in-process", *more)


@pytest.fixture(autouse=True)
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy beside the user; whatever has imported one of that name before has forgotten it."""
    (tmp_path / "mine.py").write_text(POLICY)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "mine", raising=False)


def everything(folder: Path) -> dict[str, tuple[int, bytes]]:
    """All files and folders, with when they were written and what is in them."""
    return {
        str(path): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in (folder, *folder.rglob("*"))
    }


@pytest.mark.parametrize("again", [("resume", "out"), command(), ("resume", "out", "--slots", "2")])
def test_a_finished_run_is_shown_at_once_and_left_alone(
    again: tuple[str, ...], usage: Sparring, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(usage)
    table = usage("show", "out").stdout.split("\n", 3)[3]
    before = everything(tmp_path / "out")
    # Nothing is there any more that it was made with.
    (tmp_path / "mine.py").unlink()
    monkeypatch.setattr(sys, "path", [place for place in sys.path if not place.endswith("toy")])
    done = usage(*again)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == table.strip()
    shown = usage(*again, "--json")
    assert json.loads(shown.stdout)["overall"]["n"] == 6
    assert everything(tmp_path / "out") == before


def test_files_that_have_changed_since_are_told(usage: Sparring, tmp_path: Path) -> None:
    takes_a_file = "from toy_policies import Wanderer\n\nclass Mine(Wanderer):\n    def __init__(self, file): ...\n"
    (tmp_path / "mine.py").write_text(takes_a_file)
    (tmp_path / "weights.txt").write_text("1")
    run(usage, "--policy-arg", "file=weights.txt")
    again = command("--policy-arg", "file=weights.txt")
    told = usage(*again).stderr
    assert "this run is finished: nothing was played" in told
    assert "changed" not in told
    (tmp_path / "mine.py").write_text(takes_a_file + "# more\n")
    for words in (again, ("resume", "out")):
        told = usage(*words).stderr
        assert "mine.py has changed since these episodes were played. To evaluate what is there now, name a" in told
    (tmp_path / "weights.txt").write_text("2")
    assert "mine.py, weights.txt have changed since" in usage(*again).stderr


def test_films_that_are_wanted_later_are_made_of_the_actions_that_were_kept(usage: Sparring, tmp_path: Path) -> None:
    run(usage)
    rows = read_csv(tmp_path / "out")
    assert not any(row["video"] for row in rows)
    run(usage, "--video", "first:1")
    after = read_csv(tmp_path / "out")
    assert [bool(row["video"]) for row in after] == [row["index"] == "0" for row in rows]
    assert [{**row, "video": ""} for row in after] == rows, "and nothing else has changed"
    before = everything(tmp_path / "out")
    run(usage, "--video", "first:1")
    assert everything(tmp_path / "out") == before, "they are there"


def test_a_finished_run_of_other_settings_is_not_shown_for_this_one(usage: Sparring, tmp_path: Path) -> None:
    run(usage)
    for other in (("--seed", "5"), ("--max-steps", "7"), ("--benchmark-arg", "noise=1"), ("--task", "short")):
        done = usage(*command(*other))
        assert done.returncode == 2, other
        assert "holds the results of another plan" in done.stderr
        # A limit of no steps is none.
        assert ("  max_steps: 0 (the benchmark's own limit) there, 7 now\n" in done.stderr) == ("--max-steps" in other)


def test_errors_of_a_finished_run_are_tried_again(usage: Sparring, tmp_path: Path) -> None:
    shutil.copytree(OLD / "finished", tmp_path / "out")
    before = everything(tmp_path / "out")
    assert usage("resume", "out", "--in-process").returncode == 3
    assert everything(tmp_path / "out") != before


@pytest.mark.parametrize("more", [command(episodes=5), ("resume", "out", "--episodes", "5")])
def test_more_episodes_are_added_to_those_that_there_are(
    more: tuple[str, ...], usage: Sparring, tmp_path: Path
) -> None:
    run(usage)
    first = (tmp_path / "out" / "episodes.csv").read_text().splitlines()
    done = usage(*more)
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "out" / "episodes.csv").read_text().splitlines()
    assert len(lines) == 1 + 10
    assert set(first) <= set(lines), "a row that was there is another one now"
    run(usage, output="whole", episodes=5)
    assert read_csv(tmp_path / "out") == read_csv(tmp_path / "whole")
    document = json.loads((tmp_path / "out" / "run.json").read_text())
    assert (document["episodes"], document["settings"]["episodes"], document["status"]) == (5, 5, "finished")
    before = everything(tmp_path / "out")
    assert usage("resume", "out").returncode == 0
    assert everything(tmp_path / "out") == before, "it is finished now"


def test_fewer_episodes_than_there_are_is_refused(usage: Sparring, tmp_path: Path) -> None:
    run(usage)
    before = [(tmp_path / "out" / name).read_bytes() for name in ("run.json", "episodes.csv")]
    for fewer in (command(episodes=2), ("resume", "out", "--episodes", "2")):
        done = usage(*fewer)
        assert done.returncode == 2
        assert "'out' is a run of 3 episodes per task, and 2 are asked for now" in done.stderr
        assert "Give --episodes 3 or more, or another --output." in done.stderr
    assert [(tmp_path / "out" / name).read_bytes() for name in ("run.json", "episodes.csv")] == before
    assert usage("resume", "out").returncode == 0

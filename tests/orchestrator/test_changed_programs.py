"""Edited code, other arguments, other versions: a run that would go on with them says so, and so do its results."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import ROOT, Sparring, read_csv

from sparring.env_worker.registry import installed_versions
from sparring.orchestrator.execution.in_process import run_in_process
from sparring.orchestrator.results.results import Results
from sparring.orchestrator.results.row import EpisodeRow
from sparring.orchestrator.run.errors import Interrupted
from sparring.orchestrator.run.listeners import RunListener
from sparring.orchestrator.run.make_plan import make_plan
from sparring.orchestrator.settings import read_settings

OLD = ROOT / "tests" / "fixtures" / "release-0.1.0"
MINE = """
import numpy as np
from toy_policies import Forward
from mine_too.gains import GAIN


class Mine(Forward):
    def __init__(self, gain=1.0, weights=""):
        super().__init__(gain * GAIN)
"""


class StopAfter(RunListener):
    """Presses Ctrl-C when so many episodes have been recorded."""

    def __init__(self, episodes: int) -> None:
        self._left = episodes

    def on_result(self, row: EpisodeRow) -> None:
        self._left -= 1
        if not self._left:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.fixture(autouse=True)
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """A policy of two files beside the user, and how to forget that it was imported: it is another process later."""
    (tmp_path / "mine_too").mkdir()
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "mine_too" / "__init__.py").touch()
    (tmp_path / "mine_too" / "gains.py").write_text("GAIN = 1.0\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.chdir(tmp_path)

    def forget() -> None:
        for name in [name for name in sys.modules if name.partition(".")[0] in ("mine", "mine_too", "lines")]:
            monkeypatch.delitem(sys.modules, name)

    forget()
    return forget


def interrupted(forget: Callable[[], None], **settings: Any) -> None:
    """A run that has two of its six episodes when somebody presses Ctrl-C."""
    values = {"benchmark": "toy", "task": "short", "policy": "mine:Mine", "episodes": 6, "output": "out"}
    resolved = read_settings({**values, **settings, "in_process": True})
    with pytest.raises(Interrupted):
        run_in_process(resolved, make_plan(resolved), Path("out"), [StopAfter(2)])
    forget()


def refused(usage: Sparring, *command: str) -> str:
    before = read_csv(Path("out"))
    done = usage(*(command or ("resume", "out")))
    assert done.returncode == 2, done.stdout + done.stderr
    new = {"renderer": ""}  # a column that folders of earlier releases get
    assert read_csv(Path("out")) == [{**new, **row} for row in before]
    return done.stderr


def edit_module() -> None:
    Path("mine.py").write_text(MINE + "# a comment is a change, too: nobody can know better\n")


def edit_what_it_imports() -> None:
    Path("mine_too/gains.py").write_text("GAIN = 0.5\n")


def add_a_module() -> None:
    Path("mine_too/more.py").write_text("LESS = 0.1\n")
    Path("mine_too/gains.py").write_text("def late():\n    from .more import LESS\n    return LESS\nGAIN = 1.0\n")


@pytest.mark.parametrize(
    "call",
    [
        'import_module("mine_too.late")',
        '__import__("mine_too.late")',
        'import_module(f"mine_too.{which}")',
        'import_module("mine_too." + which)',
    ],
)
def test_what_is_imported_by_a_name_is_code_as_well(mine: Callable[[], None], usage: Sparring, call: str) -> None:
    Path("mine_too/late.py").write_text("LATE = 1\n")
    Path("mine.py").write_text(f"from importlib import import_module\n{MINE}\n\ndef late(which):\n    {call}\n")
    interrupted(mine)
    Path("mine_too/late.py").write_text("LATE = 2\n")
    said = refused(usage)
    assert "  mine_too/late.py: was changed\n" in said
    assert said.count(": was changed") == 1


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (edit_module, ["  mine.py: was changed\n"]),
        (edit_what_it_imports, ["  mine_too/gains.py: was changed\n"]),
        (add_a_module, ["  mine_too/gains.py: was changed\n", "  mine_too/more.py: is new\n"]),
    ],
)
def test_edited_code_is_refused_with_the_files(
    edit: Callable[[], None], told: list[str], mine: Callable[[], None], usage: Sparring
) -> None:
    interrupted(mine)
    edit()
    said = refused(usage)
    assert "the policy is not what made the 2 episodes recorded in 'out':" in said
    assert said.count(": was changed") + said.count(": is new") == len(told)
    assert all(line in said for line in told)
    assert "go on with --accept-changes (the results will say so), or give another --output." in said


def test_what_is_not_edited_goes_on_and_nothing_is_said(mine: Callable[[], None], usage: Sparring) -> None:
    interrupted(mine)
    Path("notes.py").write_text("nobody imports this\n")
    done = usage("resume", "out")
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stdout
    assert Results.load("out").changes == []


def test_the_same_command_again_is_held_to_the_same(mine: Callable[[], None], usage: Sparring) -> None:
    interrupted(mine)
    edit_module()
    command = ("run", "--benchmark", "toy", "--task", "short", "--policy", "mine:Mine", "--episodes", "6",
               "--output", "out", "--in-process")  # fmt: skip
    assert "mine.py: was changed" in refused(usage, *command)
    assert usage(*command, "--accept-changes").returncode == 0


def test_what_was_accepted_is_marked_wherever_results_are_read(mine: Callable[[], None], usage: Sparring) -> None:
    interrupted(mine)
    before = read_csv(Path("out"))
    edit_what_it_imports()
    mark = "4 of 6 episodes were made after the policy had changed: mine_too/gains.py: was changed."
    done = usage("resume", "out", "--accept-changes")
    assert done.returncode == 0, done.stderr
    assert "is not what made the 2 episodes recorded so far: mine_too/gains.py: was changed." in done.stderr
    assert f"warning: {mark}" in " ".join(done.stdout.split())
    rows = read_csv(Path("out"))
    assert rows[:2] == before
    assert {row["reward_sum"] for row in rows[:2]}.isdisjoint({row["reward_sum"] for row in rows[2:]})
    document = json.loads(Path("out/run.json").read_text())
    assert document["changes"] == [mark]
    for shown in (usage("show", "out", "--json"), usage("resume", "out", "--json")):
        assert json.loads(shown.stdout)["changes"] == [mark]
        assert mark in json.loads(shown.stdout)["warnings"]
    assert Results.load("out").changes == [mark]
    assert "accept_changes" not in document["settings"], "it is for one time"


def test_what_was_accepted_once_is_accepted_and_what_came_before_it_too(
    mine: Callable[[], None], usage: Sparring
) -> None:
    interrupted(mine)
    edit_module()
    assert usage("resume", "out", "--accept-changes", "--episodes", "7").returncode == 0
    mine()
    assert usage("resume", "out", "--episodes", "8").returncode == 0
    mine()
    Path("mine.py").write_text(MINE)
    assert usage("resume", "out", "--episodes", "9").returncode == 0


def test_other_arguments_are_refused_and_may_be_accepted(mine: Callable[[], None], usage: Sparring) -> None:
    interrupted(mine)
    command = ("run", "--benchmark", "toy", "--task", "short", "--policy", "mine:Mine", "--episodes", "6",
               "--output", "out", "--in-process", "--policy-arg", "gain=0.5")  # fmt: skip
    said = refused(usage, *command)
    assert "policy arguments gain: not given there, 0.5 now" in said
    assert "or go on with --accept-changes" in said
    assert usage(*command, "--accept-changes").returncode == 0
    assert Results.load("out").changes == [
        "4 of 6 episodes were made after the policy had changed: gain: not given there, 0.5 now."
    ]
    other = ("--policy", "toy_policies:Forward")
    said = usage(*command, *other, "--accept-changes", "--episodes", "7").stderr
    assert "another plan" in said, "another policy is no change of this one"
    assert "accept-changes" not in said


def test_a_file_that_an_argument_names_is_part_of_the_policy(mine: Callable[[], None], usage: Sparring) -> None:
    Path("weights.bin").write_bytes(b"1" * 100)
    interrupted(mine, policy_arg={"weights": "weights.bin"})
    Path("weights.bin").write_bytes(b"2" * 100)
    assert "  weights: weights.bin: was changed\n" in refused(usage)


def test_a_folder_that_an_argument_names_is_part_of_the_policy(mine: Callable[[], None], usage: Sparring) -> None:
    """As a checkpoint of one's own is that has a file for each part of the network."""
    Path("weights/encoder").mkdir(parents=True)
    for name in ("head.bin", "encoder/a.bin"):
        Path("weights", name).write_bytes(b"1")
    interrupted(mine, policy_arg={"weights": "weights"})
    Path("weights/encoder/a.bin").write_bytes(b"2")
    assert "  weights: weights: was changed\n" in refused(usage)


def test_a_file_that_a_setting_of_the_benchmark_names_is_part_of_it(mine: Callable[[], None], usage: Sparring) -> None:
    Path("scene.xml").write_text("<a/>")
    Path("scenes.py").write_text(SCENES)
    scene = {"benchmark": "scenes:Scenes", "benchmark_arg": {"scene": "scene.xml"}}
    interrupted(mine, **scene)
    Path("scene.xml").write_text("<b/>")
    said = refused(usage)
    assert "the benchmark 'scenes.Scenes' is not what made the 2 episodes" in said
    assert "  scene: scene.xml: was changed\n" in said


def test_what_is_in_the_package_of_a_benchmark_is_part_of_it(mine: Callable[[], None], usage: Sparring) -> None:
    """As the scenes of a simulator are."""
    Path("mine_too/scenes").mkdir()
    Path("mine_too/scenes/a.xml").write_text("<a/>")
    Path("mine_too/benchmark.py").write_text("from toy_benchmark import Toy\n\n\nclass Mine(Toy): ...\n")
    interrupted(mine, benchmark="mine_too.benchmark:Mine", policy="toy_policies:Forward")
    Path("mine_too/scenes/a.xml").write_text("<b/>")
    assert "  mine_too/other files: was changed\n" in refused(usage)


SCENES = """
from dataclasses import dataclass
from toy_benchmark import Toy, ToySettings


@dataclass(frozen=True)
class Settings(ToySettings):
    scene: str = ""


class Scenes(Toy):
    settings = Settings
"""


def change_versions(where: str, package: str, version: str) -> None:
    """As if the episodes that there are had been made with another version: none of ours can be installed twice."""
    with sqlite3.connect("out/journal.sqlite") as journal:
        for number, text in journal.execute("SELECT id, versions FROM makers").fetchall():
            content = json.loads(text)
            assert package in content[where]
            content[where][package] = version
            changed = json.dumps(content, sort_keys=True)
            journal.execute("UPDATE makers SET versions = ? WHERE id = ?", (changed, number))


@pytest.mark.parametrize(
    ("where", "package", "told"),
    [
        ("worker", "psutil", "the benchmark 'toy' is not what made the 2 episodes"),
        ("policy_server", "numpy", "the policy is not what made the 2 episodes"),
    ],
)
def test_versions_that_decide_numbers_are_refused(
    where: str, package: str, told: str, mine: Callable[[], None], usage: Sparring
) -> None:
    interrupted(mine)
    change_versions(where, package, "0.0.1")
    said = refused(usage)
    assert told in said
    assert f"  {package}: 0.0.1 there, " in said
    assert usage("resume", "out", "--accept-changes").returncode == 0
    assert any(f"different versions of {package}" in sentence for sentence in Results.load("out").warnings)


@pytest.mark.parametrize(("where", "package"), [("worker", "sparring"), ("policy_server", "sparring")])
def test_versions_that_do_not_are_told(where: str, package: str, mine: Callable[[], None], usage: Sparring) -> None:
    interrupted(mine)
    change_versions(where, package, "0.0.1")
    done = usage("resume", "out")
    assert done.returncode == 0, done.stderr
    assert any(f"different versions of {package}" in sentence for sentence in Results.load("out").warnings)


LINES = """
from toy_benchmark import Toy
from lines_far import FAR


class Lines(Toy):
    name = "lines"
"""


def test_the_source_of_a_benchmark_is_held_against_what_it_was(mine: Callable[[], None], usage: Sparring) -> None:
    Path("lines.py").write_text(LINES)
    Path("lines_far.py").write_text("FAR = 1\n")
    info = Path("lines-1.dist-info")
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lines\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[sparring.benchmarks]\nlines = lines:Lines\n")
    interrupted(mine, benchmark="lines")
    Path("lines_far.py").write_text("FAR = 2\n")
    said = refused(usage)
    assert "the benchmark 'lines' is not what made the 2 episodes recorded in 'out':" in said
    assert "\n  lines_far.py: was changed\n" in said
    assert usage("resume", "out", "--accept-changes").returncode == 0
    assert Results.load("out").changes == [
        "4 of 6 episodes were made after the benchmark lines had changed: lines_far.py: was changed."
    ]


def test_a_folder_of_the_first_release_goes_on_and_says_what_cannot_be_checked(usage: Sparring, tmp_path: Path) -> None:
    shutil.copytree(OLD / "unfinished", "out")
    done = usage("resume", "out", "--in-process")
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stderr.split())
    assert "whether the policy is still the one that made the 17 episodes recorded so far cannot be checked" in said
    assert "whether the benchmark 'toy' is still the one that made the 17 episodes" in said
    known = Results.load("out").changes
    assert [sentence.partition(" it is")[0] for sentence in known] == ["of 17 of 24 episodes"] * 2


@pytest.fixture
def before_programs(tmp_path: Path) -> Path:
    """A folder whose makers do not say what they ran, with the versions that are installed here and now."""
    folder = Path(shutil.copytree(ROOT / "tests" / "fixtures" / "journal-4" / "unfinished", tmp_path / "out"))
    with sqlite3.connect(folder / "journal.sqlite") as journal:
        ((text,),) = journal.execute("SELECT versions FROM makers").fetchall()
        content = {**json.loads(text), "worker": installed_versions()}
        assert "programs" not in content
        journal.execute("UPDATE makers SET versions = ?", (json.dumps(content, sort_keys=True),))
    return folder


def test_a_folder_from_before_programs_opens_lists_and_goes_on(before_programs: Path, usage: Sparring) -> None:
    assert "unfinished: 9 of 12 episodes" in usage("show", "out").stdout
    done = usage("resume", "out")
    assert done.returncode == 0, done.stderr
    assert "whether the policy is still the one that made the 9 episodes recorded so far cannot be checked" in " ".join(
        done.stderr.split()
    )
    whole = ROOT / "tests" / "fixtures" / "journal-4" / "unfinished-whole.csv"
    columns = ("benchmark", "task", "index", "seed", "outcome", "reward_sum", "steps")
    with whole.open() as file:
        expected = [{name: row[name] for name in columns} for row in csv.DictReader(file)]
    assert [{name: row[name] for name in columns} for row in read_csv(before_programs)] == expected
    assert len(Results.load("out").changes) == 2


def test_code_that_is_edited_after_an_older_folder_went_on_is_noticed(
    mine: Callable[[], None], usage: Sparring
) -> None:
    interrupted(mine)
    with sqlite3.connect("out/journal.sqlite") as journal:  # as an earlier release has left it
        ((text,),) = journal.execute("SELECT versions FROM makers").fetchall()
        content = {key: value for key, value in json.loads(text).items() if key != "programs"}
        journal.execute("UPDATE makers SET versions = ?", (json.dumps(content, sort_keys=True),))
    assert usage("resume", "out").returncode == 0
    assert usage("resume", "out", "--episodes", "7").returncode == 0, "the same again is not refused"
    edit_module()
    mine()
    assert "\n  mine.py: was changed\n" in refused(usage, "resume", "out", "--episodes", "8")


def test_episodes_are_counted_for_the_benchmark_that_has_changed(mine: Callable[[], None], usage: Sparring) -> None:
    Path("lines.py").write_text(LINES)
    Path("lines_far.py").write_text("FAR = 1\n")
    parts = [{"benchmark": "toy", "task": "short"}, {"benchmark": "lines:Lines", "task": "short"}]
    values = {"evaluations": parts, "policy": "mine:Mine", "episodes": 2, "output": "out", "in_process": True}
    settings = read_settings(values)
    run_in_process(settings, make_plan(settings), Path("out"), [])
    mine()
    Path("lines_far.py").write_text("FAR = 2\n")
    said = refused(usage, "resume", "out", "--episodes", "3")
    assert "the benchmark 'lines.Lines' is not what made the 2 episodes recorded in 'out':" in said


def test_versions_that_were_written_down_before_programs_are_held_against(
    before_programs: Path, usage: Sparring
) -> None:
    change_versions("worker", "numpy", "0.0.1")
    assert "  numpy: 0.0.1 there, " in refused(usage)


ENVIRONMENT = """
import gymnasium


class Env(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (1,))
    action_space = gymnasium.spaces.Box(-1, 1, (1,))

    def reset(self, seed=None, options=None):
        return self.observation_space.low.copy(), {}

    def step(self, action):
        return self.observation_space.low.copy(), 1.0, True, False, {"success": True}


gymnasium.register("Lines-v0", Env)
"""


def test_an_environment_that_a_user_wrote_for_gym_is_held_against_what_it_was(
    mine: Callable[[], None], usage: Sparring
) -> None:
    Path("lines.py").write_text(ENVIRONMENT)
    interrupted(mine, benchmark="gym", task="lines:Lines-v0", policy="zero")
    Path("lines.py").write_text(ENVIRONMENT + "# changed\n")
    said = refused(usage)
    assert "the benchmark 'gym' is not what made the 2 episodes recorded in 'out':" in said
    assert "\n  lines.py: was changed\n" in said

"""The files of a run while it goes: what they say is so."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from rows import ROW
from support import Sparring

from sparring.orchestrator.execution.run_files import RunFiles, check_output, output_folder
from sparring.orchestrator.results.journal import Journal
from sparring.orchestrator.results.results import Results
from sparring.orchestrator.run.errors import RunStopped
from sparring.orchestrator.run.listeners import Listeners
from sparring.orchestrator.run.make_plan import make_plan
from sparring.orchestrator.settings import read_settings
from sparring.policy_server.client import Description
from sparring.protos.errors import UsageError
from sparring.protos.spec import PolicySpec

POLICY = Description("zero", {}, "", "1", PolicySpec({}, action_dim=1))
SETTINGS = read_settings({"benchmark": "toy", "task": "short", "policy": "zero", "episodes": 2})
PLAN = make_plan(SETTINGS)
ROWS = [replace(ROW, task="short", index=index) for index in range(2)]


@contextmanager
def running(folder: Path) -> Iterator[Journal]:
    """A run that has claimed its folder, and ends when this does."""
    with output_folder(folder) as journal:
        files = RunFiles(SETTINGS, PLAN, folder, journal, Listeners())
        with files.saved():
            files.claim(POLICY)
            yield journal


def test_a_run_is_finished_when_every_episode_of_its_plan_has_a_row(tmp_path: Path) -> None:
    with running(tmp_path) as journal:
        for row in ROWS:
            journal.record(row)
    assert json.loads((tmp_path / "run.json").read_text())["status"] == "finished"
    assert Results.load(tmp_path).status == "finished"


def test_a_run_without_a_row_of_some_episode_is_not_finished_whatever_it_thinks(tmp_path: Path) -> None:
    told = r"1 of 2 episodes were not recorded, the first of them toy/short#1"
    with pytest.raises(RunStopped, match=told), running(tmp_path) as journal:
        journal.record(ROWS[0])
    assert json.loads((tmp_path / "run.json").read_text())["status"] == "unfinished"
    with running(tmp_path) as journal:  # and it goes on from there
        assert journal.rows() == ROWS[:1]
        journal.record(ROWS[1])
    assert Results.load(tmp_path).status == "finished"


def test_a_resumed_run_has_the_versions_of_the_release_that_resumed_it(tmp_path: Path) -> None:
    with running(tmp_path) as journal:
        for row in ROWS:
            journal.record(row)
    with closing(Journal(tmp_path)) as journal:
        journal.set_meta("versions", {"orchestrator": {"sparring": "0.0.1"}, "toy-0": {"numpy": "1"}})
    with running(tmp_path):
        pass
    versions = Results.load(tmp_path).versions
    assert versions["orchestrator"]["sparring"] != "0.0.1"
    assert versions["toy-0"] == {"numpy": "1"}, "who has worked for it before is forgotten"


def test_run_json_has_the_rate_and_what_it_would_be_with_the_errors(tmp_path: Path) -> None:
    with running(tmp_path) as journal:
        journal.record(ROWS[0])
        journal.record(replace(ROWS[1], outcome="error", error="boom"))
    assert json.loads((tmp_path / "run.json").read_text())["overall"] == {
        "success_rate": 1.0, "interval": [pytest.approx(0.2065, abs=1e-4), 1.0],
        "n": 1, "judged": 1, "errors": 1, "worst_case": 0.5, "best_case": 1.0,
        "return": {"mean": 1.5, "interval": None, "n": 1}, "steps": {"mean": 3.0, "interval": None, "n": 1},
        "reward_max": {"mean": 1.0, "interval": None, "n": 1},
    }  # fmt: skip


def test_of_a_run_that_was_refused_nothing_is_left_but_what_others_have_put_there(tmp_path: Path) -> None:
    for name in ("alone", "with notes"):
        folder = tmp_path / name

        def refused(folder: Path = folder, name: str = name) -> None:
            with running(folder):
                (folder / "logs").mkdir()
                (folder / "logs" / "worker-toy.log").write_text("a worker said so")
                if name == "with notes":
                    (folder / "notes.txt").write_text("mine")
                raise UsageError("it wants a camera.")

        with pytest.raises(UsageError, match="camera"):
            refused()
    assert [path.name for path in tmp_path.rglob("*")] == ["with notes", "notes.txt"]


class TestAFolderThatIsFree:
    def test_a_folder_with_something_else_in_it_is_left_alone(self, usage: Sparring, tmp_path: Path) -> None:
        docs = tmp_path / "docs"
        docs.mkdir()
        (docs / "guide.md").write_text("mine")
        (docs / "index.md").write_text("mine")
        done = usage("run", "--benchmark=toy", "--task=short", "--policy=zero", "--episodes=1", "--output=docs")
        assert done.returncode == 2
        assert "'docs' has something else in it than a run (guide.md and 1 more)" in done.stderr
        assert "--output" in done.stderr
        assert sorted(path.name for path in docs.iterdir()) == ["guide.md", "index.md"]

    def test_a_file_is_no_folder(self, usage: Sparring, tmp_path: Path) -> None:
        (tmp_path / "notes.md").write_text("mine")
        done = usage("run", "--benchmark=toy", "--task=short", "--policy=zero", "--episodes=1", "--output=notes.md")
        assert done.returncode == 2
        assert "'notes.md' is a file, and results need a folder: --output." in done.stderr
        assert (tmp_path / "notes.md").read_text() == "mine"

    @pytest.mark.parametrize("left", [[], [".gitignore"], ["logs"], ["join-token", "logs"], ["journal.sqlite", "x"]])
    def test_a_run_s_own_folder_and_an_empty_one_are_taken(self, tmp_path: Path, left: list[str]) -> None:
        for name in left:
            (tmp_path / name).touch()
        check_output(tmp_path)
        check_output(tmp_path / "not-there-yet")


def test_a_run_that_is_refused_leaves_no_folder_that_it_made(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    for folder in (tmp_path / "outputs" / "today" / "run", tmp_path / "mine" / "run"):
        with pytest.raises(UsageError), output_folder(folder):
            raise UsageError("there is no such policy.")
    assert [path.name for path in tmp_path.rglob("*")] == ["mine"], "what was there stays"

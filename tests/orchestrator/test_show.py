"""`sparring show`: what it says of runs that are finished, unfinished or going on, and of what is no run."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import ROOT, StartSparring, recorded, wait_for

from sparring.orchestrator.cli.main import main
from sparring.orchestrator.results.journal import Journal
from sparring.orchestrator.results.row import EpisodeRow

OLD = ROOT / "tests" / "fixtures" / "release-0.1.0"

Show = Callable[..., tuple[int, str, str]]


@pytest.fixture
def show(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Show:
    """The command in this process: its exit code, and what it said."""

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["sparring", "show", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return int(str(ended.value.code)), said.out, said.err

    return run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of a finished run, to be changed."""
    return Path(shutil.copytree(OLD / "finished", tmp_path / "out"))


def test_a_finished_run(show: Show) -> None:
    code, out, err = show(OLD / "finished")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[:3] == ["toy_policies:Wanderer on toy: 3 tasks × 4 episodes", "finished", ""]
    assert ["overall", "8", "4", "75.0", "%", "*", "40.9", "-", "92.9", "50.0", "-", "83.3"] in [
        line.split() for line in lines
    ]
    assert ["short", "4", "0", "50.0", "%", "15.0", "-", "85.0"] in [line.split() for line in lines], "no errors here"
    assert "not counted in the rates (*); overall, 50.0 - 83.3 % if all of them were failures, or successes" in out
    assert all(line == line.rstrip() for line in lines), "blanks at the end of a line, in a pipe"
    assert "\x1b" not in out


def test_an_unfinished_run_says_how_to_go_on(show: Show) -> None:
    _, out, _ = show(OLD / "unfinished")
    assert out.splitlines()[1] == f"unfinished: 17 of 24 episodes; go on with: sparring resume {OLD / 'unfinished'}"
    assert "7 episodes not run yet" in out


def test_a_run_that_somebody_is_writing(show: Show, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(OLD / "unfinished", tmp_path / "out"))
    journal = Journal(folder)
    assert show(folder)[1].splitlines()[1] == "running now: 17 of 24 episodes"
    journal.close()
    assert show(folder)[1].splitlines()[1].startswith("unfinished")


@pytest.mark.processes
def test_a_real_run_is_shown_while_it_goes(show: Show, start_sparring: StartSparring, tmp_path: Path) -> None:
    run = start_sparring(
        "run", "--benchmark", "toy", "--task", "short", "--episodes", "6", "--slots", "1", "--policy",
        "toy_policies:Forward", "--benchmark-arg", "step_seconds=0.03", "--output", "out",
    )  # fmt: skip
    wait_for(lambda: recorded(tmp_path / "out") >= 2)
    words = show(tmp_path / "out")[1].splitlines()[1].split()
    assert (words[:2], words[3:]) == (["running", "now:"], ["of", "6", "episodes"])
    assert 2 <= int(words[2]) <= 6
    assert run.wait(timeout=60) == 0
    assert show(tmp_path / "out")[1].splitlines()[1] == "finished"


def test_json_is_that_of_the_run_and_who_was_evaluated(show: Show) -> None:
    code, out, _ = show(OLD / "unfinished", "--json")
    document = json.loads(out)
    assert code == 0
    assert document["status"] == "unfinished"
    assert document["episodes"] == {"planned": 24, "recorded": 17}
    assert document["overall"]["n"] == 17
    assert document["policy"]["name"] == "toy_policies:Wanderer"
    assert "lost" not in document


def test_some_tasks_only(show: Show) -> None:
    _, out, _ = show(OLD / "finished", "--tasks", "lon?,raises")
    words = [line.split() for line in out.splitlines()]
    assert ["below:", "2", "of", "3", "tasks"] in words
    assert not [line for line in words if line[:1] == ["short"]]
    assert ["overall", "4", "4", "100.0", "%", "*", "51.0", "-", "100.0", "50.0", "-", "100.0"] in words
    _, out, _ = show(OLD / "finished", "--tasks", "good", "--json")
    assert set(json.loads(out)["tasks"]) == {"short", "long"}


def row(**values: Any) -> EpisodeRow:
    known = {"benchmark": "toy", "task": "short", "seed": 7, "attempts": 1, "video": ""}
    return EpisodeRow(**{**known, **values})


def test_errors_by_kind_with_what_was_tried_again_and_what_was_lost(show: Show, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(OLD / "unfinished", tmp_path / "out"))
    journal = Journal(folder)
    late = [r.index for r in journal.rows() if r.task == "short"][-1] + 1
    policy, killed = (row(index=late + n, outcome="error", attempts=2) for n in range(2))
    policy.error, policy.error_kind = "my knees\nare weak", "policy"
    killed.error, killed.error_kind = "lost 20 times", "lost"
    for failed in (policy, killed):
        assert journal.record(failed)
    for message in ("the first time", "my knees\nare weak"):
        journal.note("error", message, episode=policy.id, worker="toy-0")
    journal.note("error", "only once", episode=row(index=0, outcome="success").id, worker="toy-0")
    journal.note("lost", "the worker went away", episode=killed.id, worker="toy-1")
    journal.close()

    code, out, _ = show(folder, "--errors")
    assert code == 0
    body = out.split("\n\n", 1)[1]
    dates_off = "\n".join(line if "#" not in line or "20" not in line[:6] else line[22:] for line in body.splitlines())
    assert dates_off == "\n".join(
        [
            "episodes that ended in an error of the kind lost: 1",
            f"  short #{killed.index} (2 attempts): lost 20 times",
            "",
            "episodes that ended in an error of the kind policy: 1",
            f"  short #{policy.index} (2 attempts): my knees",
            "    are weak",
            "",
            "attempts that failed and were tried again: 2",
            f"short #{policy.index} on toy-0: the first time",
            "short #0 on toy-0: only once",
            "",
            "leases that were lost: 1",
            f"short #{killed.index} on toy-1: the worker went away",
        ]
    )
    document = json.loads(show(folder, "--errors", "--json")[1])
    assert {kind: [r["index"] for r in rows] for kind, rows in document["errors"].items()} == {
        "lost": [killed.index],
        "policy": [policy.index],
    }
    assert [event["message"] for event in document["retried"]] == ["the first time", "only once"]
    assert [(e["task"], e["index"], e["worker"]) for e in document["lost"]] == [("short", killed.index, "toy-1")]


def test_an_error_that_many_have_is_said_once(show: Show, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(OLD / "unfinished", tmp_path / "out"))
    journal = Journal(folder)
    late = [r.index for r in journal.rows() if r.task == "short"][-1] + 1
    sentence = "the policy's act() raised ValueError: {} is bad (step {}; traceback: errors/policy-0123abcd.txt)"
    for index in range(late, late + 3):
        failed = row(index=index, outcome="error", attempts=4, error=sentence.format(index, 0), error_kind="policy")
        assert journal.record(failed)
    journal.close()
    body = show(folder, "--errors")[1].split("\n\n", 1)[1].splitlines()
    assert body == [
        "episodes that ended in an error of the kind policy: 3",
        "  the same error, 3 times: " + sentence.format(late, 0).replace("errors/", f"{folder}/errors/"),
        "    " + ", ".join(f"short #{late + n} (4 attempts)" for n in range(3)),
    ]


def test_a_run_without_errors_says_so(show: Show) -> None:
    assert show(OLD / "unfinished", "--errors")[1].splitlines()[-1] == "no errors, and no lost leases"


def newer(folder: Path) -> None:
    with sqlite3.connect(folder / "journal.sqlite") as journal:
        journal.execute("UPDATE meta SET value = '99' WHERE key = 'schema'")


def newer_document(folder: Path) -> None:
    content = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**content, "schema": 99}))


def emptied(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (shutil.rmtree, "there is no"),
        (emptied, "is not the output folder of a run: it is empty."),
        (lambda f: (f / "run.json").unlink(), "is not the output folder of a run: it has no run.json."),
        (lambda f: (f / "run.json").write_text("{}"), "is damaged: it names no schema."),
        (newer_document, "was written by a newer release (schema 99"),
        (lambda f: (f / "journal.sqlite").unlink(), "cannot be read: No such file or directory."),
        (lambda f: (f / "journal.sqlite").write_bytes(b"x" * 5000), "is damaged (file is not a database)."),
        (newer, "was written by a newer release (journal version 99"),
    ],
)
def test_what_cannot_be_shown_is_a_sentence_and_exit_code_2(
    show: Show, folder: Path, damage: Callable[[Path], None], sentence: str
) -> None:
    damage(folder)
    for flags in ((), ("--json",)):
        code, out, err = show(folder, *flags)
        assert (code, out) == (2, "")
        assert sentence in err
        assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (("--tasks", "shirt"), "unknown task or group of this run: 'shirt'. Did you mean 'short'?"),
        (("--tasks", ","), "no task was named."),
        (("--task", "short"), "No such option"),
    ],
)
def test_wrong_flags_are_told(show: Show, flags: tuple[str, ...], sentence: str) -> None:
    code, out, err = show(OLD / "finished", *flags)
    assert (code, out) == (2, "")
    assert sentence in err

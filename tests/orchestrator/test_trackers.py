"""Trackers: what they are told, that none can harm a run, and what is refused before it starts.

The tracker here is one as users may write it; tests/trackers has the real libraries.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rows import ROW
from support import Sparring
from toy_policies import Wanderer
from toy_tracker import Diary, DiarySettings

from sparring import Results, evaluate
from sparring.env_worker.benchmark import Task
from sparring.orchestrator.plan import Plan
from sparring.orchestrator.results.intervals import wilson
from sparring.orchestrator.results.statistics import Summary
from sparring.orchestrator.run.listeners import RunEnd, RunStart, SlotActivity
from sparring.orchestrator.trackers import tracking
from sparring.orchestrator.trackers.kept_ids import IDS_FILE, keep_id, kept_id
from sparring.orchestrator.trackers.numbers import RunNumbers
from sparring.orchestrator.trackers.quiet import quiet_thread
from sparring.orchestrator.trackers.secrets import without_secrets
from sparring.orchestrator.trackers.tracking import TrackerListener
from sparring.protos.errors import UsageError


@pytest.fixture(autouse=True)
def diary() -> list[tuple[Any, ...]]:
    Diary.pages = []
    return Diary.pages


RUN = (
    "run", "--benchmark", "toy", "--task", "short,long", "--policy", "toy_policies:Wanderer", "--in-process",
    "--output", "out", "--episodes", "2", "--track", "diary",
)  # fmt: skip


def told(diary: list[tuple[Any, ...]], what: str) -> list[tuple[Any, ...]]:
    return [page[1:] for page in diary if page[0] == what]


def test_plays_of_one_episode_are_not_told_as_episodes() -> None:
    plan = Plan({"toy": [Task("a", "", "a")]}, 5, 5, repeats=4)
    outcomes = ["failure" if number // 4 == 1 else "success" for number in range(20)]
    rows = [replace(ROW, task="a", index=n, seed=5 + n // 4, outcome=outcome) for n, outcome in enumerate(outcomes)]
    numbers = RunNumbers(plan, rows).numbers(rows[-1])
    low, high = numbers["progress/success_low"], numbers["progress/success_high"]
    assert (low, high) == pytest.approx(Summary.of(rows).interval), "as the results will say"
    assert (low, high) == pytest.approx(wilson(4, 5))


def test_numbers_come_as_episodes_do_and_a_table_at_the_end(
    usage: Sparring, tmp_path: Path, diary: list[tuple[Any, ...]]
) -> None:
    done = usage(*RUN, "--json", "--policy-arg", "nonsense=1", "--video", "failures")
    assert done.returncode == 2, "the toy policy has no such argument: nothing comes of it"
    assert diary == [], "a run that comes to nothing is not opened"
    assert not (tmp_path / "out" / IDS_FILE).exists()

    done = usage(*RUN, "--json", "--video", "failures")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout), "what a library prints is not among the results"
    results = Results.load(tmp_path / "out")
    (run,) = told(diary, "open")[0]
    assert run.config["policy"] == "toy_policies:Wanderer"
    assert run.config["tasks"] == ["short", "long"]
    assert run.axis == "episodes"
    progress = [(numbers, at) for numbers, at in told(diary, "log") if "progress/success_rate" in numbers]
    assert [at for _, at in progress] == [1, 2, 3, 4]
    short = results.tasks["short"]
    assert progress[1][0]["progress/task/short/success_rate"] == short.success_rate
    last = progress[-1][0]
    assert last["progress/success_rate"] == results.overall.success_rate
    assert (last["progress/success_low"], last["progress/success_high"]) == results.overall.interval
    ((final, at),) = [page for page in told(diary, "log") if "eval/success_rate" in page[0]]
    assert at == 4
    assert final["eval/success_rate"] == results.overall.success_rate
    assert final["eval/task/short/episodes"] == 2
    assert final["eval/metric/distance"] == results.overall.metrics["distance"].mean
    ((name, rows, _),) = told(diary, "table")
    assert name == "eval/tasks"
    assert [(row["task"], row["n"]) for row in rows] == [("short", 2), ("long", 2), ("overall", 4)]
    failures = [row for row in results.rows if row.outcome == "failure"]
    assert [film[1] for film in told(diary, "film")] == [Path("out") / row.video for row in failures]
    assert diary[-1] == ("close", True)


def test_a_resumed_run_goes_on_in_the_same_run(usage: Sparring, tmp_path: Path, diary: list[tuple[Any, ...]]) -> None:
    usage(*RUN)
    assert kept_id(tmp_path / "out", "diary") == "volume-1"
    diary.clear()
    assert usage("resume", "out", "--episodes", "3").returncode == 0
    (run,) = told(diary, "open")[0]
    assert run.id == "volume-1"
    assert [at for numbers, at in told(diary, "log") if "progress/errors" in numbers] == [5, 6]
    diary.clear()
    assert usage("resume", "out", "--episodes", "4", "--track", "none").returncode == 0
    assert diary == []


def test_evaluations_of_a_training_are_points_of_a_curve(diary: list[tuple[Any, ...]]) -> None:
    for step in (500, 1000):
        evaluate(
            Wanderer(), benchmark="toy", tasks="short,long", episodes=2, in_process=True, track="diary", track_step=step
        )
    assert not any("progress/success_rate" in numbers for numbers, _ in told(diary, "log"))
    whole = [at for numbers, at in told(diary, "log") if "eval/success_rate" in numbers]
    assert whole == [500, 1000]
    tasks = [at for numbers, at in told(diary, "log") if "eval/seconds" not in numbers]
    assert tasks == [500, 500, 1000, 1000], "each task when its last episode has ended"
    assert {run.axis for (run,) in told(diary, "open")} == {"step"}


@pytest.mark.parametrize("moment", ["open", "log", "table", "film", "close"])
def test_a_tracker_that_fails_harms_nothing_and_is_told_in_one_sentence(
    moment: str, usage: Sparring, tmp_path: Path, diary: list[tuple[Any, ...]]
) -> None:
    done = usage(*RUN, "--video", "failures", "--track-arg", f"fails_at={moment}")
    assert done.returncode == 0
    assert len(Results.load(tmp_path / "out").rows) == 4
    assert (
        done.stderr.count("the tracker diary hears nothing more of this run, which goes on: RuntimeError: no ink") == 1
    )
    (kept,) = (tmp_path / "out" / "errors").glob("tracker-*.txt")
    assert "no ink" in kept.read_text()
    closed = [] if moment in ("open", "close") else [(False,)]
    assert told(diary, "close") == closed, "what was opened is closed, once, as what is not whole"


def test_a_tracker_that_hangs_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    let_go = threading.Event()
    monkeypatch.setattr(Diary, "open", lambda self, run: let_go.wait(60) and "")
    monkeypatch.setattr(tracking, "CLOSING_SECONDS", 0.2)
    listener = TrackerListener(Diary(DiarySettings()), None)
    listener.on_start(RunStart(Plan({"toy": [Task("x", "x", "x")]}, 1, 5), [], {"policy": "p"}, tmp_path))
    listener.on_activity(SlotActivity("w", 0, "x", 0, steps=1))
    with caplog.at_level(logging.WARNING):
        listener.close()
    let_go.set()
    (line,) = caplog.messages
    assert line == (
        "the tracker diary has not taken everything within 0 s and is left alone; the results are whole without it"
    )


def test_an_interrupted_run_is_closed_as_unfinished(tmp_path: Path, diary: list[tuple[Any, ...]]) -> None:
    plan = Plan({"toy": [Task("x", "x", "x")]}, 2, 5)
    listener = TrackerListener(Diary(DiarySettings()), None)
    listener.on_start(RunStart(plan, [], {"policy": "p"}, tmp_path))
    listener.on_result(ROW)
    results = Results(plan, [ROW], 1.0, tmp_path, status="unfinished")
    listener.on_end(RunEnd(results, KeyboardInterrupt()))
    listener.close()
    assert diary[-1] == ("close", False)
    assert told(diary, "table") == []


def test_films_of_failures_are_of_all_tasks_before_a_second_of_one(
    tmp_path: Path, diary: list[tuple[Any, ...]]
) -> None:
    plan = Plan({"toy": [Task(name, name, "g") for name in "ab"]}, 2, 5)
    rows = [
        replace(ROW, task=task, index=index, outcome="failure", video=f"{task}{index}.mp4")
        for task in "ab"
        for index in range(2)
    ]
    for row in rows:
        (tmp_path / row.video).write_bytes(b"film")
    rows.append(replace(ROW, task="b", index=2, outcome="failure", video="gone.mp4"))
    listener = TrackerListener(Diary(DiarySettings(films=3)), 7)
    listener.on_start(RunStart(plan, rows[:4], {"policy": "p"}, tmp_path))
    listener.on_end(RunEnd(Results(plan, rows, 1.0, tmp_path), None))
    listener.close()
    assert [(name, at) for name, _, _, at in told(diary, "film")] == [
        ("failures/a/0000", 7),
        ("failures/b/0000", 7),
        ("failures/a/0001", 7),
    ]


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (("--track", "diry"), "unknown tracker 'diry'. Did you mean 'diary'?"),
        (
            ("--track", "diary", "--track-arg", "color=blue"),
            "unknown setting in --track-arg: 'color'. Did you mean 'colour'?",
        ),
        (("--track", "diary", "--track-arg", "films=-1"), "--track-arg films"),
        (("--track-step", "3"), "--track-step goes with --track"),
        (("--track", "diary", "--track-step", "-3"), "--track-step"),
    ],
)
def test_wrong_usage_is_told_before_anything_starts(
    flags: tuple[str, ...], sentence: str, usage: Sparring, tmp_path: Path
) -> None:
    done = usage(*RUN[:-2], *flags)
    assert done.returncode == 2
    assert sentence in " ".join(done.stderr.split())
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("tracker", ["wandb", "trackio", "tensorboard", "mlflow"])
def test_a_library_that_is_missing_is_told_with_its_install_command(
    tracker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, tracker, None)
    with pytest.raises(
        UsageError, match=rf"{tracker} is not installed; install it: pip install '?(sparring\[)?{tracker}"
    ):
        evaluate(Wanderer(), benchmark="toy", tasks="short", in_process=True, track=tracker)


def test_they_are_listed(usage: Sparring) -> None:
    done = usage("ls", "trackers")
    assert done.returncode == 0
    for name in ("wandb", "trackio", "tensorboard", "mlflow", "diary"):
        assert name in done.stdout


def test_secrets_stay_here() -> None:
    settings = {
        "policy_arg": {"api_key": "hush", "gain": 2, "nested": [{"password": "hush"}]},
        "policy_token_file": "path/to/it",
        "token": "",
    }
    shown = without_secrets(settings)
    assert "hush" not in json.dumps(shown)
    assert shown["policy_arg"]["gain"] == 2
    assert shown["policy_token_file"] == "path/to/it"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"key": "hush"}, {"key": "..."}),
        ({"auth": "hush"}, {"auth": "..."}),
        ({"Authorization": "hush"}, {"Authorization": "..."}),
        ({"session_cookie": "hush"}, {"session_cookie": "..."}),
        ({"AWS_ACCESS_KEY_ID": "hush"}, {"AWS_ACCESS_KEY_ID": "..."}),
        ({"private-key": "hush"}, {"private-key": "..."}),
        ("http://user:hush@host/act", "http://...@host/act"),
        ("http://user:h@hush@host:1", "http://...@host:1"),
        ("https://host/act?api_key=hush&x=1", "https://host/act?api_key=...&x=1"),
        ("ALL,WANDB_API_KEY=hush,B=2", "ALL,WANDB_API_KEY=...,B=2"),
        ("TOKEN='hush hush' B=2", "TOKEN=... B=2"),
        ({"headers": ["X: Bearer hush"]}, {"headers": ["X: Bearer ..."]}),
        (["ssh", "h", "TOKEN=hush"], ["ssh", "h", "TOKEN=..."]),
        (["run", "--token", "hush", "--n", "1"], ["run", "--token", "...", "--n", "1"]),
        # What is no secret is shown as it is.
        ({"author": "me", "key_file": "k", "keys": ["a"]}, {"author": "me", "key_file": "k", "keys": ["a"]}),
        (["--token-file", "path"], ["--token-file", "path"]),
        ("unix:///tmp/a@b x=1,token_file=p", "unix:///tmp/a@b x=1,token_file=p"),
    ],
)
def test_secrets_are_found_by_other_names_and_inside_of_what_is_written(value: object, shown: object) -> None:
    found = without_secrets({"x": value})["x"]
    assert found == shown
    assert "hush" not in json.dumps(found)


@pytest.mark.parametrize("content", ["", "[]", '{"diary": 3}', "{", '{"diary": "' + "x" * 1000 + '"}'])
def test_ids_of_a_stranger_are_none(content: str, tmp_path: Path) -> None:
    (tmp_path / IDS_FILE).write_text(content)
    assert kept_id(tmp_path, "diary") == ""
    keep_id(tmp_path, "diary", "mine")
    assert kept_id(tmp_path, "diary") == "mine"


def test_only_the_thread_that_asked_is_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout
    inside, done = threading.Event(), threading.Event()

    def library() -> None:
        with quiet_thread():
            sys.stdout.write("chatter\n")
            inside.set()
            done.wait(60)

    thread = threading.Thread(target=library)
    thread.start()
    inside.wait(60)
    sys.stdout.write("results\n")
    done.set()
    thread.join()
    assert capsys.readouterr().out == "results\n"
    assert sys.stdout is before

"""What is on the screen while a run goes, and afterwards."""

from __future__ import annotations

import io
import sys
from dataclasses import replace

import pytest
from rich.console import Console
from rich.table import Table

from sparring.env_worker.benchmark import Task
from sparring.orchestrator.display.errors import errors_list
from sparring.orchestrator.display.progress import LiveDisplay, PlainDisplay, Tally
from sparring.orchestrator.display.screen import count, error_console, show
from sparring.orchestrator.display.table import results_table
from sparring.orchestrator.results.results import Results
from sparring.orchestrator.results.row import EpisodeRow
from sparring.orchestrator.run.listeners import RunStart, SlotActivity
from sparring.orchestrator.run.plan import Plan


def episode(steps: int) -> EpisodeRow:
    numbers = dict.fromkeys(("physics_s", "render_s", "policy_s", "transport_s", "reward_sum", "reward_max"), 0.0)
    counts = dict.fromkeys(("renders", "round_trips", "out_of_range"), 0)
    return EpisodeRow(
        benchmark="toy", task="good", index=0, seed=0, outcome="success", steps=steps, seconds=1.0, attempts=1,
        video="", error="", **numbers, **counts,
    )  # fmt: skip


def test_one_is_not_many() -> None:
    assert [count(n, "slot") for n in (0, 1, 2)] == ["0 slots", "1 slot", "2 slots"]
    assert [count(n, "retry", "retries") for n in (1, 2)] == ["1 retry", "2 retries"]
    file = io.StringIO()
    display = PlainDisplay(Console(file=file))
    display.on_worker("w", 1)
    display.on_worker("v", 2)
    assert file.getvalue().splitlines() == ["worker w joined with 1 slot", "worker v joined with 2 slots"]


def test_in_a_file_tables_are_as_wide_as_they_must_be_and_end_where_they_end() -> None:
    file = io.StringIO()
    table = Table("a", "b", box=None)
    table.add_row("word " * 30, "x")
    table.add_row("short", "")
    show(table, Console(file=file, width=80))
    lines = file.getvalue().splitlines()
    assert len(lines) == 3
    assert all(line == line.rstrip() for line in lines)


def test_steps_of_an_episode_are_counted_once() -> None:
    """As the coordinator tells it: the slot is idle, then its episode is recorded."""
    tally = Tally(2, 0, 0)
    tally.running(SlotActivity("w", 0, task="good", steps=90))
    tally.running(SlotActivity("w", 0))
    tally.count(episode(100))
    assert tally.steps == 100


def test_a_rate_that_errors_are_left_out_of_says_so_while_the_run_goes() -> None:
    tally = Tally(30, 0, 0)
    for number in range(20):
        tally.count(replace(episode(1), outcome="success" if number else "failure"))
    assert "success 95.0 % ·" in tally.line()
    for _ in range(10):
        tally.count(replace(episode(1), outcome="error"))
    assert "success 95.0 % (63.3 - 96.7 % with errors) ·" in tally.line()


HOSTILE = "\x1b]0;pwned\x07\x1b[2J"


def test_escape_sequences_of_others_do_not_reach_the_terminal() -> None:
    """Of tasks, workers and errors: in lines, in the live picture, in tables and in lists of errors."""
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=200)
    bad = replace(episode(1), task=HOSTILE, outcome="error", error=HOSTILE)
    plan = Plan({"toy": [Task(HOSTILE, "Go", HOSTILE, number=0)]}, 1, 0)
    start = RunStart(plan, [], {}, None)
    for display in (PlainDisplay(console), LiveDisplay(console, HOSTILE)):
        display.on_start(start)
        display.on_worker(HOSTILE, 1)
        display.on_activity(SlotActivity(HOSTILE, 0, HOSTILE, 0, 1))
        display.on_retry(bad.id, HOSTILE)
        display.on_result(bad)
        display.close()
    results = Results(plan, [bad], 1.0, None)
    show(results_table(results), console)
    show(errors_list(results), console)
    said = file.getvalue()
    assert said.count("\\x1b]0;pwned") > 8
    assert "\x1b]0" not in said
    assert "\x1b[2J" not in said
    assert "\x07" not in said


class Broken(io.StringIO):
    """A pipe that nobody reads any more."""

    def write(self, text: str) -> int:
        raise BrokenPipeError

    def flush(self) -> None:
        raise BrokenPipeError


def test_a_stream_that_is_broken_or_is_none_takes_nobody_down(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream in (Broken(), None):
        monkeypatch.setattr(sys, "stderr", stream)
        console = error_console()
        assert not console.is_terminal
        for display in (PlainDisplay(console), LiveDisplay(console, "title")):
            display.on_start(RunStart(Plan({}, 1, 0), [], {}, None))
            display.on_worker("w", 1)
            display.close()

"""What is on the screen while a run goes, and afterwards."""

from __future__ import annotations

import io
import logging
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from sparring.env_worker.benchmark import Task
from sparring.orchestrator.cli.evaluation import log_through
from sparring.orchestrator.display.errors import errors_list
from sparring.orchestrator.display.listing import print_listing
from sparring.orchestrator.display.progress import LiveDisplay, PlainDisplay, Tally
from sparring.orchestrator.display.screen import count, error_console, show
from sparring.orchestrator.display.table import results_table
from sparring.orchestrator.plan import EpisodeId, Plan
from sparring.orchestrator.results.results import Results
from sparring.orchestrator.results.row import EpisodeRow
from sparring.orchestrator.run.listeners import FilmCount, RunStart, SlotActivity
from sparring.protos.advice import FLAGS


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


RAISED = (
    "the policy's act() raised RuntimeError: the images have shape (1, {}, 3, 224, 224), which is not what the network "
    "wants (policy 'my_module:Mine', step 0; traceback: errors/policy-0123abcd.txt)"
)
SHOWN = RAISED.replace("errors/", "out/errors/")


def seen(display: LiveDisplay, console: Console) -> list[str]:
    """The picture, as a terminal of this size shows it."""
    lines = console.render_lines(display._picture(), console.options.update(height=None), pad=False)
    return ["".join(segment.text for segment in line).rstrip() for line in lines]


def failing(display: PlainDisplay | LiveDisplay, *, slots: int, times: int) -> None:
    plan = Plan({"toy": [Task("coffee-button-v3", "Go", "toy", number=0)]}, 50, 0)
    display.on_start(RunStart(plan, [], {}, Path("out")))
    display.on_worker("toy-0", slots)
    for number in range(times):
        display.on_retry(EpisodeId("toy", "coffee-button-v3", number), RAISED.format(number))


@pytest.mark.parametrize(("width", "height"), [(80, 24), (80, 12), (120, 40)])
@pytest.mark.parametrize("slots", [2, 40])
def test_the_cause_is_seen_whole_on_every_screen_however_many_slots_there_are(
    width: int, height: int, slots: int
) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=width, height=height)
    display = LiveDisplay(console, "mine on toy: 1 task × 50 episodes")
    failing(display, slots=slots, times=37)
    picture = seen(display, console)
    display.close()
    assert len(picture) < height, "what scrolls off the screen cannot be taken back: the header would stand twice"
    together = " ".join(line.strip() for line in picture)
    assert SHOWN.format(0) in together
    assert together.count("coffee-button-v3 #36") == 1
    assert "the same error, 37 episodes (37 attempts); the last: coffee-button-v3 #36" in together
    assert together.count("mine on toy") == 1
    if slots == 2:
        assert "toy-0/1" in together
    else:
        assert "more slots" in together


def test_different_errors_share_the_room() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=80, height=24)
    display = LiveDisplay(console, "title")
    failing(display, slots=1, times=5)
    display.on_retry(EpisodeId("toy", "reach-v3", 1), "the simulator raised ValueError: it came apart")
    display.close()
    together = " ".join(line.strip() for line in seen(display, console))
    assert SHOWN.format(0) in together
    assert "the simulator raised ValueError: it came apart reach-v3 #1" in together


@pytest.mark.parametrize("kind", [LiveDisplay, PlainDisplay])
def test_an_error_of_one_place_is_one_though_its_text_has_the_task_s_sentence_in_it(
    kind: type[LiveDisplay | PlainDisplay],
) -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=kind is LiveDisplay, width=80, height=24)
    display = LiveDisplay(console, "title") if kind is LiveDisplay else PlainDisplay(console)
    failing(display, slots=1, times=0)
    for number, sentence in enumerate(("Open a door", "Close a drawer", "Reach a goal")):
        raised = f"the policy's act() raised KeyError: {sentence!r} (policy 'm:P', step 0; traceback: "
        display.on_retry(EpisodeId("toy", f"task-{sentence[0]}", number), f"{raised}errors/policy-0123abcd.txt)")
    together = " ".join(line.strip() for line in seen(display, console)) if isinstance(display, LiveDisplay) else ""
    display.close()
    together = together or file.getvalue()
    assert together.count("the same error, 3 episodes (3 attempts); the last: task-R #2") == 1
    assert ("'Close a drawer'" in together, "'Reach a goal'" in together) == (False, False)
    assert "'Open a door'" in together


def test_lines_of_an_error_that_comes_again_are_few() -> None:
    file = io.StringIO()
    display = PlainDisplay(Console(file=file, width=80))
    failing(display, slots=1, times=37)
    display.close()
    said = file.getvalue().splitlines()
    assert said == [
        "worker toy-0 joined with 1 slot",
        f"trying again: coffee-button-v3 #0: {SHOWN.format(0)}",
        f"the same error, 37 episodes (37 attempts); the last: coffee-button-v3 #36: {SHOWN.format(0)}",
    ]


def test_nobody_is_sent_to_a_folder_that_does_not_stay() -> None:
    file = io.StringIO()
    display = PlainDisplay(Console(file=file, width=80))
    display.folder_stays = False
    display.on_start(RunStart(Plan({}, 1, 0), [], {}, Path("temporary")))
    display.on_retry(
        EpisodeId("toy", "good", 0), "the simulator raised OSError: x (traceback: errors/simulator-0123abcd.txt)"
    )
    assert file.getvalue().splitlines() == ["trying again: good #0: the simulator raised OSError: x"]


def test_the_last_line_is_said_once_whether_or_not_there_are_films() -> None:
    file = io.StringIO()
    display = PlainDisplay(Console(file=file, width=80))
    display.on_start(RunStart(Plan({"toy": [Task("good", "Go", "toy", number=0)]}, 1, 0), [], {}, None))
    display.on_result(episode(9))
    display.on_films(FilmCount())  # as the recorder does, which has found that none is to be made of this one
    assert [line[:12] for line in file.getvalue().splitlines()] == ["1/1 episodes"]
    display.on_films(FilmCount(wanted=1, made=1))
    assert [line.split(" · ")[-1] for line in file.getvalue().splitlines()[1:]] == ["1/1 films"]


def test_errors_under_the_table_are_told_once_each() -> None:
    rows = [
        replace(episode(1), index=n, outcome="error", error=RAISED.format(n), error_kind="policy") for n in range(9)
    ]
    rows.append(replace(episode(1), index=9, outcome="error", error="it hung", error_kind="limit"))
    file = io.StringIO()
    plan = Plan({"toy": [Task("good", "Go", "good", number=0)]}, 10, 0)
    show(results_table(Results(plan, rows, 1.0, Path("out"))), Console(file=file))
    said = file.getvalue()
    located = RAISED.format(0).replace("errors/", "out/errors/")
    assert f"  {located} - the same error, 9 episodes (9 attempts); the last: good #8\n  it hung - good #9\n" in said
    assert "sparring show out --errors" in said


@pytest.mark.parametrize("task", ["gym_aloha/AlohaTransferCubeLong-v0", "KITCHEN_SCENE10_" + "put_it_down_" * 5])
def test_no_figure_of_the_table_is_cut_off_at_80_columns(task: str) -> None:
    rows = [
        replace(episode(100), task=task, index=n, outcome="success" if n % 3 else "error", error="it broke")
        for n in range(9)
    ]
    file = io.StringIO()
    results = Results(Plan({"toy": [Task(task, "Go", task, number=0)]}, 9, 0), rows, 1.0, Path("out"))
    show(results_table(results), Console(file=file, force_terminal=True, color_system=None, width=80))
    lines = [line.rstrip() for line in file.getvalue().splitlines()]
    assert "…" not in file.getvalue()
    assert max(map(len, lines)) <= 80
    for label in (task, "overall"):
        figures = " ".join(lines[lines.index(label) + 1].split())
        assert figures == "6 3 100.0 % * 20.7 - 100.0 66.7 - 100.0"


def test_no_word_of_a_listing_is_cut_off(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    monkeypatch.setenv("COLUMNS", "40")
    print_listing(("tracker", "here"), [("tensorboard", "install it: pip install 'sparring[tensorboard,and,more]'")])
    said = capsys.readouterr().out
    assert "…" not in said
    assert said.replace("\n", "").replace(" ", "").endswith("'sparring[tensorboard,and,more]'")


def test_a_command_in_a_log_line_can_be_copied_from_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    file = io.StringIO()
    log_through(Console(file=file, force_terminal=True, width=40), FLAGS)
    command = "sparring worker --orchestrator 127.0.0.1:50052 --join-token-file /home/me/outputs/2026-11-19/join-token"
    logging.getLogger("sparring").warning("start them: %s", command)
    (line,) = file.getvalue().splitlines()
    assert line.endswith(f" start them: {command}")


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

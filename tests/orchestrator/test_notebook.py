"""Results that are looked at: a table in an interpreter and in a notebook, and progress while it goes."""

from __future__ import annotations

import builtins
import io
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from rich.console import Console
from rows import ROW
from support import ROOT
from toy_policies import Forward

from sparring import Evaluator, Results
from sparring.env_worker.benchmark import Task
from sparring.orchestrator.run.plan import Plan

OLD = ROOT / "tests" / "fixtures" / "release-0.1.0" / "finished"


def of_tasks(names: list[str]) -> Results:
    plan = Plan({"toy": [Task(name, name, "all", number=n) for n, name in enumerate(names)]}, 1, 0)
    return Results(plan, [replace(ROW, task=name) for name in names], 1.0, None)


def test_in_an_interpreter_results_are_a_table() -> None:
    results = Results.load(OLD)
    shown = repr(results)
    assert str(results) == shown
    lines = shown.splitlines()
    assert lines[:2] == ["toy_policies:Wanderer on toy: 3 tasks × 4 episodes", "finished"]
    assert ["overall", "8", "4", "75.0", "%", "*", "40.9", "-", "92.9", "50.0", "-", "83.3"] in map(str.split, lines)
    assert "EpisodeRow" not in shown
    assert len(shown) < 2000


def test_colours_of_the_environment_do_not_reach_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b" not in repr(Results.load(OLD))


def test_rich_prints_the_table_that_the_command_prints() -> None:
    file = io.StringIO()
    Console(file=file, width=80, force_terminal=True, color_system="standard").print(Results.load(OLD))
    assert "75.0 % *" in file.getvalue()
    assert "\x1b[" in file.getvalue()


def test_of_very_many_tasks_the_first_are_shown_and_the_rest_counted() -> None:
    results = of_tasks([f"task-{n}" for n in range(1000)])
    for shown in (repr(results), results._repr_html_()):
        assert "task-59" in shown
        assert "task-60" not in shown
        assert "... and 940 more tasks" in shown
        assert "1000" in shown


class Parsed(HTMLParser):
    """The elements and the texts of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_in_a_notebook_they_are_a_table_of_html_and_what_others_named_stays_text() -> None:
    bad = "<script>alert(1)</script>&amp;\x1b[2J"
    page = Parsed(of_tasks(["short", bad])._repr_html_())
    assert page.open == []
    assert set(page.tags) == {"div", "p", "br", "table", "thead", "tbody", "tr", "th", "td", "b"}
    assert "<script>alert(1)</script>&amp;\\x1b[2J" in page.texts
    assert page.texts[page.texts.index("overall") + 3] == "100.0 %"


class ZMQInteractiveShell:
    """What rich takes for a notebook: it goes by the class. test_real_notebook.py has a real one."""


@pytest.mark.parametrize("place", ["a pipe", "a notebook"])
def test_progress_is_lines_of_text_where_there_is_no_terminal(
    place: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if place == "a notebook":
        monkeypatch.setattr(builtins, "get_ipython", ZMQInteractiveShell, raising=False)
        monkeypatch.setenv("FORCE_COLOR", "1")  # as kernels do
    with Evaluator() as evaluator:
        evaluate: Callable[..., Results] = evaluator.evaluate
        evaluate(Forward(), benchmark="toy", tasks="short", episodes=3, in_process=True, progress=True)
    said = capsys.readouterr()
    assert said.out == ""
    lines = said.err.splitlines()
    assert lines[0] == "worker in-process joined with 1 slot"
    assert lines[-1].startswith("3/3 episodes · success 100.0 % · ")
    assert not {"\r", "\x1b", "\b"} & set(said.err)


def test_nobody_hears_of_it_who_has_not_asked(capsys: pytest.CaptureFixture[str]) -> None:
    with Evaluator() as evaluator:
        evaluator.evaluate(Forward(), benchmark="toy", tasks="short", episodes=1, in_process=True)
    assert capsys.readouterr().err == ""


@pytest.mark.processes
def test_on_a_terminal_it_is_a_picture_that_goes_away(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with Evaluator() as evaluator:
        evaluator.evaluate(Forward(), benchmark="toy", tasks="short", episodes=2, slots=1, progress=True)
    assert "toy_policies.Forward on toy: 1 task × 2 episodes" in terminal.getvalue()
    assert terminal.getvalue().rstrip().endswith("\x1b[2K"), "the last thing it does is to erase itself"
    assert caplog.messages == [], "nothing is warned of"

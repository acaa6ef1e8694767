"""Results that are looked at: a table in an interpreter and in a notebook, and progress while it goes."""

from __future__ import annotations

import builtins
import io
import logging
import sys
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from rich.console import Console
from rows import ROW
from support import ROOT
from toy_policies import Forward

from sparring import Evaluator, Results, UsageError, compare
from sparring.env_worker.benchmark import Task
from sparring.orchestrator.plan import Plan

HOSTILE = '</td><img src=x onerror="alert(1)"><script>'
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
    warm: Evaluator, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # The workers are there already: that one is slow to come, on a busy machine, is another matter, and is told.
    warm.evaluate(Forward(), benchmark="toy", tasks="short", episodes=1, slots=1)
    caplog.clear()

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    warm.evaluate(Forward(), benchmark="toy", tasks="short", episodes=2, slots=1, progress=True)
    assert "toy_policies.Forward on toy: 1 task × 2 episodes" in terminal.getvalue()
    assert terminal.getvalue().rstrip().endswith("\x1b[2K"), "the last thing it does is to erase itself"
    # Ours, and what is shown by default: asyncio complains of what earlier tests have left, whenever that is swept
    # up, and a test before may have asked to hear more.
    ours = [record for record in caplog.records if record.name.startswith("sparring")]
    assert [record.getMessage() for record in ours if record.levelno >= logging.WARNING] == []


def test_a_comparison_is_a_table_in_an_interpreter_and_in_a_notebook() -> None:
    before, after = of_tasks(["a", HOSTILE]), of_tasks(["a", HOSTILE])
    after = replace(after, rows=[replace(row, outcome="failure") for row in after.rows[:1]] + list(after.rows[1:]))
    compared = compare(before, after)
    text = repr(compared)
    assert "not distinguishable with these 2 episodes" in text
    (line,) = [line.split() for line in text.splitlines() if line.startswith("a ")]
    assert line[:7] == ["a", "1", "100.0", "%", "0.0", "%", "-100.0"]
    page = Parsed(compared._repr_html_())
    assert page.open == []
    assert "img" not in page.tags
    assert "script" not in page.tags
    assert page.tags.count("tr") == 4, "a heading, two tasks and all of them"
    assert any(HOSTILE in text for text in page.texts)
    file = io.StringIO()
    Console(file=file, width=200).print(compared)
    assert "not distinguishable" in file.getvalue()


def test_a_comparison_of_very_many_tasks_shows_the_first() -> None:
    results = of_tasks([f"task-{n}" for n in range(100)])
    shown = compare(results, results)._repr_html_()
    assert "task-59" in shown
    assert "task-60" not in shown
    assert "... and 40 more tasks" in shown


def with_metrics() -> Results:
    results = Results.load(OLD)
    rows = [replace(row, metrics={"distance": 0.5} if row.index else {}) for row in results.rows]
    return replace(results, rows=rows)


def test_episodes_as_a_data_frame() -> None:
    import pandas

    results = with_metrics()
    frame = results.to_dataframe()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame["outcome"]) == [row.outcome for row in results.rows]
    assert frame["metrics.distance"].isna().sum() == sum(row.index == 0 for row in results.rows)
    assert "metrics" not in frame
    rates = frame[frame.outcome != "error"].groupby("task").outcome.apply(lambda found: (found == "success").mean())
    assert rates.to_dict() == {name: summary.success_rate for name, summary in results.tasks.items() if summary.n}


@pytest.mark.parametrize("left", ["pyarrow", "nothing"])
def test_without_pandas_a_table_and_without_both_dictionaries(left: str, monkeypatch: pytest.MonkeyPatch) -> None:
    results = with_metrics()
    monkeypatch.setitem(sys.modules, "pandas", None)
    if left == "nothing":
        monkeypatch.setitem(sys.modules, "pyarrow", None)
    found = results.to_dataframe()
    rows = found.to_pylist() if left == "pyarrow" else found
    assert [row["reward_sum"] for row in rows] == [row.reward_sum for row in results.rows]
    assert rows[0]["metrics.distance"] is None
    assert rows[1]["metrics.distance"] == 0.5
    assert isinstance(rows, list)


def test_an_empty_run_is_an_empty_table() -> None:
    frame = replace(of_tasks(["a"]), rows=[]).to_dataframe()
    assert len(frame) == 0
    assert "outcome" in frame


def test_a_plot_has_a_bar_with_its_interval_for_every_task() -> None:
    import matplotlib

    matplotlib.use("agg")
    results = Results.load(OLD)
    axes = results.plot()
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == [*results.tasks, "good", "overall"]
    shown = [*results.tasks.values(), results.groups["good"], results.overall]
    judged = [summary for summary in shown if summary.success_rate is not None]
    assert [bar.get_width() for bar in axes.patches] == [summary.success_rate for summary in judged]
    whiskers = [lines.get_segments()[0] for lines in axes.collections]
    assert [(round(a[0], 9), round(b[0], 9)) for a, b in whiskers] == [
        (round(low, 9), round(high, 9)) for low, high in (summary.interval for summary in judged)
    ]
    axes.figure.canvas.draw()  # names that matplotlib might take for formulas are drawn, too
    odd = of_tasks(["$\\frac{$", "b"]).plot()
    odd.figure.canvas.draw()
    assert results.plot(axes) is axes
    by_return = replace(results, metric="return").plot()
    assert by_return.get_xlabel() == "mean return"


def test_a_plot_without_matplotlib_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UsageError, match=r"a plot needs matplotlib; install it: pip install"):
        Results.load(OLD).plot()

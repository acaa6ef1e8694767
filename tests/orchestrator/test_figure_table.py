"""A table of figures on screens of any width."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from sparring.orchestrator.display.figures import FigureTable

HEADINGS = ["n", "before-the-change", "after", "difference", "95 % interval", "won - lost", "p", "p by Holm"]
FIGURES = ["20", "40.0 %", "100.0 %", "+60.0", "+34.2 to +78.1", "12 - 0", "< 0.001", "< 0.001"]
TASK = "button-press-topdown-wall-v3"


def shown(width: int, *, terminal: bool = True) -> list[str]:
    console = Console(file=io.StringIO(), force_terminal=terminal, width=width, color_system=None)
    with console.capture() as captured:
        console.print(FigureTable.of_tasks(HEADINGS, [(TASK, FIGURES, "green")], [*FIGURES[:-1], ""]), highlight=False)
    return [line.rstrip() for line in captured.get().splitlines()]


def test_where_there_is_room_each_task_is_a_line() -> None:
    lines = shown(130)
    assert lines[0].split() == ["task", *" ".join(HEADINGS).split()]
    assert lines[1].split() == [TASK, *" ".join(FIGURES).split()]
    assert lines[-1].startswith("overall  ")


def test_in_a_pipe_each_task_is_a_line_however_wide() -> None:
    lines = shown(200, terminal=False)
    assert lines[1].split() == [TASK, *" ".join(FIGURES).split()]
    assert len(shown(80, terminal=False)) == len(lines)


@pytest.mark.parametrize("width", [80, 100])
def test_on_a_narrow_terminal_no_figure_is_cut_off(width: int) -> None:
    lines = shown(width)
    assert max(map(len, lines)) <= width
    assert not any("…" in line for line in lines)
    named = lines.index(TASK)
    assert lines[named + 1].split() == " ".join(FIGURES).split()
    assert lines[-2:][0] == "overall"
    assert lines[-1].split() == " ".join(FIGURES[:-1]).split()
    told = {word for line in lines[:named] for word in line.split()}
    assert told == {
        "n",
        "before-",
        "the-",
        "change",
        "after",
        "difference",
        "95",
        "%",
        "interval",
        "won",
        "-",
        "lost",
        "p",
        "by",
        "Holm",
    }

"""A comparison where it is only looked at: in an interpreter as text, in a notebook as HTML."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.text import Text

from sparring.orchestrator.comparison.comparison import Comparison
from sparring.orchestrator.comparison.returns import ReturnComparison
from sparring.orchestrator.display.compared_returns import (
    all_returns,
    returns_headings,
    returns_lines,
    returns_table,
    returns_verdict,
    returns_warnings,
)
from sparring.orchestrator.display.comparison import (
    comparison_headings,
    comparison_sentences,
    comparison_table,
    overall_cells,
    run_names,
    runs_compared,
    task_lines,
)
from sparring.orchestrator.display.lines import MOST_TASKS
from sparring.orchestrator.display.notebook import html_row, html_table, html_text
from sparring.orchestrator.display.screen import count, show
from sparring.orchestrator.results.results import Results

_WIDE: Final = 160
"""Characters: a table that is cut says less than one that is scrolled."""
_COLORS: Final = {"green": "#1f8a70", "red": "#c0512a"}
"""That can be read on white and on black."""


def comparison_text(comparison: Comparison) -> str:
    """Returns the table of two runs as plain text."""
    runs = (comparison.first, comparison.second)
    return _text(runs, comparison_table(comparison, run_names(runs)))


def returns_text(comparison: ReturnComparison) -> str:
    """Returns the table of two runs by returns as plain text."""
    return _text(comparison.runs, returns_shown(comparison))


def returns_shown(comparison: ReturnComparison) -> RenderableType:
    """Returns the table of two runs by returns, as a terminal shows it."""
    return returns_table(comparison, run_names(comparison.runs))


def comparison_html(comparison: Comparison) -> str:
    """Returns the table of two runs as HTML; what comes from tasks, policies and folders is escaped."""
    runs = (comparison.first, comparison.second)
    names = run_names(runs)
    rows = [html_row([label, *cells], color=_COLORS.get(style, "")) for label, cells, style in task_lines(comparison)]
    sentences = [sentence for sentence, _ in comparison_sentences(comparison, names)]
    return _html(runs, comparison_headings(names), rows, overall_cells(comparison), sentences)


def returns_html(comparison: ReturnComparison) -> str:
    """Returns the table of two runs by returns as HTML, likewise."""
    names = run_names(comparison.runs)
    rows = [html_row([label, *cells]) for label, cells in returns_lines(comparison)]
    sentences = [returns_verdict(comparison, names), *returns_warnings(comparison)]
    return _html(comparison.runs, returns_headings(names), rows, all_returns(comparison), sentences)


def _text(runs: tuple[Results, Results] | None, table: RenderableType) -> str:
    file = io.StringIO()
    console = Console(file=file, force_jupyter=False, force_terminal=False, color_system=None, width=_WIDE)
    show(Group(*_above(runs), table), console)
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines()).rstrip("\n")


def _above(runs: tuple[Results, Results] | None) -> list[Text]:
    return [] if runs is None else [runs_compared(run_names(runs), runs)]


def _html(
    runs: tuple[Results, Results] | None,
    headings: Sequence[str],
    tasks: Sequence[str],
    overall: Sequence[str],
    sentences: Sequence[str],
) -> str:
    rows = list(tasks[:MOST_TASKS])
    if left := len(tasks) - len(rows):
        rows.append(html_row([f"... and {count(left, 'more task', 'more tasks')}"]))
    rows.append(html_row(["overall", *overall], level="overall"))
    verdict, *below = sentences
    return "\n".join(
        [
            "<div>",
            *(f"<p>{_lines(above.plain)}</p>" for above in _above(runs)),
            *html_table(["task", *headings], rows),
            f"<p><b>{html_text(verdict)}</b></p>",
            f"<p>{'<br>'.join(map(html_text, below))}</p>",
            "</div>",
        ]
    )


def _lines(text: str) -> str:
    return "<br>".join(map(html_text, text.rstrip("\n").split("\n")))

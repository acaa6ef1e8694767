"""The table of results on the terminal."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.text import Text

from sparring.orchestrator.display.errors import rows_in_short
from sparring.orchestrator.display.figures import FigureTable
from sparring.orchestrator.display.lines import (
    Level,
    cautions,
    counts,
    errors_left_out,
    headings,
    mean_lines,
    result_lines,
)
from sparring.orchestrator.display.screen import show
from sparring.orchestrator.results.results import Results

_STYLES: Final[Mapping[Level, str]] = {"group": "cyan", "benchmark": "cyan bold", "overall": "bold"}

_MOST_ERRORS: Final = 5
"""That are told under the table, each once."""


def results_table(results: Results, most: int | None = None, missing: int | None = None) -> RenderableType:
    """Makes the table: episodes, errors, and what the run is about with its interval, per task, group and benchmark.

    Below stand the other means. Where there were errors, rates that they are left out of are marked, and stand beside
    their worst and best case.

    Args:
        results: What it is of.
        most: How many tasks of a benchmark have a line; None: all.
        missing: How many episodes have not been run, where the results are of some tasks only.
    """
    table = FigureTable("task", headings(results))
    for line in result_lines(results, most):
        cells: list[str | Text] = list(line.cells)
        if line.errors:
            cells[1] = Text(line.cells[1], style="red bold")
        table.add_row(line.name, cells, _STYLES.get(line.level, ""))
    lines: list[RenderableType] = [table, Text()]
    means = FigureTable("mean of", ["n", "", "95 % interval"])
    for whose, *figures in mean_lines(results):
        means.add_row(whose, figures)
    if means.row_count:
        lines += [means, Text()]
    lines += [Text(sentence, style="dim") for sentence in counts(results)]
    lines += [Text(sentence, style="yellow") for sentence in cautions(results, missing)]
    lines += _errors(results)
    if results.folder is not None:
        lines.append(Text(f"results: {results.folder}", style="dim"))
    return Group(*lines)


def print_table(results: Results, console: Console, missing: int | None = None) -> None:
    """Prints the table."""
    console.print()
    show(results_table(results, missing=missing), console)


def _errors(results: Results) -> list[RenderableType]:
    failed = [row for row in results.rows if row.outcome == "error"]
    if not failed:
        return []
    lines: list[RenderableType] = [Text(f"{errors_left_out(results)}:", style="red")]
    lines += [Text(f"  {line}") for line in rows_in_short(results, _MOST_ERRORS)]
    if len(failed) > 1 and results.folder is not None:
        lines.append(Text(f"  each of them: sparring show {shlex.quote(str(results.folder))} --errors"))
    return lines

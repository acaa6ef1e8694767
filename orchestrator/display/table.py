"""The table of success rates on the terminal."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from sparring.orchestrator.display.screen import bounds, count, show
from sparring.orchestrator.results.results import Results
from sparring.orchestrator.results.statistics import Summary


def results_table(results: Results) -> RenderableType:
    """Makes the table: episodes, errors, success rate and its interval, per task, per group and overall.

    Where there were errors, rates that they are left out of are marked, and stand beside their worst and best case.
    """
    marked = results.overall.errors > 0

    def cells(name: str, summary: Summary) -> Sequence[RenderableType]:
        return _cells(name, summary, marked=marked)

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("task", no_wrap=True)
    for heading in ("n", "errors", "success", "95 % interval", *(["worst - best"] if marked else [])):
        table.add_column(heading, justify="right", no_wrap=True)
    tasks = results.tasks
    for name, summary in tasks.items():
        table.add_row(*cells(name, summary))
    groups = {name: summary for name, summary in results.groups.items() if name not in tasks}
    if groups:
        table.add_section()
        table.add_row()
        for name, summary in groups.items():
            table.add_row(*cells(name, summary), style="cyan")
    table.add_row()
    table.add_row(*cells("overall", results.overall), style="bold")
    renders = sum(row.renders for row in results.rows)
    steps = sum(row.steps for row in results.rows)
    lines: list[RenderableType] = [table, Text()]
    lines.append(
        Text(
            f"{count(len(results.rows), 'episode')}, {count(steps, 'step')}, {count(renders, 'render')}, "
            f"{results.seconds:.1f} s",
            style="dim",
        )
    )
    if results.out_of_range:
        lines.append(
            Text(f"{results.out_of_range} of {count(steps, 'action')} were outside the action space", style="dim")
        )
    lines += [Text(f"warning: {sentence}", style="yellow") for sentence in results.warnings]
    if results.missing:
        lines.append(Text(f"{count(results.missing, 'episode')} not run yet", style="yellow"))
    lines += _errors(results)
    lines.append(Text(f"results: {results.folder}", style="dim"))
    return Group(*lines)


def print_table(results: Results, console: Console) -> None:
    """Prints the table."""
    console.print()
    show(results_table(results), console)


def _cells(name: str, summary: Summary, *, marked: bool) -> Sequence[RenderableType]:
    """Returns a row of the table; `marked`: of one that has marks, and the column that says what they mean."""
    errors = Text(str(summary.errors), style="red bold" if summary.errors else "")
    rate, interval = "-", "-"
    if summary.success_rate is not None:
        mark = (" *" if summary.errors else "  ") if marked else ""
        rate, interval = f"{100 * summary.success_rate:.1f} %{mark}", bounds(*summary.interval)
    cases = [bounds(summary.worst_case, summary.best_case) if summary.errors else ""] if marked else []
    return name, str(summary.n), errors, rate, interval, *cases


def _errors(results: Results) -> list[RenderableType]:
    failed = [row for row in results.rows if row.outcome == "error"]
    if not failed:
        return []
    kinds = ", ".join(f"{n} {kind}" for kind, n in results.overall.errors_by_kind.items())
    cases = bounds(results.overall.worst_case, results.overall.best_case)
    lines: list[RenderableType] = [
        Text(
            f"{count(len(failed), 'episode')} ended in an error ({kinds}), not counted in the rates (*); overall, "
            f"{cases} % if all of them were failures, or successes:",
            style="red",
        )
    ]
    lines += [
        Text(f"  {row.task} #{row.index}: {row.error.splitlines()[0] if row.error else ''}") for row in failed[:5]
    ]
    if len(failed) > 5:
        command = f"sparring show {shlex.quote(str(results.folder))} --errors"
        lines.append(Text(f"  ... and {len(failed) - 5} more, see: {command}"))
    return lines

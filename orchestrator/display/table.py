"""The table of success rates on the terminal."""

from __future__ import annotations

import shlex

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from sparring.orchestrator.display.screen import count, show
from sparring.orchestrator.results.results import Results
from sparring.orchestrator.results.statistics import Summary


def results_table(results: Results) -> RenderableType:
    """Makes the table: episodes, errors, success rate and its interval, per task, per group and overall."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("task", no_wrap=True)
    for heading in ("n", "errors", "success", "95 % interval"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, summary in results.tasks.items():
        table.add_row(*_cells(name, summary))
    groups = {name: summary for name, summary in results.groups.items() if name not in results.tasks}
    if groups:
        table.add_section()
        table.add_row()
        for name, summary in groups.items():
            table.add_row(*_cells(name, summary), style="cyan")
    table.add_row()
    table.add_row(*_cells("overall", results.overall), style="bold")
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


def _cells(name: str, summary: Summary) -> tuple[str, str, Text, str, str]:
    rate = summary.success_rate
    low, high = summary.interval
    errors = Text(str(summary.errors), style="red bold" if summary.errors else "")
    if rate is None:
        return name, "0", errors, "-", "-"
    return name, str(summary.n), errors, f"{100 * rate:.1f} %", f"{100 * low:.1f} - {100 * high:.1f}"


def _errors(results: Results) -> list[RenderableType]:
    failed = [row for row in results.rows if row.outcome == "error"]
    if not failed:
        return []
    kinds = ", ".join(f"{n} {kind}" for kind, n in results.overall.errors_by_kind.items())
    lines: list[RenderableType] = [
        Text(f"{count(len(failed), 'episode')} ended in an error ({kinds}), not counted in the rates:", style="red")
    ]
    lines += [
        Text(f"  {row.task} #{row.index}: {row.error.splitlines()[0] if row.error else ''}") for row in failed[:5]
    ]
    if len(failed) > 5:
        command = f"sparring show {shlex.quote(str(results.folder))} --errors"
        lines.append(Text(f"  ... and {len(failed) - 5} more, see: {command}"))
    return lines

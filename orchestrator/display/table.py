"""The table of results on the terminal."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from sparring.orchestrator.display.screen import bounds, count, numbers, show
from sparring.orchestrator.results.results import Results
from sparring.orchestrator.results.statistics import Mean, Summary


def results_table(results: Results) -> RenderableType:
    """Makes the table: episodes, errors, and what the run is about with its interval, per task, group and benchmark.

    Below stand the other means. Where there were errors, rates that they are left out of are marked, and stand beside
    their worst and best case.
    """
    tasks, groups, benchmarks = results.tasks, results.groups, results.benchmarks
    owners, several = results.owners, len(benchmarks) > 1
    rows = _Rows(results)
    for benchmark, summary in benchmarks.items():
        for name in tasks:
            if owners[name] == benchmark:
                rows.add(name, tasks[name])
        own = [name for name in groups if owners[name] == benchmark and name not in tasks]
        if own or several:
            rows.gap()
        for name in own:
            shown = f"{benchmark}: {name.removeprefix(f'{benchmark}/')}" if several else name
            rows.add(shown, groups[name], style="cyan")
        if several:
            rows.add(benchmark, summary, style="cyan bold")
        rows.gap()
    rows.add("overall", results.overall, style="bold")
    lines: list[RenderableType] = [rows.table, Text()]
    if results.overall.n:
        lines += [means_table(results), Text()]
    renders = sum(row.renders for row in results.rows)
    steps = sum(row.steps for row in results.rows)
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
    if results.folder is not None:
        lines.append(Text(f"results: {results.folder}", style="dim"))
    return Group(*lines)


def print_table(results: Results, console: Console) -> None:
    """Prints the table."""
    console.print()
    show(results_table(results), console)


class _Rows:
    """The table that is being made: a line per task, group and benchmark."""

    def __init__(self, results: Results) -> None:
        self._metric = results.metric
        self._marked = results.metric == "success" and results.overall.errors > 0
        """Whether there are marks, and a column that says what they mean."""
        headings = ["n", "errors", results.metric, "95 % interval", *(["worst - best"] if self._marked else [])]
        self.table = _table("task", headings)

    def add(self, name: str, summary: Summary, *, style: str = "") -> None:
        errors = Text(str(summary.errors), style="red bold" if summary.errors else "")
        cells = mean_cells(summary.returns) if self._metric == "return" else self._rate(summary)
        self.table.add_row(name, str(summary.n), errors, *cells, style=style)

    def gap(self) -> None:
        self.table.add_row()

    def _rate(self, summary: Summary) -> Sequence[str]:
        rate, interval = "-", "-"
        if summary.success_rate is not None:
            mark = (" *" if summary.errors else "  ") if self._marked else ""
            rate, interval = f"{100 * summary.success_rate:.1f} %{mark}", bounds(*summary.interval)
        return [rate, interval, *([_cases(summary)] if self._marked else [])]


def means_table(results: Results) -> Table:
    """Makes the table of the means that the run is not about: over all episodes, or those of each benchmark."""
    benchmarks = results.benchmarks
    table = _table("mean of", ["n", "", "95 % interval"])
    for name, summary in benchmarks.items():
        others = {"return": summary.returns, "steps": summary.steps, "reward_max": summary.reward_max}
        whose = f"{name}: " if len(benchmarks) > 1 else ""
        if results.metric == "return" and summary.success_rate is not None:
            rate = f"{100 * summary.success_rate:.1f} %"
            table.add_row(f"{whose}success", str(summary.judged), rate, f"{bounds(*summary.interval)} %")
        for title, mean in others.items():
            if mean is not None and title != results.metric:
                table.add_row(f"{whose}{title}", str(mean.n), *mean_cells(mean))
    return table


def mean_cells(mean: Mean | None) -> tuple[str, str]:
    """Writes a mean and its interval, with as many digits as say something."""
    if mean is None:
        return "-", "-"
    if mean.interval is None:
        return numbers([mean.mean])[0], "-"
    shown, low, high = numbers([mean.mean, *mean.interval])
    return shown, f"{low} to {high}"


def _table(first: str, headings: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column(first, no_wrap=True)
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _cases(summary: Summary) -> str:
    return bounds(summary.worst_case, summary.best_case) if summary.errors else ""


def _errors(results: Results) -> list[RenderableType]:
    failed = [row for row in results.rows if row.outcome == "error"]
    if not failed:
        return []
    kinds = ", ".join(f"{n} {kind}" for kind, n in results.overall.errors_by_kind.items())
    cases = bounds(results.overall.worst_case, results.overall.best_case)
    told = f"{count(len(failed), 'episode')} ended in an error ({kinds}), not counted in the "
    if results.metric == "success":
        told += f"rates (*); overall, {cases} % if all of them were failures, or successes:"
    else:
        told += "means:"
    lines: list[RenderableType] = [Text(told, style="red")]
    lines += [
        Text(f"  {row.task} #{row.index}: {row.error.splitlines()[0] if row.error else ''}") for row in failed[:5]
    ]
    if len(failed) > 5:
        command = f"sparring show {shlex.quote(str(results.folder))} --errors"
        lines.append(Text(f"  ... and {len(failed) - 5} more, see: {command}"))
    return lines

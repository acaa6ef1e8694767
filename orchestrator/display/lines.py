"""The lines of a table of results, as they are shown on a terminal and in a notebook."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from sparring.orchestrator.display.screen import bounds, count, numbers
from sparring.orchestrator.results.results import Results
from sparring.orchestrator.results.several_protocols import protocols_side_by_side
from sparring.orchestrator.results.statistics import Mean, Summary

Level = Literal["task", "group", "benchmark", "overall", "gap"]

MOST_TASKS: Final = 60
"""So many tasks have a line of their own where results are only looked at, as in an interpreter or a notebook."""


@dataclass(frozen=True)
class Line:
    """A line of the table.

    Attributes:
        level: What it is about.
        name: Of that.
        cells: One for each heading; none in a gap.
        errors: How many episodes of it ended in an error.
    """

    level: Level
    name: str = ""
    cells: Sequence[str] = ()
    errors: int = 0


_GAP: Final = Line("gap")


def headings(results: Results) -> list[str]:
    """Returns the headings of the columns after the first."""
    return ["n", "errors", results.metric, "95 % interval", *(["worst - best"] if is_marked(results) else [])]


def is_marked(results: Results) -> bool:
    """Returns whether rates are marked where errors are left out of them, and a column says what that means."""
    return results.metric == "success" and results.overall.errors > 0


def result_lines(results: Results, most: int | None = None) -> Iterator[Line]:
    """Yields the lines: of each benchmark its tasks, groups and itself, if there are several, and the whole.

    There is no whole of the same tasks by several protocols.

    Args:
        results: What they are of.
        most: How many tasks of a benchmark have a line; None: all.
    """
    tasks, groups, benchmarks = results.tasks, results.groups, results.benchmarks
    owners, several, rules = results.owners, len(benchmarks) > 1, protocols_side_by_side(results)
    marked = is_marked(results)

    def line(level: Level, name: str, summary: Summary) -> Line:
        cells = mean_cells(summary.returns) if results.metric == "return" else _rate_cells(summary, marked)
        return Line(level, name, [str(summary.n), str(summary.errors), *cells], summary.errors)

    for benchmark, whole in benchmarks.items():
        own_tasks = [name for name in tasks if owners[name] == benchmark]
        yield from (line("task", name, tasks[name]) for name in own_tasks[:most])
        if len(own_tasks[:most]) < len(own_tasks):
            yield Line("task", f"... and {count(len(own_tasks[most:]), 'more task', 'more tasks')}")
        own_groups = [name for name in groups if owners[name] == benchmark and name not in tasks]
        if own_groups or several:
            yield _GAP
        for name in own_groups:
            shown = f"{benchmark}: {name.removeprefix(f'{benchmark}/')}" if several else name
            yield line("group", shown, groups[name])
        if several and not rules:
            yield line("benchmark", benchmark, whole)
        yield _GAP
    if not rules:
        yield line("overall", "overall", results.overall)
    for label in rules:  # a rate of several protocols together would be by the rules of none
        yield line("overall", f"overall by {label}", benchmarks[label])


def mean_lines(results: Results) -> Iterator[tuple[str, str, str, str]]:
    """Yields the means that the run is not about, each with n and interval: over all episodes, or per benchmark."""
    benchmarks = results.benchmarks
    for name, summary in benchmarks.items():
        others = {"return": summary.returns, "steps": summary.steps, "reward_max": summary.reward_max}
        whose = f"{name}: " if len(benchmarks) > 1 else ""
        if results.metric == "return" and summary.success_rate is not None:
            rate = f"{100 * summary.success_rate:.1f} %"
            yield f"{whose}success", str(summary.judged), rate, f"{bounds(*summary.interval)} %"
        for title, mean in others.items():
            if mean is not None and title != results.metric:
                yield f"{whose}{title}", str(mean.n), *mean_cells(mean)


def mean_cells(mean: Mean | None) -> tuple[str, str]:
    """Writes a mean and its interval, with as many digits as say something."""
    if mean is None:
        return "-", "-"
    if mean.interval is None:
        return numbers([mean.mean])[0], "-"
    shown, low, high = numbers([mean.mean, *mean.interval])
    return shown, f"{low} to {high}"


def _rate_cells(summary: Summary, marked: bool) -> list[str]:
    rate, interval = "-", "-"
    if summary.success_rate is not None:
        mark = (" *" if summary.errors else "  ") if marked else ""
        rate, interval = f"{100 * summary.success_rate:.1f} %{mark}", bounds(*summary.interval)
    cases = bounds(summary.worst_case, summary.best_case) if summary.errors else ""
    return [rate, interval, *([cases] if marked else [])]


def counts(results: Results) -> list[str]:
    """Returns what is said below the table: how much there was, and what was out of the ordinary."""
    renders = sum(row.renders for row in results.rows)
    steps = sum(row.steps for row in results.rows)
    said = [
        f"{count(len(results.rows), 'episode')}, {count(steps, 'step')}, {count(renders, 'render')}, "
        f"{results.seconds:.1f} s"
    ]
    if results.out_of_range:
        said.append(f"{results.out_of_range} of {count(steps, 'action')} were outside the action space")
    return said


def cautions(results: Results, missing: int | None = None) -> list[str]:
    """Returns what you should know before you quote it: warnings, and what is missing.

    Args:
        results: What it is about.
        missing: How many episodes have not been run, where the results are of some tasks only.
    """
    said = [] if results.early_stop is None else [results.early_stop.sentence]
    said += [f"warning: {sentence}" for sentence in results.warnings]
    left = results.missing if missing is None else missing
    return [*said, f"{count(left, 'episode')} not run yet"] if left else said


def errors_left_out(results: Results) -> str:
    """Returns how many episodes ended in an error, and what that means for the table; empty if none did."""
    overall = results.overall
    if not overall.errors:
        return ""
    kinds = ", ".join(f"{n} {kind}" for kind, n in overall.errors_by_kind.items())
    told = f"{count(overall.errors, 'episode')} ended in an error ({kinds}), not counted in the "
    if results.metric != "success":
        return f"{told}means"
    cases = bounds(overall.worst_case, overall.best_case)
    if not cases:
        return f"{told}means"
    return f"{told}rates (*); overall, {cases} % if all of them were failures, or successes"

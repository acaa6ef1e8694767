"""A comparison of runs by returns, on the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from sparring.orchestrator.comparison.returns import ComparedReturns, ReturnComparison
from sparring.orchestrator.display.comparison import forced, p_shown, p_told
from sparring.orchestrator.display.figures import FigureTable
from sparring.orchestrator.display.screen import count, numbers


def returns_table(comparison: ReturnComparison, names: tuple[str, str]) -> RenderableType:
    """Makes the table of two runs: mean returns, their difference with its interval, and tests, per task and over all.

    Args:
        comparison: What it is of.
        names: What the runs are called.
    """
    rows = ((label, cells, "") for label, cells in returns_lines(comparison))
    table = FigureTable.of_tasks(returns_headings(names), rows, all_returns(comparison))
    told = [
        Text(returns_verdict(comparison, names), style="bold"),
        *(Text(sentence, style="bold red") for sentence in forced(comparison.obstacles)),
        *(Text(f"warning: {sentence}", style="yellow") for sentence in comparison.cautions),
    ]
    return Group(table, Text(), *told)


def returns_headings(names: tuple[str, str]) -> list[str]:
    """Returns the headings of the columns after the first."""
    return ["n", *names, "difference", "95 % interval", "p", "p by Holm"]


def returns_lines(comparison: ReturnComparison) -> Iterator[tuple[str, list[str]]]:
    """Yields the label of each task, and its cells."""
    for label, task in comparison.tasks.items():
        yield label, [*_cells(task), _p(comparison.adjusted.get(label))]


def all_returns(comparison: ReturnComparison) -> list[str]:
    """Returns the cells of all tasks together."""
    return [*_cells(comparison.overall), ""]


def returns_warnings(comparison: ReturnComparison) -> list[str]:
    """Returns what one should know before one believes the verdict."""
    return [*forced(comparison.obstacles), *(f"warning: {sentence}" for sentence in comparison.cautions)]


def returns_verdict(comparison: ReturnComparison, names: tuple[str, str]) -> str:
    """Returns in a sentence whether the second's returns differ from the first's."""
    overall = comparison.overall
    difference = overall.difference
    assert difference is not None, "compare_returns() refuses runs without pairs"
    told = f"mean difference {_signed(difference)}"
    if overall.interval is not None and overall.p_value is not None:
        low, high = overall.interval
        told += f" ({_signed(low)} to {_signed(high)}), {p_told(overall.p_value)}"
    elif overall.is_constant:
        told += " in every pair, so that there is no spread to judge by"
    how = "by Student's t over pairs of the same episode"
    if comparison.is_decided:
        compared = "higher" if difference > 0 else "lower"
        only_if = "" if comparison.rounds is None else ", if the number of episodes was fixed beforehand"
        return f"returns of {names[1]} are {compared} than those of {names[0]}: {told}, {how}{only_if}."
    return f"not distinguishable with these {count(len(overall.pairs), 'episode')}: {told}, {how}."


def _cells(compared: ComparedReturns) -> list[str]:
    if compared.means is None or compared.difference is None:
        return [str(len(compared.pairs)), *"-----"]
    shown = numbers(list(compared.means))
    interval = "-" if compared.interval is None else " to ".join(map(_signed, compared.interval))
    return [str(len(compared.pairs)), *shown, _signed(compared.difference), interval, _p(compared.p_value)]


def _signed(value: float) -> str:
    return f"{value:+.4g}"


def _p(value: float | None) -> str:
    return "-" if value is None else p_shown(value)

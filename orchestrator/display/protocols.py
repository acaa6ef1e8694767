"""The same policy by several protocols: one table, and which rules may have moved the number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from sparring.orchestrator.comparison.protocols import ProtocolResult
from sparring.orchestrator.display.comparison import comparison_headings, overall_cells
from sparring.orchestrator.display.figures import FigureTable
from sparring.orchestrator.display.screen import count


def protocols_table(found: Sequence[ProtocolResult]) -> RenderableType:
    """Makes the tables: each protocol against the first, by pairs of the same episode; and each task by each."""
    names = [one.label for one in found]
    headings = comparison_headings((names[0], "here"))[:-1]
    table = FigureTable("protocol", headings)
    for one in found:
        summary = one.results.overall
        if one.against is not None:
            table.add_row(one.label, overall_cells(one.against)[:-1])
        else:
            rate = _percent(summary.success_rate)
            table.add_row(one.label, [str(summary.judged), rate], "bold" if one is found[0] else "")
    tasks = FigureTable("task", names)
    for label in found[0].results.tasks:
        rates = [one.results.tasks[label].success_rate for one in found]
        tasks.add_row(label, [*map(_percent, rates)])
    if tasks.row_count > 1:
        rates = [one.results.overall.success_rate for one in found]
        tasks.add_row("overall", [*map(_percent, rates)], "bold")
    compared = [one.against for one in found if one.against is not None]
    pairs = "in pairs of the same episode with" if compared and all(one.paired for one in compared) else "against"
    lines: list[RenderableType] = [Text(f"by protocols, {pairs} {names[0]}:"), table, Text()]
    if tasks.row_count > 1:
        lines += [tasks, Text()]
    lines += [Text(sentence) for one in found[1:] for sentence in _sentences(one, found[0])]
    return Group(*lines)


def _sentences(one: ProtocolResult, first: ProtocolResult) -> Iterator[str]:
    if one.against is None:
        yield f"{one.label} is not held against {first.label}: no episode has an outcome by both yet."
    if not one.differences:
        yield f"{one.label} has the rules of {first.label}."
        return
    yield f"{one.label} differs from {first.label} in:"
    for found in one.differences:
        yield f"  {found.rule.name}: {found.first} -> {found.second}; usually {found.effect}"
    if not one.begins_alike:
        yield "  initial states are others: episodes of a pair share the task and the number, and do not begin alike"
    if one.cut_off:
        lost = "that it lost took more steps" if one.cut_off == 1 else "that it lost took more steps each"
        yield f"  {count(one.cut_off, 'episode')} {lost} by {first.label} than there are here"


def _percent(rate: float | None) -> str:
    return "-" if rate is None else f"{100 * rate:.1f} %"

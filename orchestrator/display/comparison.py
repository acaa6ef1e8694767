"""A comparison of runs on the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sparring.orchestrator.comparison.comparison import ALPHA, Compared, Comparison
from sparring.orchestrator.comparison.significance import unpaired_test
from sparring.orchestrator.display.screen import count
from sparring.orchestrator.display.title import results_title, status
from sparring.orchestrator.results.results import Results

_MOST_FLIPPED: Final = 12


def comparison_table(comparison: Comparison, names: tuple[str, str]) -> RenderableType:
    """Makes the table of two runs: rates, differences with intervals, and tests, per task and over all.

    Args:
        comparison: What it is of.
        names: What the runs are called.
    """
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("task", no_wrap=True)
    for heading in ("n", *names, "difference", "95 % interval", "won - lost", "p", "p by Holm"):
        table.add_column(heading, justify="right", no_wrap=True)
    for label, task in comparison.tasks.items():
        adjusted = comparison.adjusted.get(label)
        shown = "-" if adjusted is None else _p(adjusted)
        table.add_row(Text(label), *_cells(task), shown, style=_style(task, adjusted))
    table.add_section()
    table.add_row()
    table.add_row("overall", *_cells(comparison.overall), "", style="bold")
    return Group(table, Text(), *(Text(sentence, style=style) for sentence, style in _sentences(comparison, names)))


def runs_compared(names: tuple[str, str], runs: tuple[Results, Results]) -> Text:
    """Returns what is compared with what, a line for each."""
    width = max(map(len, names))
    lines = [
        f"{name:<{width}}  {results_title(run)}{'' if run.status == 'finished' else f' ({status(run)})'}"
        for name, run in zip(names, runs, strict=True)
    ]
    return Text("\n".join([*lines, ""]), style="bold")


def verdict(comparison: Comparison, names: tuple[str, str]) -> str:
    """Returns in a sentence whether the second differs from the first; if that cannot be said, what it would take."""
    overall = comparison.overall
    difference = overall.difference
    assert difference is not None, "compare() refuses runs without rates"
    low, high = overall.interval
    told = f"{_points(difference)} points ({_points(low)} to {_points(high)}), {_p_told(overall.p_value)}"
    if comparison.is_decided:
        return f"{names[1]} is {'better' if difference > 0 else 'worse'} than {names[0]}: {told}."
    n = overall.pairs.n if overall.pairs is not None else min(overall.first[1], overall.second[1])
    sentence = f"not distinguishable with these {count(n, 'episode')}: {told}."
    needed = comparison.episodes_needed()
    if needed is None:
        return sentence
    about = "more than a million" if needed[1] is None else f"about {_rounded(needed[1])}"
    return f"{sentence} To see a difference of {100 * needed[0]:.1f} points you would need {about} episodes."


def _sentences(comparison: Comparison, names: tuple[str, str]) -> Iterator[tuple[str, str]]:
    yield verdict(comparison, names), "bold"
    yield from ((f"warning: not comparable: {sentence}", "yellow") for sentence in comparison.obstacles)
    yield from ((f"warning: {sentence}", "yellow") for sentence in comparison.cautions)
    if comparison.such_tasks is not None:
        low, high = comparison.such_tasks
        yield f"on tasks like these, of which these are a sample: {_points(low)} to {_points(high)} points", "dim"
    if comparison.rounds is not None:
        rounds = comparison.rounds
        sentence = (
            "not finished: the p above holds for one look at the end, and not for looking again and again. After "
            f"{count(rounds.n, 'whole round')}, {_p_told(rounds.p_value)} holds whenever you look; the chance that "
            f"the rest of the plan shows a difference is {100 * rounds.chance:.0f} %"
        )
        yield sentence, "yellow"
    changed = [label for label, value in comparison.adjusted.items() if value <= ALPHA]
    if changed and len(comparison.tasks) > 1:
        yield f"tasks that differ (p by Holm at most {ALPHA}): {', '.join(changed)}", ""
    if not comparison.paired:
        test = unpaired_test(comparison.overall.first, comparison.overall.second)
        yield f"the runs have no episodes in common (other seeds): unpaired, by {test}'s exact test", "yellow"
    for number, what in (
        (comparison.left_out, "left out: not judged in both, as one that ended in an error"),
        (comparison.unmatched, "left out: only one of the runs has played them"),
    ):
        if number:
            yield f"{count(number, 'episode')} {what}", "yellow"
    if comparison.flipped:
        yield "episodes that flipped:", ""
        for id, won in comparison.flipped[:_MOST_FLIPPED]:
            yield f"  {id.task} #{id.index}: {'failure -> success' if won else 'success -> failure'}", ""
        if len(comparison.flipped) > _MOST_FLIPPED:
            yield f"  and {len(comparison.flipped) - _MOST_FLIPPED} more: --json has all", "dim"


def _cells(compared: Compared) -> list[str]:
    first, second = (f"{100 * rate:.1f} %" if rate is not None else "-" for rate in compared.rates)
    pairs = compared.pairs
    n = str(pairs.n) if pairs is not None else f"{compared.first[1]}, {compared.second[1]}"
    if compared.difference is None:
        return [n, first, second, "-", "-", "-", "-"]
    low, high = compared.interval
    flips = "-" if pairs is None else f"{pairs.only_second} - {pairs.only_first}"
    interval = f"{_points(low)} to {_points(high)}"
    return [n, first, second, _points(compared.difference), interval, flips, _p(compared.p_value)]


def _style(task: Compared, adjusted: float | None) -> str:
    if adjusted is None or adjusted > ALPHA or task.difference is None:
        return ""
    return "green" if task.difference > 0 else "red"


def _points(difference: float) -> str:
    return f"{100 * difference:+.1f}"


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def _p_told(value: float) -> str:
    return "p < 0.001" if value < 0.001 else f"p = {_p(value)}"


def _rounded(number: int) -> int:
    """Returns a number of episodes with two digits that say something: it is an estimate."""
    digits = max(0, len(str(number)) - 2)
    return round(number, -digits)

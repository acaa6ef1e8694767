"""A comparison of runs on the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from sparring.orchestrator.comparison.comparison import ALPHA, Compared, Comparison, whole_counts
from sparring.orchestrator.comparison.significance import unpaired_test
from sparring.orchestrator.display.figures import FigureTable
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
    table = FigureTable.of_tasks(comparison_headings(names), task_lines(comparison), overall_cells(comparison))
    told = (Text(sentence, style=style) for sentence, style in comparison_sentences(comparison, names))
    return Group(table, Text(), *told)


def comparison_headings(names: tuple[str, str]) -> list[str]:
    """Returns the headings of the columns after the first."""
    return ["n", *names, "difference", "95 % interval", "won - lost", "p", "p by Holm"]


def task_lines(comparison: Comparison) -> Iterator[tuple[str, list[str], str]]:
    """Yields the label of each task, its cells, and a colour: green if it got better beyond doubt, red if worse."""
    for label, task in comparison.tasks.items():
        adjusted = comparison.adjusted.get(label)
        yield label, [*_cells(task), "-" if adjusted is None else p_shown(adjusted)], _style(task, adjusted)


def overall_cells(comparison: Comparison) -> list[str]:
    """Returns the cells of all tasks together."""
    return [*_cells(comparison.overall), ""]


def run_names(runs: tuple[Results, Results] | None) -> tuple[str, str]:
    """Returns what two runs are called where nobody has said so: by their folders, where these differ."""
    folders = [run.folder.resolve().name if run.folder is not None else "" for run in runs or ()]
    return (folders[0], folders[1]) if folders and all(folders) and folders[0] != folders[1] else ("first", "second")


def comparison_sentences(comparison: Comparison, names: tuple[str, str]) -> Iterator[tuple[str, str]]:
    """Yields all that is said below the table, each sentence with a style; the first is the verdict."""
    yield verdict(comparison, names), "bold"
    yield from ((sentence, "bold red") for sentence in forced(comparison.obstacles))
    yield from sentences(comparison, names)
    yield from _flips(comparison)


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
    told = f"{_points(difference)} points ({_points(low)} to {_points(high)}), {p_told(comparison.p_value)}"
    if comparison.is_decided:
        return f"{names[1]} is {'better' if difference > 0 else 'worse'} than {names[0]}: {told}."
    n = round(overall.pairs.n if overall.pairs is not None else min(overall.first[1], overall.second[1]))
    sentence = f"not distinguishable with these {count(n, 'episode')}: {told}."
    needed = comparison.episodes_needed()
    if needed is None:
        return sentence
    about = "more than a million" if needed[1] is None else f"about {_rounded(needed[1])}"
    return f"{sentence} To see a difference of {100 * needed[0]:.1f} points you would need {about} episodes."


def forced(obstacles: Sequence[str]) -> list[str]:
    """Returns what is said of runs that are compared although something that moves a score is not the same in both."""
    return [f"warning: not comparable: {sentence}" for sentence in obstacles]


def sentences(comparison: Comparison, names: tuple[str, str]) -> Iterator[tuple[str, str]]:
    """Yields what is to be said beside the verdict, each with its style; yellow is what one should know."""
    yield from ((f"warning: {sentence}", "yellow") for sentence in comparison.cautions)
    if comparison.such_tasks is not None:
        low, high = comparison.such_tasks
        yield f"on tasks like these, of which these are a sample: {_points(low)} to {_points(high)} points", "dim"
    if comparison.rounds is not None:
        rounds = comparison.rounds
        runs = (comparison.first, comparison.second)
        going = not all(run.status == "finished" for run in runs)
        stopped = any(run.early_stop is not None and run.early_stop.stopped for run in runs)
        how = "not finished" if going else "stopped early" if stopped else "could stop early"
        sentence = (
            f"{how}: p and intervals of the table hold only if the number of "
            "episodes was fixed beforehand. The verdict is by a p that holds whenever you look, "
            f"{p_told(rounds.p_value)} after {count(rounds.n, 'whole round')}; p by Holm is of such ones, too"
        )
        chance = f"; the chance that the rest of the plan shows a difference is {100 * rounds.chance:.0f} %"
        yield sentence + (chance if going else ""), "yellow"
    for word, sign in (("better", 1), ("worse", -1)):
        changed = [
            label
            for label, value in comparison.adjusted.items()
            if value <= ALPHA and sign * (comparison.tasks[label].difference or 0.0) > 0
        ]
        if changed and len(comparison.tasks) > 1:
            yield f"tasks that got {word} (p by Holm at most {ALPHA}): {', '.join(changed)}", ""
    plays = [run.plan.repeats for run in (comparison.first, comparison.second)]
    if max(plays) > 1:
        told = f"{plays[0]}" if plays[0] == plays[1] else f"{plays[0]} and {plays[1]}"
        yield (
            f"episodes were played {told} times: pairs are of episodes, by the share of plays that succeeded; p is of "
            "the exact test of signs over episodes",
            "dim",
        )
    if not comparison.paired:
        test = unpaired_test(*(whole_counts(side) for side in (comparison.overall.first, comparison.overall.second)))
        yield f"the runs have no episodes in common (other seeds): unpaired, by {test}'s exact test", "yellow"
    for number, what in (
        (comparison.left_out, "left out: not judged in both, as one that ended in an error"),
        (comparison.unmatched, "left out: only one of the runs has played them"),
    ):
        if number:
            yield f"{count(number, 'episode')} {what}", "yellow"


def _flips(comparison: Comparison) -> Iterator[tuple[str, str]]:
    if comparison.flipped:
        yield "episodes that flipped:", ""
        for id, won in comparison.flipped[:_MOST_FLIPPED]:
            yield f"  {id.task} #{id.index}: {'failure -> success' if won else 'success -> failure'}", ""
        if len(comparison.flipped) > _MOST_FLIPPED:
            yield f"  and {len(comparison.flipped) - _MOST_FLIPPED} more: --json has all", "dim"


def _cells(compared: Compared) -> list[str]:
    first, second = (f"{100 * rate:.1f} %" if rate is not None else "-" for rate in compared.rates)
    pairs = compared.pairs
    n = f"{pairs.n:.0f}" if pairs is not None else f"{compared.first[1]:.0f}, {compared.second[1]:.0f}"
    if compared.difference is None:
        return [n, first, second, "-", "-", "-", "-"]
    low, high = compared.interval
    flips = "-" if pairs is None else f"{pairs.only_second:.3g} - {pairs.only_first:.3g}"
    interval = f"{_points(low)} to {_points(high)}"
    return [n, first, second, _points(compared.difference), interval, flips, p_shown(compared.p_value)]


def _style(task: Compared, adjusted: float | None) -> str:
    if adjusted is None or adjusted > ALPHA or task.difference is None:
        return ""
    return "green" if task.difference > 0 else "red"


def _points(difference: float) -> str:
    return f"{100 * difference:+.1f}"


def p_shown(value: float) -> str:
    """Returns a p-value as a cell shows it."""
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def p_told(value: float) -> str:
    """Returns a p-value as a sentence tells it."""
    return "p < 0.001" if value < 0.001 else f"p = {p_shown(value)}"


def _rounded(number: int) -> int:
    """Returns a number of episodes with two digits that say something: it is an estimate."""
    digits = max(0, len(str(number)) - 2)
    return round(number, -digits)

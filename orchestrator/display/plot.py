"""Results as a picture: a bar for every task, with its interval."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sparring.orchestrator.display.title import results_title
from sparring.orchestrator.results.results import Results
from sparring.orchestrator.results.several_protocols import protocols_side_by_side
from sparring.orchestrator.results.statistics import Summary
from sparring.protos.errors import UsageError
from sparring.protos.installing import install_command
from sparring.protos.plain_text import plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_INCHES: Final = 0.28
"""Of a bar."""
_TALLEST: Final = 200.0
"""Inches: beyond, what draws a picture gives up."""
_TASK: Final = "#1f8a70"
_WHOLE: Final = "#64707a"


def plot_results(results: Results, axes: Axes | None = None) -> Axes:
    """Draws the success rate, or the mean return, of each task and of all of them, with 95 % intervals.

    Of several protocols each has a bar, and all together have none: that would be by the rules of none.

    Args:
        results: What it is of.
        axes: Where to draw; a new figure if left out.

    Raises:
        UsageError: If matplotlib is not installed.
    """
    try:
        from matplotlib import pyplot
    except ModuleNotFoundError:
        how = install_command("notebook") or "pip install matplotlib"
        raise UsageError(f"a plot needs matplotlib; install it: {how}") from None
    shown = {**results.groups, **results.tasks}  # a task that was chosen by its own name is its own group
    order = [*results.tasks, *(name for name in results.groups if name not in results.tasks)]
    rules = {f"overall by {label}": results.benchmarks[label] for label in protocols_side_by_side(results)}
    shown = {**{name: shown[name] for name in order}, **(rules or {"overall": results.overall})}
    if axes is None:
        tall = min(_TALLEST, 1.2 + _INCHES * len(shown))
        _, axes = pyplot.subplots(figsize=(7.0, tall), layout="constrained")
    by_return = results.metric == "return"
    for place, (name, summary) in enumerate(shown.items()):
        value, interval = _value(summary, by_return=by_return)
        if value is None:
            continue
        color = _TASK if name in results.tasks else _WHOLE
        axes.barh(place, value, height=0.7, color=color)
        if interval is not None:
            # What sticks out of a rate on either side; at its ends, rounding must not make it less than nothing.
            apart = [[max(0.0, value - interval[0])], [max(0.0, interval[1] - value)]]
            axes.errorbar(value, place, xerr=apart, fmt="none", ecolor="black", elinewidth=1.2, capsize=3)
    # Escaped: a name with dollars in it would be taken for a formula.
    axes.set_yticks(range(len(shown)), [plain(name).replace("$", r"\$") for name in shown])
    axes.invert_yaxis()
    if not by_return:
        axes.set_xlim(0.0, 1.0)
        axes.xaxis.set_major_formatter(lambda share, _: f"{100 * share:.0f} %")
    axes.set_xlabel("mean return" if by_return else "success, with 95 % intervals")
    axes.set_title(plain(results_title(results)).replace("$", r"\$"), fontsize="medium")
    return axes


def _value(summary: Summary, *, by_return: bool) -> tuple[float | None, tuple[float, float] | None]:
    if not by_return:
        return summary.success_rate, summary.interval
    return (None, None) if summary.returns is None else (summary.returns.mean, summary.returns.interval)

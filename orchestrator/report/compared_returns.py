"""What a page about the returns of two runs or more says: `sparring compare --metric return --html`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sparring.orchestrator.comparison.comparison import ALPHA
from sparring.orchestrator.comparison.returns import ReturnComparison, ReturnPair
from sparring.orchestrator.comparison.shares import EpisodeKey
from sparring.orchestrator.display.compared_returns import returns_verdict
from sparring.orchestrator.report.comparison import (
    FilmsOfRun,
    compared_content,
    compared_run,
    compared_side,
    different_settings,
)
from sparring.orchestrator.results.results import Results
from sparring.orchestrator.results.row import EpisodeRow

_MOST_EPISODES: Final = 60
"""That are shown one by one: nearly all episodes differ by a little."""


def shown_pairs(comparison: ReturnComparison) -> Sequence[ReturnPair]:
    """Returns the episodes that a page shows: those that differ most."""
    return comparison.episodes[:_MOST_EPISODES]


def plays_of(pairs: Sequence[ReturnPair], run: Results) -> list[EpisodeRow]:
    """Returns, for each of some episodes, the first of its plays in a run that came to its end."""
    found: dict[EpisodeKey, EpisodeRow] = {}
    for row in run.rows:  # sorted by index
        if row.outcome != "error":
            found.setdefault((row.benchmark, row.task, run.plan.round_of(row.index)), row)
    return [found[pair.benchmark, pair.task, pair.number] for pair in pairs]


def returns_content(
    comparisons: Sequence[ReturnComparison], runs: Sequence[Results], names: Sequence[str], films: Sequence[FilmsOfRun]
) -> dict[str, Any]:
    """Returns all that a page about runs says, by their returns.

    Args:
        comparisons: Each other run with the first.
        runs: The first, and the others.
        names: What they are called, likewise.
        films: Of them, likewise.
    """
    return compared_content(
        names,
        [
            _returns(comparison, (runs[0], run), (names[0], name), (films[0], of_other))
            for comparison, run, name, of_other in zip(comparisons, runs[1:], names[1:], films[1:], strict=True)
        ],
    )


def _returns(
    comparison: ReturnComparison,
    runs: tuple[Results, Results],
    names: tuple[str, str],
    films: tuple[FilmsOfRun, FilmsOfRun],
) -> dict[str, Any]:
    shown = shown_pairs(comparison)
    sides = [
        [{**compared_side(row), **own.of(row.id)} for row in plays_of(shown, run)]
        for run, own in zip(runs, films, strict=True)
    ]
    tasks = {(benchmark, task.name): task for benchmark, task in runs[0].plan.labels().values()}
    return {
        "metric": "return",
        "runs": [compared_run(run, name) for run, name in zip(runs, names, strict=True)],
        "verdict": returns_verdict(comparison, names),
        "decided": comparison.is_decided,
        "p_value": comparison.overall.p_value,
        "paired": True,
        "overall": comparison.overall.to_json(),
        "tasks": [
            {
                "name": label,
                **compared.to_json(),
                "p_value_by_holm": comparison.adjusted.get(label),
                "differs": comparison.adjusted.get(label, 1.0) <= ALPHA,
            }
            for label, compared in comparison.tasks.items()
        ],
        "obstacles": list(comparison.obstacles),
        "sentences": [{"text": f"warning: {sentence}", "caution": True} for sentence in comparison.cautions],
        "flipped": [
            {
                "task": pair.task,
                "index": pair.number,
                "instruction": tasks[pair.benchmark, pair.task].instruction,
                "seed": pair.seed,
                "difference": pair.difference,
                "won": pair.difference > 0,
                "sides": both,
            }
            for pair, *both in zip(shown, *sides, strict=True)
        ],
        "left_out": len(comparison.episodes) - len(shown),
        "settings": different_settings(runs[0].settings, runs[1].settings),
    }

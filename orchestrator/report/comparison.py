"""What a page about two runs or more says, as one JSON value, and the page itself: `sparring compare --html`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from sparring.orchestrator.comparison.comparison import ALPHA, Comparison
from sparring.orchestrator.display.comparison import sentences, verdict
from sparring.orchestrator.display.title import results_title, status
from sparring.orchestrator.plan import EpisodeId
from sparring.orchestrator.report.page import whole_page
from sparring.orchestrator.results.finite import finite
from sparring.orchestrator.results.results import Results
from sparring.orchestrator.results.row import EpisodeRow

_NOT_ABOUT: Final = ("output", "record", "against", "until", "alpha", "futility")
"""Settings that are never the same, or say nothing of what was played."""


@dataclass(frozen=True)
class FilmsOfRun:
    """The films of a run, as seen from the page.

    Attributes:
        addresses: By episode.
        why_not: Why an episode has none, by episode; None: for all others.
    """

    addresses: Mapping[EpisodeId, str] = field(default_factory=dict)
    why_not: Mapping[EpisodeId | None, str] = field(default_factory=dict)

    def of(self, episode: EpisodeId) -> dict[str, str]:
        """Returns the address of an episode's film, or why there is none."""
        film = self.addresses.get(episode, "")
        why = "" if film else self.why_not.get(episode) or self.why_not.get(None) or "no film was made"
        return {"film": film, "why_no_film": why}


def comparison_content(
    comparisons: Sequence[Comparison], names: Sequence[str], films: Sequence[FilmsOfRun]
) -> dict[str, Any]:
    """Returns all that a page about runs says.

    Args:
        comparisons: Each other run with the first.
        names: What the runs are called, the first one's first.
        films: Of the runs, likewise.
    """
    return compared_content(
        names,
        [
            _comparison(comparison, (names[0], name), (films[0], films_of_other))
            for comparison, name, films_of_other in zip(comparisons, names[1:], films[1:], strict=True)
        ],
    )


def compared_content(names: Sequence[str], comparisons: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Returns all that a page about runs says, of what it says about each other run and the first."""
    return finite(  # type: ignore[no-any-return]
        {
            "title": f"{' and '.join(names[1:])} against {names[0]}",
            "made": datetime.now(UTC).isoformat(timespec="seconds"),
            "comparisons": comparisons,
        }
    )


def comparison_page(content: dict[str, Any]) -> str:
    """Returns the page that shows a comparison."""
    style, script = ["report.css", "compare.css"], ["parts.js", "compare.js"]
    return whole_page("compare", content, style=style, script=script)


def _comparison(comparison: Comparison, names: tuple[str, str], films: tuple[FilmsOfRun, FilmsOfRun]) -> dict[str, Any]:
    runs = (comparison.first, comparison.second)
    rows = tuple({row.id: row for row in run.rows} for run in runs)
    tasks = {(benchmark, task.name): task for benchmark, task in comparison.first.plan.labels().values()}
    overall = comparison.overall
    return {
        "metric": "success",
        "runs": [compared_run(run, name) for run, name in zip(runs, names, strict=True)],
        "verdict": verdict(comparison, names),
        "decided": comparison.is_decided,
        "p_value": comparison.p_value,
        "paired": comparison.paired,
        "overall": overall.to_json(),
        "such_tasks": None if comparison.such_tasks is None else list(comparison.such_tasks),
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
        "sentences": [
            {"text": sentence, "caution": style == "yellow"} for sentence, style in sentences(comparison, names)
        ],
        "flipped": [
            {
                "task": episode.task,
                "index": episode.index,
                "instruction": tasks[episode.benchmark, episode.task].instruction,
                "seed": rows[0][episode].seed,
                "won": won,
                "sides": [
                    {**compared_side(found[episode]), **own.of(episode)} for found, own in zip(rows, films, strict=True)
                ],
            }
            for episode, won in comparison.flipped
        ],
        "settings": different_settings(comparison.first.settings, comparison.second.settings),
    }


def compared_run(run: Results, name: str) -> dict[str, Any]:
    """Returns what a page says of one of its runs."""
    policy = run.policy
    return {
        "name": name,
        "title": results_title(run),
        "status": run.status,
        "status_told": status(run),
        "folder": None if run.folder is None else str(run.folder),
        "checkpoint_sha256": None if policy is None else policy.checkpoint_sha256,
        "episodes": len(run.rows),
        "errors": run.overall.errors,
    }


def compared_side(row: EpisodeRow) -> dict[str, Any]:
    """Returns what a page says of an episode of one of its runs."""
    return {"outcome": row.outcome, "steps": row.steps, "return": row.reward_sum, "reward_max": row.reward_max}


def different_settings(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[list[Any]]:
    """Returns the settings that are not the same in both, with both values."""
    return [
        [name, first.get(name), second.get(name)]
        for name in dict.fromkeys([*first, *second])
        if name not in _NOT_ABOUT and first.get(name) != second.get(name)
    ]

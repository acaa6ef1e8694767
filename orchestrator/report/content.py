"""What a report says, as one JSON value: the page shows it, and `--format json` prints it.

Episodes are columns and not objects: thousands of them are to open at once, and names would be most of the file.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from sparring.orchestrator.display.lines import cautions
from sparring.orchestrator.display.title import results_title, status
from sparring.orchestrator.plan import EpisodeId
from sparring.orchestrator.report.timelines import Timeline, timelines
from sparring.orchestrator.results.document import RunDocument
from sparring.orchestrator.results.finite import finite
from sparring.orchestrator.results.results import Results
from sparring.orchestrator.results.row import EpisodeRow
from sparring.orchestrator.results.several_protocols import protocols_side_by_side
from sparring.orchestrator.results.statistics import Summary, kind_of
from sparring.orchestrator.run.error_limit import same_for_all
from sparring.orchestrator.run.file_names import FILMED_LATER, FileNames
from sparring.orchestrator.run.slot_time import SlotSeconds
from sparring.orchestrator.serving.stats import ServerLoad

CONTENT_SCHEMA: Final = 1

_COLUMNS: Final = (
    "index", "seed", "outcome", "steps", "reward_sum", "reward_max", "seconds", "physics_s", "render_s", "policy_s",
    "transport_s", "renders", "round_trips", "out_of_range", "attempts", "worker", "host", "renderer",
)  # fmt: skip
"""What is told of an episode as it stands in its row."""

FILM_TYPES: Final = {".gif": "image/gif", ".mp4": "video/mp4", ".webm": "video/webm"}
"""What a browser calls films, by the ending of their names."""

_TIMES: Final = {
    "physics": "physics_s",
    "rendering": "render_s",
    "policy": "policy_s",
    "transport": "transport_s",
}


def report_content(
    results: Results,
    document: RunDocument,
    beside: Path,
    traces: Mapping[EpisodeId, bytes] | None = None,
    frames: Mapping[EpisodeId, str] | None = None,
) -> dict[str, Any]:
    """Returns all that a report says.

    Args:
        results: Of the run.
        document: Its run.json.
        beside: The folder that the report will be in: films are named from there.
        traces: What came of the steps of its episodes, as its journal has it.
        frames: What episodes began with: addresses of pictures, with the pictures inside.
    """
    owners, rules = results.owners, protocols_side_by_side(results)
    content = {
        "schema": CONTENT_SCHEMA,
        "title": results_title(results),
        "status": results.status,
        "status_told": status(results),
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "metric": results.metric,
        "folder": None if results.folder is None else str(results.folder),
        # A rate of several protocols together would be by the rules of none: there is one for each instead.
        "overall": None if rules else _summary(results.overall),
        "overall_by": [{"name": label, **_summary(results.benchmarks[label])} for label in rules],
        "protocols": _protocols(results),
        "suite": None if rules else _suite(results),
        "any_time": None if rules else _any_time(results),
        "planned": results.plan.count,
        "recorded": len(results.rows),
        "seconds": results.seconds,
        "benchmarks": [{"name": name, **_summary(found)} for name, found in results.benchmarks.items()],
        "groups": [
            {"name": name, "benchmark": owners[name], **_summary(found)} for name, found in results.groups.items()
        ],
        "tasks": _tasks(results),
        "per_task": results.plan.plays,
        "episodes": _episodes(results, beside, timelines(traces or {}), frames or {}),
        "errors": _errors(results),
        # Of a run that is not finished, the status says how much is missing.
        "cautions": cautions(results, None if results.status == "finished" else 0),
        "time": _time(results.rows, SlotSeconds.noted(results.notes.get("slot_seconds"))),
        "server": None if results.server_stats is None else results.server_stats.model_dump(),
        "batches": _batches(results),
        "policy": None if results.policy is None else results.policy.model_dump(),
        "settings": dict(document.settings),
        "versions": {where: dict(packages) for where, packages in results.versions.items()},
        "host": document.host.model_dump(),
        "executions": [execution.model_dump() for execution in document.executions],
        "command": next((execution.command for execution in document.executions if execution.command), None),
    }
    return finite(content)  # type: ignore[no-any-return]


def _protocols(results: Results) -> list[dict[str, Any]]:
    """Returns by which rules each benchmark, or evaluation, was played."""
    said = ("benchmark", "name", "version", "sha256", "changed")
    return [
        {"of": of, **{name: getattr(protocol, name) for name in said}} for of, protocol in results.protocols.items()
    ]


def _summary(summary: Summary) -> dict[str, Any]:
    return {**summary.to_json(), "successes": summary.successes}


def _suite(results: Results) -> dict[str, Any] | None:
    """Returns the mean over tasks, with intervals that respect them; None where that says no more, or without scipy."""
    tasks = [(found.successes * found.worth, found.judged * found.worth) for found in results.tasks.values()]
    if len(tasks) < 2:
        return None
    try:
        from sparring.orchestrator.comparison.suite import suite_mean
    except ModuleNotFoundError:  # it comes with an extra, and everything else of a report can be had without
        return None
    mean = suite_mean(tasks)
    if mean is None:
        return None
    such = None if mean.such_tasks is None else list(mean.such_tasks)
    return {"mean": mean.mean, "these_tasks": list(mean.these_tasks), "such_tasks": such}


def _any_time(results: Results) -> list[float] | None:
    """Returns, of a run that is not finished, or stopped early, an interval that holds whenever it is looked at.

    None without scipy, and where no round is whole yet.

    It counts whole rounds, one episode of every task: those that end early may be the easy ones, or the hopeless.
    """
    stopped = results.early_stop is not None and results.early_stop.stopped
    if results.status == "finished" and not stopped:
        return None
    try:
        from sparring.orchestrator.comparison.sequential import rate_interval
        from sparring.orchestrator.comparison.shares import shares
    except ModuleNotFoundError:
        return None
    tasks = len(results.plan.labels())
    plan = results.plan
    rounds = Counter(plan.round_of(row.index) for row in results.rows)
    whole = next((n for n in range(plan.episodes) if rounds[n] < tasks * plan.repeats), plan.episodes)
    found = shares([row for row in results.rows if plan.round_of(row.index) < whole], plan).values()
    judged = [share.success for share in found if share.success is not None]
    return list(rate_interval(sum(judged), len(judged))) if judged else None


def _tasks(results: Results) -> list[dict[str, Any]]:
    summaries = results.tasks
    return [
        {
            "name": label,
            "benchmark": benchmark,
            "group": task.group,
            "instruction": task.instruction,
            **_summary(summaries[label]),
        }
        for label, (benchmark, task) in results.plan.labels().items()
    ]


def _episodes(
    results: Results, beside: Path, times: Mapping[EpisodeId, Timeline], frames: Mapping[EpisodeId, str]
) -> dict[str, list[Any]]:
    numbers = {(benchmark, task.name): at for at, (benchmark, task) in enumerate(results.plan.labels().values())}
    sentences = {sentence: at for at, sentence in enumerate(_sentences(results))}
    rows = [row for row in results.rows if (row.benchmark, row.task) in numbers]
    columns: dict[str, list[Any]] = {name: [getattr(row, name) for row in rows] for name in _COLUMNS}
    columns["task"] = [numbers[row.benchmark, row.task] for row in rows]
    columns["error"] = [sentences[row.error] if row.outcome == "error" else -1 for row in rows]
    columns["kind"] = [kind_of(row) if row.outcome == "error" else "" for row in rows]
    columns["metrics"] = [dict(row.metrics) for row in rows]
    films = FilmsOf(results)
    columns["film"] = [films.address(row, beside) for row in rows]
    columns["film_gone"] = [int(row.video != "" and not film) for row, film in zip(rows, columns["film"], strict=True)]
    steps = [times.get(row.id) for row in rows]
    columns["rewards"] = [[] if found is None else found.rewards for found in steps]
    columns["success_at"] = [0 if found is None else found.success_at for found in steps]
    columns["frame"] = [frames.get(row.id, "") for row in rows]
    return columns


class FilmsOf:
    """The films of a run: those that it has made, and those that `sparring film` has made of it since.

    Args:
        results: Of the run.
    """

    def __init__(self, results: Results) -> None:
        self._folder = results.folder
        self._names = FileNames(results.plan)
        self._filmed_later = results.folder is not None and (results.folder / FILMED_LATER).is_dir()

    def address(self, row: EpisodeRow, beside: Path) -> str:
        """Returns the address of an episode's film, as `film_address` does."""
        if self._folder is None:
            return ""
        names = self._names.films(row) if self._filmed_later else [row.video]
        return next(filter(None, (film_address(self._folder, name, beside) for name in names)), "")


def film_address(folder: Path, name: str, beside: Path) -> str:
    """Returns the address of a film, as seen from a page; empty where there is none.

    The folder may be a stranger's, and pages go to others: no file from elsewhere, be it by a path or by a link.

    Args:
        folder: Of the run.
        name: Of the film in there; empty: it has none.
        beside: The folder that the page will be in.
    """
    path = (folder / name).resolve()
    if not name or path.suffix not in FILM_TYPES or not path.is_relative_to(folder.resolve()) or not path.is_file():
        return ""
    return quote(os.path.relpath(path, beside.resolve()))


def _sentences(results: Results) -> Sequence[str]:
    return list(dict.fromkeys(row.error for row in results.rows if row.outcome == "error"))


def _errors(results: Results) -> list[dict[str, Any]]:
    """Returns each sentence about an error, once, with its kind and how many episodes ended in it.

    `alike` is the place of the first that says the same of another episode, with other numbers.
    """
    found: dict[str, dict[str, Any]] = {}
    first: dict[tuple[str, str], int] = {}
    for row in results.rows:
        if row.outcome == "error":
            kind = kind_of(row)
            if row.error not in found:
                alike = first.setdefault((kind, same_for_all(row.error, row.id)), len(found))
                found[row.error] = {"sentence": row.error, "kind": kind, "n": 0, "alike": alike}
            found[row.error]["n"] += 1
    return list(found.values())


def _batches(results: Results) -> list[list[int]]:
    """Returns sizes of batches and how many there were of each; none where servers say nothing, or for some tasks."""
    load = ServerLoad.noted(results.notes.get("server_counts"))
    return [] if load is None else [[size, n] for size, n in sorted(load.batches.items()) if n]


def _time(rows: Sequence[EpisodeRow], slots: SlotSeconds | None) -> Mapping[str, float]:
    """Returns where the slots' seconds went; `other` is what none of the parts accounts for.

    Where it is not known how long slots were there, it is of the episodes alone.
    """
    parts = {name: sum(getattr(row, column) for row in rows) for name, column in _TIMES.items()}
    whole = sum(row.seconds for row in rows)
    told = {} if slots is None else {"films": slots.films, "idle": slots.idle}
    whole = whole if slots is None else max(whole, slots.playing)
    return {**parts, "other": max(0.0, whole - sum(parts.values())), **told}

"""What came of a run, and the files it is written to."""

from __future__ import annotations

import csv
import fnmatch
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from sparring.orchestrator.plan import Plan
from sparring.orchestrator.results.damage import FILE_NAME, DamagedJournal
from sparring.orchestrator.results.document import RUN_FILE, RunDocument, RunStatus, read_document, to_json
from sparring.orchestrator.results.document_parts import RunPolicy, RunProtocol, ServerStats
from sparring.orchestrator.results.early_stop import EarlyStop
from sparring.orchestrator.results.files import replace_file
from sparring.orchestrator.results.frames import data_frame
from sparring.orchestrator.results.makers import Maker, mixed_versions
from sparring.orchestrator.results.programs import Program, changes, programs_in
from sparring.orchestrator.results.reading import JournalContents, JournalEvent, is_running, read_journal
from sparring.orchestrator.results.renderers import mixed_renderers, renderers_of
from sparring.orchestrator.results.row import COLUMNS, EpisodeRow
from sparring.orchestrator.results.several_protocols import protocols_side_by_side
from sparring.orchestrator.results.statistics import Summary
from sparring.protos.comma_list import comma_list
from sparring.protos.episode_rules import Metric
from sparring.protos.errors import UsageError, unknown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ATTEMPTS: Final = 5
"""So often a run may begin or end while it is being read."""

RESULT_FILES: Final = ("episodes.csv", "eval_info.json")


@dataclass(frozen=True, repr=False)
class Results:
    """All recorded episodes of a run, and the numbers they come to. In an interpreter or a notebook it shows a table.

    Attributes:
        plan: What was to be done.
        rows: What was done, sorted by task and index.
        seconds: Wall-clock time of the run, over all its executions; while it is running, up to some seconds ago.
        folder: Where the files are; None if none were kept.
        status: `finished`, `unfinished` (it can be resumed) or `running`.
        policy: What was evaluated, as in run.json.
        versions: Of the packages of the orchestrator and of each worker, by its name.
        server_stats: What the policy servers did for it, as in run.json; None if that is not known.
        events: What happened on the way: attempts that failed, leases that were lost.
        makers: Who has made the rows, with machine and versions, by the numbers in their column `maker`.
        metric: What the run is about: `success` or `return`.
        programs: Policies and benchmarks that have made rows, by the hashes that makers name them by.
        settings: Every setting of the run, as in run.json; empty if they are not known.
        early_stop: What came of the rules by which it might stop early; None: it had none.
        protocols: By which rules each benchmark, or evaluation, was played; empty if that is not known.
        is_of_one_run: Whether the journal is of the run that run.json tells of.
        notes: What its journal notes beside the rows; empty where it was not read.
        id: What run.json knows it by; None: it was made by a release that did not write that down, or is in no folder.
    """

    plan: Plan
    rows: Sequence[EpisodeRow]
    seconds: float
    folder: Path | None
    status: RunStatus = "finished"
    policy: RunPolicy | None = None
    versions: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    server_stats: ServerStats | None = None
    events: Sequence[JournalEvent] = ()
    makers: Mapping[int, Maker] = field(default_factory=dict)
    metric: Metric = "success"
    programs: Mapping[str, Program] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    early_stop: EarlyStop | None = None
    protocols: Mapping[str, RunProtocol] = field(default_factory=dict)
    is_of_one_run: bool = True
    notes: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    id: str | None = None

    @classmethod
    def load(cls, folder: str | Path) -> Results:
        """Opens the output folder of a run: finished, unfinished, or running at this moment.

        It changes nothing there, and needs neither the benchmark nor the policy.

        Raises:
            UsageError: If it is not the output folder of a run, or it cannot be read.
        """
        folder = Path(folder)
        _check_folder(folder)
        document, journal = _read(folder)
        stats = ServerStats.noted(journal.meta.get("server_stats"))
        try:
            seconds, programs = float(journal.meta.get("seconds") or 0.0), programs_in(journal.meta)
        except (ValueError, TypeError) as error:
            raise DamagedJournal(folder / FILE_NAME, "its notes have no sense") from error
        status: RunStatus = "running" if journal.running else "unfinished"
        return cls(
            plan=document.plan(),
            rows=document.of_the_run(journal.rows),
            seconds=max(document.seconds, seconds),
            folder=folder,
            # Who was killed could not write that it is not running any more.
            status="finished" if document.status == "finished" else status,
            policy=document.policy,
            versions=document.versions,
            server_stats=document.server_stats if stats is None else stats,
            events=journal.events,
            makers=journal.makers,
            metric=document.metric,
            programs=programs,
            settings=document.settings,
            early_stop=document.early_stop,
            protocols=document.protocols,
            is_of_one_run=journal.meta.get("run") == document.id,
            notes=journal.meta,
            id=document.id,
        )

    def __repr__(self) -> str:
        from sparring.orchestrator.display.notebook import results_text  # which shows what is here

        return results_text(self)

    def _repr_html_(self) -> str:
        from sparring.orchestrator.display.notebook import results_html

        return results_html(self)

    def __rich__(self) -> object:
        from sparring.orchestrator.display.table import results_table

        return results_table(self)

    def select(self, selection: str) -> Results:
        """Returns the part of the results that is about some tasks.

        Args:
            selection: Names of tasks, groups or benchmarks, comma-separated; `*` and `?` stand for anything.

        Raises:
            UsageError: If a name is none of this run.
        """
        labels, groups = self.plan.labels(), self.plan.groups()
        chosen: set[str] = set()
        for part in comma_list(selection):
            found = set(fnmatch.filter(labels, part))
            found |= {label for group in fnmatch.filter(groups, part) for label in groups[group]}
            found |= {
                label
                for label, (benchmark, task) in labels.items()
                if any(fnmatch.fnmatchcase(name, part) for name in (task.name, task.group, benchmark))
            }
            if not found:
                raise unknown("task or group of this run:", part, [*labels, *groups])
            chosen |= found
        if not chosen:
            raise UsageError("no task was named.")
        kept = {(benchmark, task.name) for label, (benchmark, task) in labels.items() if label in chosen}
        tasks = {name: [task for task in tasks if (name, task.name) in kept] for name, tasks in self.plan.tasks.items()}
        return replace(
            self,
            plan=replace(self.plan, tasks={name: left for name, left in tasks.items() if left}),
            rows=[row for row in self.rows if (row.benchmark, row.task) in kept],
            events=[e for e in self.events if e.episode and (e.episode.benchmark, e.episode.task) in kept],
            notes={},  # they are of the whole
        )

    @property
    def out_of_range(self) -> int:
        """How many of the executed actions the policy had given outside the action space."""
        return sum(row.out_of_range for row in self.rows)

    @property
    def warnings(self) -> Sequence[str]:
        """What you should know about this run: of servers, benchmarks, changes, versions or renderers that differ."""
        said = [] if self.server_stats is None else self.server_stats.warnings
        told = dict.fromkeys(event.message for event in self.events if event.kind == "warning")
        mixed = [*mixed_versions(self.rows, self.makers), *mixed_renderers(self.rows)]
        return [*said, *told, *self.changes, *mixed]

    @property
    def changes(self) -> Sequence[str]:
        """Sentences on episodes that were made by another policy or benchmark than those before them."""
        return changes(self.rows, self.makers, self.programs)

    @property
    def renderers(self) -> dict[str, int]:
        """What drew the images, as GL calls it, with the number of its episodes; those that drew nothing have none."""
        return renderers_of(self.rows)

    @property
    def missing(self) -> int:
        """Episodes of the plan that have no row."""
        return len(set(self.plan.ids()) - {row.id for row in self.rows})

    @property
    def overall(self) -> Summary:
        """What all episodes come to."""
        return Summary.of(self.rows)

    @property
    def tasks(self) -> dict[str, Summary]:
        """What the episodes of each task come to, in the plan's order."""
        return {label: Summary.of(self._of([label])) for label in self.plan.labels()}

    @property
    def groups(self) -> dict[str, Summary]:
        """What the episodes of each group come to, in the plan's order."""
        return {group: Summary.of(self._of(names)) for group, names in self.plan.groups().items()}

    @property
    def benchmarks(self) -> dict[str, Summary]:
        """What the episodes of each benchmark come to, in the plan's order."""
        labels = self.plan.labels()
        of = {name: [label for label, (owner, _) in labels.items() if owner == name] for name in self.plan.tasks}
        return {name: Summary.of(self._of(found)) for name, found in of.items()}

    @property
    def owners(self) -> dict[str, str]:
        """The benchmark that each task and each group is of, by the names that they have here."""
        labels = self.plan.labels()
        groups = {name: labels[tasks[0]][0] for name, tasks in self.plan.groups().items()}
        return {**groups, **{label: benchmark for label, (benchmark, _) in labels.items()}}

    def to_json(self) -> dict[str, Any]:
        """Returns what `--json` prints."""
        owners, rules = self.owners, protocols_side_by_side(self)
        benchmarks = {name: summary.to_json() for name, summary in self.benchmarks.items()}

        def owned(summaries: Mapping[str, Summary]) -> dict[str, Any]:
            return {name: {"benchmark": owners[name], **found.to_json()} for name, found in summaries.items()}

        return {
            "status": self.status,
            "episodes": {"planned": len(self.plan.ids()), "recorded": len(self.rows)},
            "metric": self.metric,
            "protocols": {name: found.model_dump() for name, found in self.protocols.items()},
            "early_stop": None
            if self.early_stop is None
            else {**self.early_stop.model_dump(), "stopped": self.early_stop.stopped},
            # By several protocols there is one for each: a rate of all episodes would be by the rules of none.
            "overall": {name: benchmarks[name] for name in rules} if rules else self.overall.to_json(),
            "benchmarks": benchmarks,
            "groups": owned(self.groups),
            "tasks": owned(self.tasks),
            "seconds": self.seconds,
            "output": None if self.folder is None else str(self.folder),
            "out_of_range": self.out_of_range,
            "renderers": self.renderers,
            "changes": list(self.changes),
            "warnings": list(self.warnings),
        }

    def to_dataframe(self) -> Any:
        """Returns the episodes, a row each: what episodes.csv has, with a column for each metric (`metrics.distance`).

        As a DataFrame of pandas; where that is not installed, as a Table of pyarrow; without both, as dictionaries.
        """
        return data_frame(self)

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draws a bar with its 95 % interval for every task, and one for all of them, with matplotlib.

        Args:
            axes: Where to draw; a new figure if left out.

        Raises:
            UsageError: If matplotlib is not installed.
        """
        from sparring.orchestrator.display.plot import plot_results  # which shows what is here

        return plot_results(self, axes)

    def _of(self, labels: Iterable[str]) -> list[EpisodeRow]:
        return [row for label in labels for row in self._by_label[label]]

    @cached_property
    def _by_label(self) -> Mapping[str, Sequence[EpisodeRow]]:
        """The rows of each task, found once: a plan may have thousands of tasks."""
        rows: dict[tuple[str, str], list[EpisodeRow]] = {}
        for row in self.rows:
            rows.setdefault((row.benchmark, row.task), []).append(row)
        return {label: rows.get((benchmark, task.name), []) for label, (benchmark, task) in self.plan.labels().items()}

    def eval_info(self) -> dict[str, Any]:
        """Returns the results in the layout of LeRobot's eval_info.json, without episodes that ended in an error."""
        groups, labels = self.plan.groups(), self.plan.labels()
        per_task = [
            {
                "task_group": group,
                "task_id": labels[name][1].number,
                "metrics": _metrics(self._judged([name]), self.folder),
            }
            for group, names in groups.items()
            for name in names
        ]
        averages = _averages(self._judged([name for names in groups.values() for name in names]), self.folder)
        films = {name: averages.pop(name) for name in ("video_paths", "predicted_video_paths")}
        seconds = {"eval_s": self.seconds, "eval_ep_s": self.seconds / max(1, averages["n_episodes"])}
        overall = {**averages, **seconds, **films}
        return {
            "per_task": per_task,
            "per_group": {group: _averages(self._judged(names), self.folder) for group, names in groups.items()},
            "overall": overall,
        }

    def _judged(self, labels: Sequence[str]) -> list[EpisodeRow]:
        """Returns episodes with an outcome of the policy's own, by the names of their tasks: LeRobot's order."""
        return [row for row in self._of(labels) if row.outcome != "error"]


def _metrics(rows: Sequence[EpisodeRow], folder: Path | None) -> dict[str, Any]:
    silent = {(row.benchmark, row.task) for row in rows if row.outcome == "played"}
    return {
        "sum_rewards": [row.reward_sum for row in rows],
        "max_rewards": [row.reward_max for row in rows],
        # Of tasks whose simulators do not say what success is there are none: neither true nor false would be.
        "successes": [row.outcome == "success" for row in rows if (row.benchmark, row.task) not in silent],
        "video_paths": [str(folder / row.video) for row in rows if folder is not None and row.video],
        # Of what a policy expected to see: since 0.6, for one family of policies, which is not served here.
        "predicted_video_paths": [],
    }


def _averages(rows: Sequence[EpisodeRow], folder: Path | None) -> dict[str, Any]:
    metrics = _metrics(rows, folder)
    # NaN, which LeRobot writes for an empty list as well, is not JSON; null is.
    return {
        "avg_sum_reward": float(np.mean(metrics["sum_rewards"])) if rows else None,
        "avg_max_reward": float(np.mean(metrics["max_rewards"])) if rows else None,
        "pc_success": 100.0 * float(np.mean(metrics["successes"])) if metrics["successes"] else None,
        "n_episodes": len(rows),
        "video_paths": metrics["video_paths"],
        "predicted_video_paths": metrics["predicted_video_paths"],
    }


def episodes_csv(results: Results) -> str:
    """Returns what is in episodes.csv: a line per episode."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(row.csv() for row in results.rows)
    return text.getvalue()


def compared_metric(runs: Sequence[Results]) -> Metric:
    """Returns by what runs are compared where nobody has said so: by what all of them were about."""
    return "return" if all(run.metric == "return" for run in runs) else "success"


def write_results(results: Results) -> None:
    """Writes episodes.csv and eval_info.json; each is replaced in one go, so that a reader never sees half of one.

    Raises:
        SparringError: If they cannot be written.
    """
    assert results.folder is not None, "results that were kept nowhere"
    replace_file(results.folder / RESULT_FILES[0], episodes_csv(results))
    replace_file(results.folder / RESULT_FILES[1], to_json(results.eval_info()))


def _read(folder: Path) -> tuple[RunDocument, JournalContents]:
    """Reads both as they were at one moment: a run that ends writes run.json, and then goes."""
    document = read_document(folder)
    for _ in range(_ATTEMPTS):
        journal = read_journal(folder)
        before, document = document, read_document(folder)
        if before == document:
            break
    return document, journal


def _check_folder(folder: Path) -> None:
    """Says what is wrong with a folder that no run can have written."""
    if not folder.exists():
        raise UsageError(f"there is no folder {str(folder)!r}.")
    if not folder.is_dir():
        raise UsageError(f"{str(folder)!r} is not a folder; give the output folder of a run.")
    if not (folder / RUN_FILE).exists():
        if is_running(folder):
            raise UsageError(f"the run in {str(folder)!r} is just starting: there is nothing to see of it yet.")
        empty = "it is empty" if not any(folder.iterdir()) else f"it has no {RUN_FILE}"
        raise UsageError(f"{str(folder)!r} is not the output folder of a run: {empty}.")

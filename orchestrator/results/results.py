"""What came of a run, and the files it is written to."""

from __future__ import annotations

import csv
import io
import json
import os
import platform
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from sparring.orchestrator.results.row import COLUMNS, EpisodeRow
from sparring.orchestrator.results.statistics import Summary
from sparring.orchestrator.run.plan import Plan
from sparring.orchestrator.settings import RunSettings
from sparring.policy_server.client import Description
from sparring.protos.errors import SparringError

RUN_FILE: Final = "run.json"
RUN_SCHEMA: Final = 1


@dataclass(frozen=True)
class Results:
    """All recorded episodes of a run, and the numbers they come to.

    Attributes:
        plan: What was to be done.
        rows: What was done, sorted by task and index.
        seconds: Wall-clock time of the run, over all its sessions.
        folder: Where the files are; None if none were kept.
        serving: What the policy servers did for it, as in run.json; None if that is not known.
    """

    plan: Plan
    rows: Sequence[EpisodeRow]
    seconds: float
    folder: Path | None
    serving: Mapping[str, Any] | None = None

    @property
    def out_of_range(self) -> int:
        """Of the actions executed, how many the policy had given outside the action space."""
        return sum(row.out_of_range for row in self.rows)

    @property
    def warnings(self) -> Sequence[str]:
        """What the policy servers have to say about this run, in sentences."""
        return [str(sentence) for sentence in (self.serving or {}).get("warnings", [])]

    @property
    def missing(self) -> int:
        """Episodes of the plan that have no row."""
        return len(self.plan.ids()) - len(self.rows)

    @property
    def overall(self) -> Summary:
        """Over all episodes."""
        return Summary.of(self.rows)

    @property
    def tasks(self) -> dict[str, Summary]:
        """Per task, in the plan's order."""
        return {label: Summary.of(self._of([label])) for label in self.plan.labels()}

    @property
    def groups(self) -> dict[str, Summary]:
        """Per group, in the plan's order."""
        return {group: Summary.of(self._of(names)) for group, names in self.plan.groups().items()}

    def to_json(self) -> dict[str, Any]:
        """What `--json` prints."""
        return {
            "overall": self.overall.to_json(),
            "groups": {name: summary.to_json() for name, summary in self.groups.items()},
            "tasks": {name: summary.to_json() for name, summary in self.tasks.items()},
            "seconds": self.seconds,
            "output": None if self.folder is None else str(self.folder),
            "out_of_range": self.out_of_range,
            "warnings": list(self.warnings),
        }

    def _of(self, labels: Sequence[str]) -> list[EpisodeRow]:
        known = self.plan.labels()
        wanted = {(benchmark, task.name) for benchmark, task in (known[label] for label in labels)}
        return [row for row in self.rows if (row.benchmark, row.task) in wanted]

    def eval_info(self) -> dict[str, Any]:
        """The same results in the layout of LeRobot's eval_info.json. Episodes that ended in an error are left out."""
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
        """Episodes with an outcome of the policy's own: task by task as they are named, which is LeRobot's order."""
        return [row for label in labels for row in self._of([label]) if row.outcome != "error"]


def _metrics(rows: Sequence[EpisodeRow], folder: Path | None) -> dict[str, Any]:
    return {
        "sum_rewards": [row.reward_sum for row in rows],
        "max_rewards": [row.reward_max for row in rows],
        "successes": [row.outcome == "success" for row in rows],
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
        "pc_success": 100.0 * float(np.mean(metrics["successes"])) if rows else None,
        "n_episodes": len(rows),
        "video_paths": metrics["video_paths"],
        "predicted_video_paths": metrics["predicted_video_paths"],
    }


def write_results(results: Results) -> None:
    """Writes episodes.csv and eval_info.json; each is replaced in one go, so that a reader never sees half of one.

    Raises:
        SparringError: If they cannot be written.
    """
    assert results.folder is not None, "results that were kept nowhere"
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(row.csv() for row in results.rows)
    _replace(results.folder / "episodes.csv", text.getvalue())
    _replace(results.folder / "eval_info.json", json.dumps(results.eval_info(), indent=2) + "\n")


def write_run(
    folder: Path,
    settings: RunSettings,
    plan: Plan,
    policy: Description | None,
    *,
    versions: Mapping[str, Mapping[str, str]],
    status: str,
    seconds: float,
    serving: Mapping[str, Any] | None = None,
    out_of_range: int = 0,
) -> None:
    """Writes run.json: everything that is needed to tell, and to repeat, what this run was.

    Raises:
        SparringError: If it cannot be written.
    """
    document = {
        "schema": RUN_SCHEMA,
        "status": status,
        "settings": settings.model_dump(mode="json"),
        "seed": plan.seed,
        "tasks": {
            label: {
                "benchmark": benchmark,
                "group": task.group,
                "instruction": task.instruction,
                "initial_states": task.initial_states or None,
            }
            for label, (benchmark, task) in plan.labels().items()
        },
        "policy": None
        if policy is None
        else {
            "name": policy.name,
            "arguments": policy.arguments,
            "checkpoint_sha256": policy.checkpoint_sha256 or None,
            "server_version": policy.server_version,
        },
        "versions": {name: dict(found) for name, found in versions.items()},
        "host": {"name": socket.gethostname(), "system": platform.platform(), "cores": os.cpu_count()},
        "seconds": seconds,
        "serving": serving,
        "out_of_range": out_of_range,
    }
    _replace(folder / RUN_FILE, json.dumps(document, indent=2) + "\n")


def read_run(folder: Path) -> dict[str, Any]:
    """The run.json of an output folder.

    Raises:
        SparringError: If there is none, or it cannot be read.
    """
    path = folder / RUN_FILE
    try:
        document = json.loads(path.read_text())
    except OSError as error:
        raise SparringError(
            f"{str(folder)!r} is not the output folder of a run: {path.name}: {error.strerror}."
        ) from error
    except ValueError as error:
        raise SparringError(f"{str(path)!r} is damaged: {error}") from error
    if not isinstance(document, dict) or document.get("schema") != RUN_SCHEMA:
        raise SparringError(
            f"{str(path)!r} was written by another release (schema {document.get('schema')}, not {RUN_SCHEMA})."
        )
    return document


def _replace(path: Path, text: str) -> None:
    temporary = path.with_name(path.name + ".new")
    try:
        temporary.write_text(text)
        temporary.replace(path)
    except OSError as error:
        raise SparringError(f"{str(path)!r} cannot be written: {error.strerror}.") from error

"""run.json: what a run was. A versioned document; docs/results.md lists every field of it, and a test compares.

Fields may be added to a schema, and are ignored by releases that do not know them. Whatever else changes is a new
schema, and a function here that makes it out of the one before.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field, ValidationError

from sparring.env_worker.benchmark import Task
from sparring.orchestrator.plan import Plan
from sparring.orchestrator.results.document_parts import (
    DocumentPart,
    RunExecution,
    RunHost,
    RunPlugin,
    RunPolicy,
    RunProtocol,
    RunRate,
    RunTask,
    ServerStats,
)
from sparring.orchestrator.results.early_stop import EarlyStop
from sparring.orchestrator.results.files import read_bytes, replace_file
from sparring.orchestrator.results.finite import check_depth, finite, numbers_again
from sparring.orchestrator.results.json_text import MOST_TEXT, parse_json
from sparring.orchestrator.results.makers import Maker
from sparring.orchestrator.results.programs import Program
from sparring.orchestrator.results.row import EpisodeRow
from sparring.protos.episode_rules import Metric
from sparring.protos.errors import UsageError

RUN_FILE: Final = "run.json"
RUN_SCHEMA: Final = 2
MOST_EPISODES: Final = 10_000_000

RunStatus = Literal["running", "unfinished", "finished"]


class RunDocument(DocumentPart):
    """All of run.json."""

    schema_version: Literal[2] = Field(default=RUN_SCHEMA, alias="schema", description="version of this document: 2")
    id: str | None = Field(
        default=None, description="of this run and of no other; its journal has the same; null: releases before 0.2"
    )
    status: RunStatus = Field(
        description="`finished`: every episode has an outcome or an error; `unfinished`: it ended before that; "
        "`running`: it is going on, or was killed"
    )
    settings: dict[str, Any] = Field(
        description="every setting as resolved, flags over file over defaults, by the name of its flag with _ for -"
    )
    seed: int = Field(description="of the run; episode k of every task has this seed + k")
    seeds: dict[str, int] = Field(
        default_factory=dict, description="of evaluations that have another seed than the run, by their names"
    )
    protocols: dict[str, RunProtocol] = Field(
        default_factory=dict,
        description="by which rules each benchmark, or evaluation, was played; empty: releases before 0.2",
    )
    episodes: int = Field(ge=1, description="per task, as planned")
    policy_seeds: int = Field(
        default=1,
        ge=1,
        le=1000,
        description="how often each episode is played: play k of a task is of its episode k // this, and has the "
        "policy seed number k % this",
    )
    tasks: dict[str, RunTask] = Field(
        description="the tasks of the plan in their order, by the label that they have in tables: their name, after "
        "that of their benchmark where two have the same"
    )
    policy: RunPolicy | None = Field(description="what was evaluated; null: its server has not answered yet")
    versions: dict[str, dict[str, str]] = Field(
        description="versions of packages, of the `orchestrator` and of each worker by its name"
    )
    makers: dict[str, Maker] = Field(
        default_factory=dict,
        description="who has made the rows, by the number that their column `maker` has; empty: not known",
    )
    programs: dict[str, Program] = Field(
        default_factory=dict,
        description="policies and benchmarks that have made rows, by the hashes that `makers` has; empty: not known",
    )
    changes: list[str] = Field(
        default_factory=list,
        description="sentences on episodes that another policy or benchmark has made than those before; empty: none",
    )
    executions: list[RunExecution] = Field(
        default_factory=list, description="each go at the run, in their order; empty: releases before 0.2"
    )
    plugins: list[RunPlugin] = Field(
        default_factory=list, description="what is installed beside Sparring where the orchestrator ran"
    )
    machines: dict[str, dict[str, str]] = Field(
        default_factory=dict,
        description="machines of workers, by host name: system, python, cpu, gpu, driver, as far as they are known",
    )
    host: RunHost = Field(description="the machine that the orchestrator ran on")
    seconds: float = Field(description="wall-clock time over all executions of the run")
    recorded: int | None = Field(
        default=None, description="how many episodes had a row when this was written; null: releases before 0.2"
    )
    overall: RunRate | None = Field(
        default=None,
        description="the success rate when this was written; null: releases before 0.2, and runs of several protocols, "
        "whose rate would be by the rules of none",
    )
    group_rates: dict[str, RunRate] = Field(
        default_factory=dict, description="the same for each group that was selected"
    )
    task_rates: dict[str, RunRate] = Field(default_factory=dict, description="the same for each task, by its label")
    server_stats: ServerStats | None = Field(description="what the policy servers did; null: they keep no stats")
    out_of_range: int = Field(
        description="of the actions executed, how many the policy had given outside the action space"
    )

    renderers: dict[str, int] = Field(
        default_factory=dict,
        description="what drew the images, as GL calls it: renderer, vendor and version, with the number of its "
        "episodes; empty: nothing was drawn, or it is not known",
    )

    early_stop: EarlyStop | None = Field(
        default=None, description="what came of --until or --against; null: neither was given"
    )

    def plan(self) -> Plan:
        """Returns the plan, without asking the benchmarks, which may not be installed here.

        Of a run that has stopped early these are the rounds that it has.
        """
        tasks: dict[str, list[Task]] = {}
        for task in self.tasks.values():
            tasks.setdefault(task.benchmark, []).append(
                Task(task.name, task.instruction, task.group, task.initial_states or 0, task.number)
            )
        return Plan(tasks, self._rounds, self.seed, repeats=self.policy_seeds, seeds=self.seeds)

    def of_the_run(self, rows: Sequence[EpisodeRow]) -> list[EpisodeRow]:
        """Returns the rows of a journal that are of the run.

        One that has stopped early may have played some of later rounds, ahead of others, which do not count.
        """
        return [row for row in rows if not self._rounds <= row.index // self.policy_seeds < self.episodes]

    @property
    def _rounds(self) -> int:
        """How many rounds there are: episodes of each task, unless the run has stopped early."""
        stop = self.early_stop
        return self.episodes if stop is None or not stop.stopped else max(1, min(stop.rounds, self.episodes))

    @property
    def metric(self) -> Metric:
        """What the run is about; releases before 0.2 knew of success only."""
        return "return" if self.settings.get("metric") == "return" else "success"


def tasks_of(plan: Plan) -> dict[str, RunTask]:
    """Returns the tasks of a plan, by their labels."""
    return {
        label: RunTask(
            benchmark=benchmark,
            name=task.name,
            group=task.group,
            number=task.number,
            instruction=task.instruction,
            initial_states=task.initial_states or None,
        )
        for label, (benchmark, task) in plan.labels().items()
    }


def write_document(folder: Path, document: RunDocument) -> None:
    """Writes run.json; it is replaced in one go.

    Raises:
        SparringError: If it cannot be written.
    """
    replace_file(folder / RUN_FILE, to_json(document.model_dump(mode="python", by_alias=True)))


def read_document(folder: Path) -> RunDocument:
    """Reads the run.json of an output folder, of this release or an earlier one.

    Raises:
        UsageError: If there is none, it is damaged, or a newer release wrote it.
    """
    path = folder / RUN_FILE
    try:
        content = check_depth(parse_json(read_bytes(path, MOST_TEXT)))
    except OSError as error:
        if not folder.exists():
            raise UsageError(f"there is no folder {str(folder)!r}.") from error
        why = f"it has no {RUN_FILE}" if isinstance(error, FileNotFoundError) else f"{RUN_FILE}: {error.strerror}"
        raise UsageError(f"{str(folder)!r} is not the output folder of a run: {why}.") from error
    except (ValueError, RecursionError) as error:  # of JSON, or of UTF-8
        raise UsageError(f"{str(path)!r} is damaged: {error}.") from error
    if not isinstance(content, dict) or type(content.get("schema")) is not int or content["schema"] < 1:
        raise UsageError(f"{str(path)!r} is damaged: it names no schema.")
    schema = content["schema"]
    if schema > RUN_SCHEMA:
        raise UsageError(
            f"{str(path)!r} was written by a newer release (schema {schema}; this one knows {RUN_SCHEMA} and below). "
            "Update sparring."
        )
    try:
        for migrate in _MIGRATIONS[schema - 1 :]:
            content = migrate(content)
        document = RunDocument.model_validate(content)
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(map(str, problem["loc"]))
        raise UsageError(f"{str(path)!r} is damaged: {where}: {problem['msg']}.") from error
    except (KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{str(path)!r} is damaged: {error!r}.") from error
    if not document.tasks:
        raise UsageError(f"{str(path)!r} is damaged: its plan has no task.")
    if document.episodes * document.policy_seeds * len(document.tasks) > MOST_EPISODES:
        raise UsageError(f"{str(path)!r} is damaged: its plan has more than {MOST_EPISODES:,} episodes.")
    return document.model_copy(update={"settings": numbers_again(document.settings)})


def to_json(content: Any) -> str:
    """Writes JSON as others can read it: without NaN and Infinity, which Python writes and nobody else reads."""
    return json.dumps(finite(content), indent=2, allow_nan=False) + "\n"


def _from_1(content: dict[str, Any]) -> dict[str, Any]:
    """Migrates from release 0.1.0, which left names and numbers of tasks out, and called server stats `serving`."""
    places: Counter[str] = Counter()
    tasks = {}
    for label, task in content["tasks"].items():
        name = label.removeprefix(f"{task['benchmark']}/")
        numbered = re.search(r"/(\d+)$", name)
        tasks[label] = {
            **task,
            "name": name,
            # LIBERO's names end in it; elsewhere it is the place in a group, and the whole group is in the plan.
            "number": int(numbered[1]) if numbered else places[task["group"]],
        }
        places[task["group"]] += 1
    return {
        **content,
        "schema": 2,
        "tasks": tasks,
        "episodes": content["settings"]["episodes"],
        "server_stats": content.get("serving"),
    }


_MIGRATIONS: Final[Sequence[Callable[[dict[str, Any]], dict[str, Any]]]] = (_from_1,)
"""One after the other: the first makes schema 2 of schema 1, and so on."""

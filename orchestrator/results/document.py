"""run.json: what a run was. A versioned document; docs/results.md lists every field of it, and a test compares.

Fields may be added to a schema, and are ignored by releases that do not know them. Whatever else changes is a new
schema, and a function here that makes it out of the one before.
"""

from __future__ import annotations

import json
import os
import platform
import re
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sparring.env_worker.benchmark import Task
from sparring.orchestrator.results.files import read_regular, replace_file
from sparring.orchestrator.results.finite import check_depth, finite, numbers_again
from sparring.orchestrator.results.makers import Maker
from sparring.orchestrator.results.programs import Program
from sparring.orchestrator.results.statistics import Summary
from sparring.orchestrator.run.plan import Plan
from sparring.policy_server.client import Description, PolicyProgram
from sparring.protos.episode_rules import Metric
from sparring.protos.errors import UsageError
from sparring.protos.machine import machine

RUN_FILE: Final = "run.json"
RUN_SCHEMA: Final = 2
MOST_EPISODES: Final = 10_000_000

RunStatus = Literal["running", "unfinished", "finished"]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)


class RunTask(_Part):
    """A task of the plan."""

    benchmark: str = Field(description="the benchmark that it is of, or the name of its evaluation")
    name: str = Field(description="its name there")
    group: str = Field(description="the part of the selection that it was chosen by: a group, or its own name")
    number: int = Field(description="its place in the group, counted from 0: what LeRobot calls its id")
    instruction: str = Field(description="the sentence that policies get")
    initial_states: int | None = Field(
        description="how many official initial states it has: episode k begins in number k modulo this; null: the "
        "seed alone decides"
    )


class RunPolicy(_Part):
    """The policy, as its server described it."""

    name: str = Field(description="as it was given to the run, or to its server")
    arguments: dict[str, Any] = Field(
        description="that it was made with, as they were given: give secrets by a file or by the environment"
    )
    checkpoint_sha256: str | None = Field(description="hash of its checkpoint; null: it has none")
    server_version: str = Field(description="release of the policy server")
    packages: dict[str, str] = Field(
        default_factory=dict, description="versions of the installed packages that its code imports; empty: not known"
    )
    package: str | None = Field(
        default=None, description="the package that brings it, and its version; null: none, it was named by its module"
    )
    commit: str | None = Field(
        default=None,
        description="git commit of the folder that its code came from; null: none, or not known",
    )
    modified: bool | None = Field(
        default=None, description="whether files there were not what that commit has; null: there is no commit"
    )
    machine: dict[str, str] = Field(
        default_factory=dict,
        description="its machine: host, system, python, cpu, gpu, driver and cuda, as far as they are known",
    )

    @classmethod
    def of(cls, description: Description) -> RunPolicy:
        """Makes it of what a server says."""
        return cls(
            name=description.name,
            arguments=dict(description.arguments),
            checkpoint_sha256=description.checkpoint_sha256 or None,
            server_version=description.server_version,
            **_of_program(description.program),
        )


def _of_program(program: PolicyProgram | None) -> dict[str, Any]:
    if program is None:
        return {}
    return {
        "packages": dict(program.packages),
        "package": program.package or None,
        "commit": program.commit or None,
        "modified": program.modified if program.commit else None,
        "machine": dict(program.machine),
    }


class RunPlugin(_Part):
    """A plug-in that is installed where the orchestrator runs."""

    kind: Literal["benchmark", "launcher", "policy"] = Field(description="`benchmark`, `launcher` or `policy`")
    name: str = Field(description="as it is given to --benchmark, --launcher or --policy")
    value: str = Field(description="where it is found, `module:Class`")
    package: str | None = Field(description="the package that brings it; null: not known")
    version: str | None = Field(description="of that package; null: not known")


class RunExecution(_Part):
    """One go at the run."""

    began: str = Field(description="when, in ISO 8601, UTC")
    ended: str | None = Field(description="when; null: it is going on, or was killed")
    command: str | None = Field(description="the command line, with secrets left out; null: it was no command")


class RunHost(_Part):
    """The machine that the orchestrator ran on."""

    name: str = Field(description="its host name")
    system: str = Field(description="its operating system")
    cores: int | None = Field(description="how many cores it has; null: not known")
    python: str | None = Field(default=None, description="version of Python; null: not known")
    cpu: str | None = Field(default=None, description="model of its processor; null: not known")
    gpu: str | None = Field(default=None, description="models of its GPUs; null: none, or not known")
    driver: str | None = Field(default=None, description="version of their driver; null: none, or not known")

    @classmethod
    def here(cls) -> RunHost:
        """Returns this machine."""
        known = machine()
        facts = {name: known.get(name) for name in ("python", "cpu", "gpu", "driver")}
        return cls(name=socket.gethostname(), system=platform.platform(), cores=os.cpu_count(), **facts)


class BatchSize(_Part):
    """Rows in a forward pass; null where there was none."""

    mean: float | None = Field(description="over all passes")
    max: int | None = Field(description="of one pass")


class Spread(_Part):
    """Seconds of something that happened often; null where it never did."""

    mean: float | None = Field(description="over all times")
    p50: float | None = Field(description="half of the times took at most this")
    p99: float | None = Field(description="99 of 100 took at most this")


class InferenceSeconds(Spread):
    """Seconds of forward passes."""

    total: float = Field(description="of all passes together")


class ServerStats(_Part):
    """What the policy servers did for a run; docs/serving.md says what that means where a server is shared."""

    seconds: float = Field(description="that the server served while this run lasted")
    episodes: int = Field(description="started, with those that were lost or tried again")
    observations: int = Field(description="rows that forward passes were made for, whatever came of them")
    observations_per_second: float | None = Field(description="over `seconds`")
    batches: int = Field(description="forward passes")
    batch_size: BatchSize = Field(description="rows in one")
    queue_wait_s: Spread = Field(description="seconds from an observation's arrival to the start of its pass")
    inference_s: InferenceSeconds = Field(description="seconds of a pass")
    errors: dict[str, int] = Field(description="streams that ended with an error, by kind")
    warnings: list[str] = Field(description="sentences on what you should know about this run")
    servers: dict[str, ServerStats] = Field(
        default_factory=dict, description="the same for each server, if there are several; otherwise empty"
    )

    @classmethod
    def noted(cls, note: Any) -> ServerStats | None:
        """Reads what a run has noted of them; None if it has not, or another release has and means something else."""
        try:
            return None if note is None else cls.model_validate(note)
        except ValidationError:
            return None


class RunMean(_Part):
    """A mean over episodes."""

    mean: float = Field(description="over the episodes with an outcome of the policy's own")
    interval: tuple[float, float] | None = Field(description="at 95 %, by Student's t; null: not known")
    n: int = Field(description="how many of these there are")


class RunRate(_Part):
    """A success rate, other means, and what they rest on."""

    success_rate: float | None = Field(
        description="over the episodes with an outcome of the policy's own; null: none of them can be judged"
    )
    interval: tuple[float, float] | None = Field(
        default=None, description="95 % interval of that rate, by Wilson; null: not known"
    )
    n: int = Field(description="how many of these there are")
    judged: int | None = Field(
        default=None,
        description="how many of them the success rate is of: all but those of tasks whose simulators do not say what "
        "success is; null: releases before 0.2",
    )
    errors: int = Field(description="how many episodes ended in an error, and are not counted in the rate")
    worst_case: float | None = Field(description="the rate if every error had been a failure; null: no episode")
    best_case: float | None = Field(description="the rate if every error had been a success; null: no episode")
    returns: RunMean | None = Field(
        default=None, alias="return", description="the sum of rewards; null: no episode, or releases before 0.2"
    )
    steps: RunMean | None = Field(default=None, description="actions executed; null likewise")
    reward_max: RunMean | None = Field(default=None, description="the largest reward of one step; null likewise")

    @classmethod
    def of(cls, summary: Summary) -> RunRate:
        """Makes it of a summary of all episodes."""
        return cls.model_validate(summary.to_json())


class RunDocument(_Part):
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
    episodes: int = Field(ge=1, description="per task")
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
        default=None, description="the success rate when this was written; null: releases before 0.2"
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

    def plan(self) -> Plan:
        """Returns the plan, without asking the benchmarks, which may not be installed here."""
        tasks: dict[str, list[Task]] = {}
        for task in self.tasks.values():
            tasks.setdefault(task.benchmark, []).append(
                Task(task.name, task.instruction, task.group, task.initial_states or 0, task.number)
            )
        return Plan(tasks, self.episodes, self.seed)

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
        content = check_depth(json.loads(read_regular(path)))
    except OSError as error:
        raise UsageError(f"{str(folder)!r} is not the output folder of a run: {RUN_FILE}: {error.strerror}.") from error
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
    if document.episodes * len(document.tasks) > MOST_EPISODES:
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

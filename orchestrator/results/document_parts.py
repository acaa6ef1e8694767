"""The parts of run.json: tasks, policy, plug-ins, executions, machines, rates, and what policy servers did."""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from sparring.env_worker.protocol import WholeProtocol
from sparring.orchestrator.results.several_protocols import protocols_side_by_side
from sparring.orchestrator.results.statistics import Summary
from sparring.policy_server.client import Description, PolicyProgram
from sparring.protos.conditions import plain
from sparring.protos.machine import machine

if TYPE_CHECKING:
    from sparring.orchestrator.results.results import Results


class DocumentPart(BaseModel):
    """What all of them have in common: what other releases know beside is ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)


class RunTask(DocumentPart):
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


class RunPolicy(DocumentPart):
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


class RunProtocol(DocumentPart):
    """Says by which rules a benchmark, or an evaluation, was played."""

    name: str = Field(description="of the protocol that was given, or `ours`")
    version: int = Field(description="of that protocol")
    sha256: str = Field(description="hash of the rules that were really played by, which are those below")
    benchmark: str = Field(description="that they are of")
    seed: int = Field(description="episode k has this + k")
    settings: dict[str, Any] = Field(description="of the benchmark, all that can move a score")
    rules: dict[str, Any] = Field(description="of episodes, all that can move a score")
    layout: str = Field(description="how policies behind that project's servers are shown the benchmark")
    conventions: dict[str, str] = Field(
        default_factory=dict,
        description="what no setting changes: cameras, gripper, rotations, when success is checked; empty: not known",
    )
    changed: list[str] = Field(
        default_factory=list, description="rules that are otherwise than the protocol has them; empty: none"
    )

    @model_validator(mode="after")
    def _hash_of_these_rules(self) -> Self:
        """Checks the hash, by which runs are held to be alike: somebody may have edited the rules."""
        fields = {name: getattr(self, name) for name in WholeProtocol.__dataclass_fields__}
        if WholeProtocol(**fields).sha256 != self.sha256:
            raise ValueError("its hash is not that of its rules")
        return self

    @property
    def label(self) -> str:
        """Its name and version, and what is otherwise, for people."""
        return f"{self.name}@{self.version}" + (f" with other {', '.join(self.changed)}" if self.changed else "")

    @classmethod
    def of(cls, played: WholeProtocol, changed: Sequence[str]) -> RunProtocol:
        """Makes it of what was played by."""
        return cls(
            name=played.name,
            version=played.version,
            sha256=played.sha256,
            changed=list(changed),
            **plain(played.values),
        )


class RunPlugin(DocumentPart):
    """A plug-in that is installed where the orchestrator runs."""

    kind: Literal["benchmark", "launcher", "policy", "tracker"] = Field(
        description="`benchmark`, `launcher`, `policy` or `tracker`"
    )
    name: str = Field(description="as it is given to --benchmark, --launcher, --policy or --track")
    value: str = Field(description="where it is found, `module:Class`")
    package: str | None = Field(description="the package that brings it; null: not known")
    version: str | None = Field(description="of that package; null: not known")


class RunExecution(DocumentPart):
    """One go at the run."""

    began: str = Field(description="when, in ISO 8601, UTC")
    ended: str | None = Field(description="when; null: it is going on, or was killed")
    command: str | None = Field(description="the command line, with secrets left out; null: it was no command")


class RunHost(DocumentPart):
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


class BatchSize(DocumentPart):
    """Rows in a forward pass; null where there was none."""

    mean: float | None = Field(description="over all passes")
    max: int | None = Field(description="of one pass")


class Spread(DocumentPart):
    """Seconds of something that happened often; null where it never did."""

    mean: float | None = Field(description="over all times")
    p50: float | None = Field(description="half of the times took at most this")
    p99: float | None = Field(description="99 of 100 took at most this")


class InferenceSeconds(Spread):
    """Seconds of forward passes."""

    total: float = Field(description="of all passes together")


class ServerStats(DocumentPart):
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


class RunMean(DocumentPart):
    """A mean over episodes."""

    mean: float = Field(description="over the episodes with an outcome of the policy's own")
    interval: tuple[float, float] | None = Field(description="at 95 %, by Student's t; null: not known")
    n: int = Field(description="how many of these there are")


class RunRate(DocumentPart):
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

    @classmethod
    def of_all(cls, results: Results) -> RunRate | None:
        """Makes it of all episodes of a run; None of several protocols, for it would be by the rules of none."""
        return None if protocols_side_by_side(results) else cls.of(results.overall)

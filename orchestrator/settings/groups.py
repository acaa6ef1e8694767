"""What settings are about: the plan, the policy, the workers, and what is written."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args, get_type_hints

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializeAsAny,
    create_model,
    field_validator,
    model_validator,
)

from sparring.env_worker.rendering.device import AUTO, parse_devices
from sparring.orchestrator.launchers.base import LauncherSettings
from sparring.orchestrator.machine.memory import parse_memory
from sparring.orchestrator.run.retry import RetriedKind, RetryRules
from sparring.policy_server.client import ServerOptions, server_options
from sparring.protos.advice import Hint
from sparring.protos.episode_rules import EpisodeRules
from sparring.protos.errors import UsageError
from sparring.protos.net.address import Address, parse_listen, parse_servers
from sparring.protos.record import Outcome

MAX_SEED: Final = 2**63 - 1
"""The largest whole number that a journal holds."""


def _listed(value: Any) -> Any:
    """Reads a list, as a file may have it, as what a flag has: its items with commas in between."""
    if isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value):
        return ",".join(value)
    return value


def _devices(value: Any) -> Any:
    """Reads a number, or a list of them, as a file may have it, as what a flag has."""
    numbers = value if isinstance(value, (list, tuple)) else [value]
    plain = all(isinstance(number, int) and not isinstance(number, bool) for number in numbers)
    return ",".join(map(str, numbers)) if plain else value


Listed = Annotated[str, BeforeValidator(_listed)]
"""Names with commas in between; in a file, a list of them will do."""


class Evaluation(BaseModel):
    """One benchmark's part of a run."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    benchmark: str
    task: Listed
    benchmark_arg: dict[str, Any] = Field(default_factory=dict)
    name: str = ""

    @field_validator("name")
    @classmethod
    def _a_name(cls, name: str) -> str:
        if not re.fullmatch(r"([A-Za-z0-9][A-Za-z0-9_.-]*)?", name):
            raise ValueError("must be of letters, digits, '.', '-' and '_'")
        return name

    @property
    def label(self) -> str:
        """What this part is called in the run, where others say `benchmark`: its own name, else the benchmark's."""
        return self.name or self.benchmark.replace(":", ".")


class SettingsGroup(BaseModel):
    """Settings that belong together: one field is one flag and one YAML key, by its alias if it has one."""

    model_config = ConfigDict(extra="forbid", frozen=True)


_rules: Any = {
    rule.name: (kind, Field(rule.default, ge=rule.metadata["least"], description=rule.metadata["help"]))
    for rule, kind in zip(fields(EpisodeRules), get_type_hints(EpisodeRules).values(), strict=True)
}
RuleSettings = create_model("RuleSettings", __base__=SettingsGroup, **_rules)
"""The rules that episodes are played by, as settings of a run."""


class PlanSettings(SettingsGroup):
    """What is played, and how. In `evaluate()`, it may be another with each call, and the workers stay."""

    benchmark: str | None = Field(None, description="which benchmark; see: sparring ls benchmarks")
    task: Listed | None = Field(
        None, description="groups and tasks, comma-separated; see: sparring ls tasks --benchmark NAME"
    )
    benchmark_arg: dict[str, Any] = Field(
        default_factory=dict, description="a setting of the benchmark, KEY=VALUE; may be repeated"
    )
    evaluations: tuple[Evaluation, ...] = Field(
        (), description="in a file, instead of the three above: a list of them, to run several benchmarks at once"
    )
    episodes: int = Field(10, ge=1, description="episodes per task")
    seed: int = Field(1000, ge=0, description="seed of the run; episode k of every task has the seed SEED + k")
    slots: int | Literal["auto"] = Field(
        "auto",
        description="episodes at once; auto: as many as the cores and the memory that may be used here are good for, "
        "three per core if the policy is computed elsewhere or on a GPU, at most the episodes and 64",
    )
    in_process: bool = Field(
        False,
        description="play everything in this process, one episode after the other: for pdb, and for tiny policies",
    )
    max_parallel_tasks: int = Field(0, ge=0, description="the most tasks open at once; 0: no limit")
    retries: int = Field(3, ge=0, description="how often an episode that ends in an error is tried again")
    retries_of: dict[RetriedKind, Annotated[int, Field(ge=0)]] = Field(
        default_factory=dict,
        description="the same for one kind of error, KIND=NUMBER; may be repeated; kinds: "
        + ", ".join(get_args(RetriedKind)),
    )
    max_errors: int = Field(
        20,
        ge=0,
        description="stop when so many attempts, all that there were, ended in the same error; 0: go on in any case",
    )
    stall_timeout: float = Field(300.0, gt=0, description="seconds without a step after which a simulator is killed")
    slot_memory: str = Field(
        "auto",
        description="a simulator's process that holds more than this after an episode, such as 4g, is replaced before "
        "the next; auto: 0.8 of the worker's memory, divided by its slots",
    )
    worker_timeout: float = Field(
        600.0, gt=0, description="seconds without any worker of a benchmark after which the run is given up"
    )

    own: SerializeAsAny[SettingsGroup]
    """`RuleSettings`; `rules` hands them to those who play."""

    @field_validator("slots")
    @classmethod
    def _at_least_one_slot(cls, slots: int | str) -> int | str:
        if isinstance(slots, int) and slots < 1:
            raise ValueError("must be at least 1, or auto")
        return slots

    @field_validator("slot_memory")
    @classmethod
    def _an_amount(cls, memory: str) -> str:
        parse_memory(memory)
        return memory

    @model_validator(mode="after")
    def _seeds_can_be_written(self) -> PlanSettings:
        if self.seed + self.episodes - 1 > MAX_SEED:
            raise ValueError(
                f"{Hint('seed')} is too large: the last episode's seed, {self.seed + self.episodes - 1}, is above "
                f"{MAX_SEED}, the largest that can be recorded"
            )
        return self

    @model_validator(mode="after")
    def _something_to_evaluate(self) -> PlanSettings:
        single = [name for name in ("benchmark", "task", "benchmark_arg") if getattr(self, name)]
        if self.evaluations and single:
            raise ValueError(f"{', '.join(single)} cannot stand beside evaluations: put them in that list")
        if not self.evaluations:
            for name in ("benchmark", "task"):
                if getattr(self, name) is None:
                    raise ValueError(f"{Hint(name)} is missing")
        labels = [evaluation.label for evaluation in self.evaluations]
        for label in labels:
            if labels.count(label) > 1:
                raise ValueError(
                    f"evaluations has {label!r} twice; give all its tasks in one list, or each of them a `name`"
                )
        return self

    @property
    def parts(self) -> Sequence[Evaluation]:
        """What is evaluated, one entry per benchmark, or more if they have names."""
        if self.evaluations:
            return self.evaluations
        assert self.benchmark is not None
        assert self.task is not None
        return [Evaluation(benchmark=self.benchmark, task=self.task, benchmark_arg=self.benchmark_arg)]

    def part(self, label: str) -> Evaluation:
        """Returns the part of the run that has a label."""
        return next(part for part in self.parts if part.label == label)

    def worker_flags(self, label: str) -> str:
        """Returns what `sparring worker` is started with by hand, to work for the part that has a label."""
        part = self.part(label)
        alone = not part.name and sum(other.benchmark == part.benchmark for other in self.parts) == 1
        return f"--benchmark {part.benchmark}" + ("" if alone else f" --evaluation {label}")

    @property
    def rules(self) -> EpisodeRules:
        """The rules that episodes are played by."""
        return EpisodeRules(**self.own.model_dump())

    @property
    def retry_rules(self) -> RetryRules:
        """When an episode is tried again."""
        return RetryRules(retries=self.retries, retries_of=self.retries_of)


_of_run: Any = {
    option.name: (
        Annotated[option.kind, BeforeValidator(option.read)],
        Field(option.default, description=option.help),
    )
    for option in server_options()
    if option.of_run
}
HostedServerSettings = create_model("HostedServerSettings", __base__=SettingsGroup, **_of_run)
"""The options of a policy server that are settings of a run: of the server that it hosts."""


class PolicySettings(SettingsGroup):
    """Which policy, hosted for this run or elsewhere."""

    name: str | None = Field(
        None, alias="policy", description="a policy to host for this run; see: sparring ls policies"
    )
    policy_arg: dict[str, Any] = Field(
        default_factory=dict, description="an argument of the policy, KEY=VALUE; may be repeated"
    )
    rename: dict[str, str] = Field(
        default_factory=dict,
        description="an observation of the policy and the benchmark's name for it, CAMERA=NAME; may be repeated",
    )
    policy_server: Listed | None = Field(
        None,
        description="address of a policy that is hosted elsewhere, HOST:PORT, tls://HOST:PORT or unix:///path; "
        "several servers of the same policy are comma-separated",
    )
    policy_token_file: Path | None = Field(
        None, description="file with the token that --policy-server wants; only its path is saved"
    )
    policy_ca: Path | None = Field(
        None,
        description="PEM file with the CA of --policy-server; turns TLS on. tls:// without it trusts the system's CAs",
    )
    policy_tls_cert: Path | None = Field(
        None, description="PEM certificate to show to a --policy-server that wants one (its --client-ca)"
    )
    policy_tls_key: Path | None = Field(
        None, description="PEM private key of --policy-tls-cert; only its path is saved"
    )
    policy_timeout: float = Field(
        60.0, gt=0, description="seconds to wait for the policy server, and for each of its answers"
    )
    own: SerializeAsAny[SettingsGroup]
    """`HostedServerSettings`; `server_options` hands them to the server."""

    @model_validator(mode="after")
    def _one_policy(self) -> PolicySettings:
        policy, server = Hint("policy"), Hint("policy_server")
        if (self.name is None) == (self.policy_server is None):
            raise ValueError(f"give either {policy} (hosted for this run) or {server} (hosted elsewhere)")
        if self.policy_arg and self.name is None:
            raise ValueError(
                f"{Hint('policy_arg')} goes with {policy}; a policy hosted elsewhere has its arguments already"
            )
        if self.rename and self.name is None:
            raise ValueError(
                f"{Hint('rename')} goes with {policy}; a policy hosted elsewhere is started with it (sparring serve)"
            )
        if self.rename and "rename" in self.policy_arg:
            same = f"{Hint('rename')} and {Hint('policy_arg', 'rename')}"
            raise ValueError(f"{same} are the same; give one of them")
        for name in self.own.model_fields_set if self.name is None else ():
            if getattr(self.own, name) != type(self.own).model_fields[name].default:
                raise ValueError(
                    f"{Hint(name)} goes with {policy}; give it to the servers of a policy hosted elsewhere"
                )
        for name in ("policy_token_file", "policy_ca", "policy_tls_cert", "policy_tls_key"):
            if getattr(self, name) is not None and self.policy_server is None:
                raise ValueError(f"{Hint(name)} goes with {server}; a policy hosted for this run needs none")
        return self

    @field_validator("policy_server")
    @classmethod
    def _known_servers(cls, servers: str | None) -> str | None:
        if servers is not None:
            _or_value_error(parse_servers, servers)
        return servers

    @property
    def servers(self) -> Sequence[Address]:
        """Where the policy is hosted, if that is elsewhere."""
        return [] if self.policy_server is None else parse_servers(self.policy_server)

    @property
    def computed_elsewhere(self) -> bool:
        """Whether other processors compute the policy than the cores that simulators have, as far as can be told."""
        if self.name is None:
            return all(server.leaves_the_machine for server in self.servers)
        return str(self.policy_arg.get("device", "cpu")).partition(":")[0] not in ("cpu", "auto")

    @property
    def arguments(self) -> Mapping[str, Any]:
        """All arguments of the policy, `rename` among them."""
        return {**self.policy_arg, "rename": self.rename} if self.rename else self.policy_arg

    def server_options(self, **others: Any) -> ServerOptions:
        """Returns the options of the server that hosts the policy; `others` are those that are no settings."""
        assert self.name is not None
        return ServerOptions(policy=self.name, policy_args=self.arguments, **self.own.model_dump(), **others)


class WorkerSettings(SettingsGroup):
    """What workers are made of, beside their benchmark. In `evaluate()`, others start new workers."""

    assets: Path | None = Field(None, description="folder of the benchmark's assets, where it has any (libero)")
    launcher: str = Field(
        "process",
        description="how workers are started: as processes, as containers (docker), or none: they come by themselves "
        "(sparring worker); see: sparring ls launchers",
    )
    listen: str | None = Field(
        None,
        description="where workers may dial in, HOST:PORT or unix:///path; default: nowhere, or with --launcher "
        "none at 127.0.0.1:50052, or any free port",
    )
    join_token_file: Path | None = Field(
        None,
        description="file with the secret that workers must bring, for those from elsewhere (sparring worker "
        "--join-token-file); default: one is made for each run; only its path is saved",
    )
    listen_tls_cert: Path | None = Field(
        None, description="PEM certificate (chain): encrypts --listen; workers dial tls://HOST:PORT"
    )
    listen_tls_key: Path | None = Field(None, description="PEM private key of --listen-tls-cert, without a passphrase")
    listen_client_ca: Path | None = Field(
        None,
        description="PEM file with the CA of workers' certificates: at --listen only those are let in that have one "
        "(sparring worker --tls-cert); they need no join token unless --join-token-file is given",
    )
    render_device: Annotated[str, BeforeValidator(_devices)] = Field(
        AUTO,
        description="what simulators draw on: auto, software, or numbers of EGL's devices where workers run (sparring "
        "doctor), comma-separated; slots are spread over those that work",
    )
    insecure: bool = Field(
        False, description="let in whoever reaches --listen or --metrics from beyond this machine, without a secret"
    )
    own: SerializeAsAny[LauncherSettings]
    """The launcher's own settings."""

    @field_validator("render_device")
    @classmethod
    def _known_devices(cls, devices: str) -> str:
        _or_value_error(parse_devices, devices)
        return devices or AUTO

    @field_validator("listen")
    @classmethod
    def _known_port(cls, address: str | None) -> str | None:
        if address is not None:
            _or_value_error(parse_listen, address)
        return address

    @property
    def listen_address(self) -> Address | None:
        """Where workers may dial in, if that is set."""
        return None if self.listen is None else parse_listen(self.listen)


class OutputSettings(SettingsGroup):
    """What is written, and where."""

    video: str = Field(
        "none",
        description="films: none, failures, successes, all, first:N, or single episodes, TASK:INDEX, comma-separated; "
        "they are made by playing episodes again, when no outcome is waited for",
    )
    video_live: bool = Field(
        False, description="film while the policy plays, for simulators that cannot play an episode again"
    )
    video_fps: float = Field(20.0, gt=0, description="frames per simulated second in films")
    video_names: Literal["sparring", "lerobot"] = Field(
        "sparring", description="films are TASK_INDEX_OUTCOME.mp4, or LeRobot's GROUP_ID/eval_episode_INDEX.mp4"
    )
    record: Path | None = Field(
        None, description="folder for recordings: what the policy saw and did, a file per episode"
    )
    actions: bool = Field(
        True, description="keep the executed actions of each episode, some kilobytes, so that it can be played again"
    )
    folder: Path | None = Field(
        None, alias="output", description="folder of the results; the same folder resumes the same run"
    )

    @field_validator("video")
    @classmethod
    def _known_video(cls, video: str) -> str:
        if not re.fullmatch(r"none|failures|successes|all|first:\d+|[^,]+:\d+(,[^,]+:\d+)*", video):
            raise ValueError("must be none, failures, successes, all, first:N, or TASK:INDEX,...")
        return video

    def may_film(self, task: str, index: int, *, benchmark: str) -> bool:
        """Returns whether a film of an episode may be wanted, before its outcome is known."""
        outcomes: tuple[Outcome, ...] = ("success", "failure")
        return any(self.wants_film(task, index, outcome, benchmark=benchmark) for outcome in outcomes)

    def wants_film(self, task: str, index: int, outcome: Outcome, *, benchmark: str | None = None) -> bool:
        """Returns whether a film of an episode is wanted that has ended so. Of an error there is none.

        Args:
            task: Of the episode.
            index: Of the episode.
            outcome: Of the episode.
            benchmark: The label of the task's part of the run; None: any that has been asked for will do.
        """
        if outcome == "error":
            return False
        if self.video in _FILMED:
            return outcome in _FILMED[self.video]
        if self.video.startswith("first:"):
            return index < int(self.video.removeprefix("first:"))
        named, wanted = f"{task}:{index}", self.video.split(",")
        if benchmark is None:
            return any(name == named or name.endswith(f"/{named}") for name in wanted)
        return named in wanted or f"{benchmark}/{named}" in wanted


_FILMED: Final[Mapping[str, Sequence[Outcome]]] = {
    "none": (),
    "failures": ("failure",),
    "successes": ("success",),
    "all": ("failure", "success", "played"),
}


def _or_value_error(read: Callable[[str], object], text: str) -> None:
    try:
        read(text)
    except UsageError as error:
        raise ValueError(error.sentence.removesuffix(".")) from error

"""Every setting of a run, wherever it comes from: flags, a YAML file, or the run.json of an earlier run."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from sparring.protos.errors import UsageError, unknown
from sparring.protos.net.address import Address, parse_servers, parse_tcp

MAX_AUTO_SLOTS = 64
CONTAINER_SETTINGS = ("image", "worker_connection", "worker_memory", "worker_pids", "worker_gpus")
"""Settings that are about workers in containers."""
_LEAST_MEMORY = 16 * 2**20


class Evaluation(BaseModel):
    """One benchmark's part of a run."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    benchmark: str
    task: str
    benchmark_arg: dict[str, Any] = Field(default_factory=dict)


class RunSettings(BaseModel):
    """The settings of `sparring run`: one field is one flag and one YAML key."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    benchmark: str | None = Field(None, description="which benchmark; see: sparring ls benchmarks")
    task: str | None = Field(
        None, description="groups and tasks, comma-separated; see: sparring ls tasks --benchmark NAME"
    )
    benchmark_arg: dict[str, Any] = Field(
        default_factory=dict, description="a setting of the benchmark, KEY=VALUE; may be repeated"
    )
    assets: Path | None = Field(None, description="folder of the benchmark's assets, where it has any (libero)")
    evaluations: tuple[Evaluation, ...] = Field(
        (), description="in a file, instead of the three above: a list of them, to run several benchmarks at once"
    )
    episodes: int = Field(10, ge=1, description="episodes per task")
    seed: int = Field(1000, ge=0, description="seed of the run; episode k of every task has the seed SEED + k")
    max_steps: int = Field(0, ge=0, description="end episodes after this many steps; 0: the benchmark's own limit")

    policy: str | None = Field(None, description="a policy to host for this run; see: sparring ls policies")
    policy_arg: dict[str, Any] = Field(
        default_factory=dict, description="an argument of the policy, KEY=VALUE; may be repeated"
    )
    rename: dict[str, str] = Field(
        default_factory=dict,
        description="an observation of the policy and the benchmark's name for it, CAMERA=NAME; may be repeated",
    )
    policy_server: str | None = Field(
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
    policy_timeout: float = Field(
        60.0, gt=0, description="seconds to wait for the policy server, and for each of its answers"
    )
    max_batch: int = Field(64, ge=1, description="the most observations in one forward pass")
    max_queue_delay: float | Literal["auto"] = Field(
        0.0,
        description="seconds that an observation may wait for others to fill its batch; auto: as long as that makes "
        "more answers per second",
    )
    metrics: str | None = Field(
        None, description="serve Prometheus metrics of --policy at HOST:PORT, or at :PORT on every address"
    )
    out_of_range: Literal["pass", "clip", "error"] = Field(
        "pass", description="an action outside the action space is executed as it is, clipped, or an error"
    )

    slots: int | Literal["auto"] = Field(
        "auto", description="episodes at once; auto: 0.7 × cores, at most the episodes and 64"
    )
    max_parallel_tasks: int = Field(0, ge=0, description="the most tasks open at once; 0: no limit")
    launcher: Literal["process", "docker", "none"] = Field(
        "process",
        description="how workers are started: as processes, as containers, or none: they come by themselves "
        "(sparring worker)",
    )
    image: dict[str, str] = Field(
        default_factory=dict,
        description="a benchmark's image for --launcher docker, BENCHMARK=NAME; may be repeated; "
        "default: sparring/BENCHMARK:VERSION",
    )
    worker_connection: Literal["auto", "unix", "tcp"] = Field(
        "auto", description="how containers reach this run; auto: unix if the container engine is on this machine"
    )
    worker_memory: str = Field(
        "auto", description="memory limit of a container, such as 6g; auto: 1 GiB and 1.5 GiB per slot"
    )
    worker_pids: int = Field(
        0, ge=0, description="limit of processes and threads in a container; 0: 256 and 128 per slot"
    )
    worker_gpus: Literal["none", "all"] = Field("none", description="GPUs that containers may render with")
    listen: str | None = Field(
        None, description="where workers may dial in, HOST:PORT; default: 127.0.0.1:50052, or any free port"
    )
    worker_timeout: float = Field(
        600.0, gt=0, description="seconds without any worker of a benchmark after which the run is given up"
    )
    retries: int = Field(3, ge=0, description="how often an episode that ends in an error is tried again")
    stall_timeout: float = Field(300.0, gt=0, description="seconds without a step after which a simulator is killed")

    observe: Literal["on-demand", "every-step"] = Field(
        "on-demand", description="make observations where the policy looks, or at every step"
    )
    video: str = Field("none", description="films: none, failures, all or first:N")
    video_fps: float = Field(20.0, gt=0, description="frames per simulated second in films")
    video_names: Literal["sparring", "lerobot"] = Field(
        "sparring", description="films are TASK_INDEX_OUTCOME.mp4, or LeRobot's GROUP_ID/eval_episode_INDEX.mp4"
    )
    record: Path | None = Field(
        None, description="folder for recordings: what the policy saw and did, a file per episode"
    )
    output: Path | None = Field(None, description="folder of the results; the same folder resumes the same run")

    @field_validator("slots")
    @classmethod
    def _at_least_one_slot(cls, slots: int | str) -> int | str:
        if isinstance(slots, int) and slots < 1:
            raise ValueError("must be at least 1, or auto")
        return slots

    @field_validator("max_queue_delay", mode="before")
    @classmethod
    def _a_wait(cls, delay: Any) -> Any:
        with suppress(TypeError, ValueError):
            if delay == "auto" or 0 <= float(delay) < float("inf"):
                return delay
        raise ValueError("must be seconds, at least 0, or auto")

    @field_validator("worker_memory")
    @classmethod
    def _an_amount(cls, memory: str) -> str:
        parse_memory(memory)
        return memory

    @field_validator("video")
    @classmethod
    def _known_video(cls, video: str) -> str:
        if not re.fullmatch(r"none|failures|all|first:\d+", video):
            raise ValueError("must be none, failures, all or first:N")
        return video

    @model_validator(mode="after")
    def _something_to_evaluate(self) -> RunSettings:
        single = [name for name in ("benchmark", "task", "benchmark_arg") if getattr(self, name)]
        if self.evaluations and single:
            raise ValueError(f"{', '.join(single)} cannot stand beside evaluations: put them in that list")
        if not self.evaluations:
            for name in ("benchmark", "task"):
                if getattr(self, name) is None:
                    raise ValueError(f"--{name} is missing")
        names = [evaluation.benchmark for evaluation in self.evaluations]
        if len(set(names)) < len(names):
            raise ValueError("evaluations names a benchmark twice; give its tasks in one comma-separated list")
        return self

    @model_validator(mode="after")
    def _one_policy(self) -> RunSettings:
        if (self.policy is None) == (self.policy_server is None):
            raise ValueError("give either --policy (hosted for this run) or --policy-server (hosted elsewhere)")
        if self.policy_arg and self.policy is None:
            raise ValueError("--policy-arg goes with --policy; a policy hosted elsewhere has its arguments already")
        if self.rename and self.policy is None:
            raise ValueError(
                "--rename goes with --policy; a policy hosted elsewhere is started with it (sparring serve)"
            )
        if self.rename and "rename" in self.policy_arg:
            raise ValueError("--rename and --policy-arg rename=... are the same; give one of them")
        ours = {"--metrics": self.metrics is not None, "--max-queue-delay": self.max_queue_delay != 0}
        for flag in (flag for flag, given in ours.items() if given and self.policy is None):
            raise ValueError(f"{flag} goes with --policy; give it to the servers of a policy hosted elsewhere")
        for flag, value in (("--policy-token-file", self.policy_token_file), ("--policy-ca", self.policy_ca)):
            if value is not None and self.policy_server is None:
                raise ValueError(f"{flag} goes with --policy-server; a policy hosted for this run needs none")
        return self

    @field_validator("policy_server")
    @classmethod
    def _known_servers(cls, servers: str | None) -> str | None:
        if servers is not None:
            _or_value_error(parse_servers, servers)
        return servers

    @field_validator("metrics", "listen")
    @classmethod
    def _known_port(cls, address: str | None) -> str | None:
        if address is not None:
            _or_value_error(parse_tcp, address)
        return address

    @property
    def policy_servers(self) -> Sequence[Address]:
        """Where the policy is hosted, if that is elsewhere."""
        return [] if self.policy_server is None else parse_servers(self.policy_server)

    @property
    def listen_address(self) -> Address | None:
        """Where workers may dial in, if that is set."""
        return None if self.listen is None else parse_tcp(self.listen)

    @model_validator(mode="after")
    def _containers_only_where_there_are_some(self) -> RunSettings:
        if self.launcher != "docker":
            for name in CONTAINER_SETTINGS:
                if getattr(self, name) != type(self).model_fields[name].get_default(call_default_factory=True):
                    raise ValueError(f"--{name.replace('_', '-')} goes with --launcher docker")
        for benchmark in self.image:
            if benchmark not in {part.benchmark for part in self.parts}:
                raise ValueError(f"--image names {benchmark!r}, which is not part of this run")
        return self

    @property
    def parts(self) -> Sequence[Evaluation]:
        """What is evaluated, one entry per benchmark."""
        if self.evaluations:
            return self.evaluations
        assert self.benchmark is not None
        assert self.task is not None
        return [Evaluation(benchmark=self.benchmark, task=self.task, benchmark_arg=self.benchmark_arg)]

    @property
    def policy_arguments(self) -> Mapping[str, Any]:
        """All arguments of the policy, `rename` among them."""
        return {**self.policy_arg, "rename": self.rename} if self.rename else self.policy_arg

    def films(self, index: int) -> bool:
        """Whether an episode is filmed; with `failures` all are, and the others' films are dropped."""
        if self.video.startswith("first:"):
            return index < int(self.video.removeprefix("first:"))
        return self.video in ("all", "failures")

    def slot_count(self, episodes: int) -> int:
        """How many slots, given how many episodes there are to run."""
        if isinstance(self.slots, int):
            return self.slots
        return max(1, min(math.floor(0.7 * (os.cpu_count() or 1)), episodes, MAX_AUTO_SLOTS))


def _or_value_error(read: Callable[[str], object], text: str) -> None:
    try:
        read(text)
    except UsageError as error:
        raise ValueError(str(error).removesuffix(".")) from error


def read_settings(flags: Mapping[str, Any], config: Path | None) -> RunSettings:
    """Settings from flags over a YAML file over defaults.

    Raises:
        UsageError: If a key is unknown or a value is wrong, with what would be right.
    """
    values = {**(_read_yaml(config) if config else {}), **flags}
    for key in values:
        if key not in RunSettings.model_fields:
            raise unknown(f"setting in {config}:", str(key), RunSettings.model_fields)
    try:
        return RunSettings(**values)
    except ValidationError as error:
        raise UsageError("; ".join(_sentence(problem) for problem in error.errors())) from error


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text())
    except OSError as error:
        raise UsageError(f"the config file {str(path)!r} cannot be read: {error.strerror}.") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"the config file {str(path)!r} is not valid YAML: {error}") from error
    if not isinstance(content, dict):
        raise UsageError(f"the config file {str(path)!r} must hold settings as `key: value` lines.")
    # A flag's name works as a key, too.
    return {str(key).replace("-", "_"): value for key, value in content.items()}


def _sentence(problem: Any) -> str:
    where = "--" + str(problem["loc"][0]).replace("_", "-") if problem["loc"] else ""
    if problem["type"] == "missing":
        return f"{where} is missing."
    said = problem["msg"].removeprefix("Value error, ")
    if not where:
        return f"{said}."
    if repr(problem["input"]) in said:  # it has been quoted already
        return f"{where}: {said.rstrip('.')}."
    return f"{where}: {said[0].lower()}{said[1:]}, not {json.dumps(problem['input'], default=str)}."


def parse_pairs(pairs: tuple[str, ...], flag: str) -> dict[str, Any]:
    """KEY=VALUE pairs of a flag; values are YAML, so that numbers, lists and booleans are what they look like.

    Raises:
        UsageError: If a pair has no key or no value.
    """
    parsed: dict[str, Any] = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or not all(part.replace("-", "_").isidentifier() for part in key.split(".")):
            raise UsageError(f"{flag} {pair!r} is not KEY=VALUE.")
        try:
            parsed[key] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise UsageError(f"the value in {flag} {pair!r} cannot be read: {error}") from error
    return parsed


def parse_memory(amount: str) -> int:
    """Bytes of an amount such as 512m or 1.5g; 0 for auto.

    Raises:
        ValueError: If it is not one.
    """
    if amount == "auto":
        return 0
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", amount.lower())
    count = int(float(found[1]) * 1024 ** " kmgt".index(found[2] or " ")) if found else 0
    if count < _LEAST_MEMORY:
        raise ValueError("must be auto or an amount of at least 16m, such as 512m or 6g")
    return count

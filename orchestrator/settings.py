"""Every setting of a run, wherever it comes from: flags, a YAML file, or the run.json of an earlier run."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from protos.errors import UsageError, unknown

MAX_AUTO_SLOTS = 64


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
    policy_server: str | None = Field(None, description="address of a policy that is hosted elsewhere, HOST:PORT")
    policy_timeout: float = Field(
        60.0, gt=0, description="seconds to wait for the policy server, and for each of its answers"
    )
    max_batch: int = Field(64, ge=1, description="the most observations in one forward pass")

    slots: int | Literal["auto"] = Field(
        "auto", description="episodes at once; auto: 0.7 × cores, at most the episodes and 64"
    )
    max_parallel_tasks: int = Field(0, ge=0, description="the most tasks open at once; 0: no limit")
    launcher: Literal["process", "none"] = Field(
        "process", description="how workers are started; none: they come by themselves (sparring worker)"
    )
    listen: str | None = Field(
        None, description="where workers may dial in, HOST:PORT; default: 127.0.0.1:50052, or any free port"
    )
    retries: int = Field(3, ge=0, description="how often an episode that ends in an error is tried again")
    stall_timeout: float = Field(300.0, gt=0, description="seconds without a step after which a simulator is killed")

    observe: Literal["on-demand", "every-step"] = Field(
        "on-demand", description="make observations where the policy looks, or at every step"
    )
    video: str = Field("none", description="films: none, failures, all or first:N")
    video_fps: float = Field(20.0, gt=0, description="frames per simulated second in films")
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
    return f"{where}: {said[0].lower()}{said[1:]}, not {json.dumps(problem['input'], default=str)}."


def parse_pairs(pairs: tuple[str, ...], flag: str) -> dict[str, Any]:
    """KEY=VALUE pairs of a flag; values are YAML, so that numbers, lists and booleans are what they look like.

    Raises:
        UsageError: If a pair has no key or no value.
    """
    parsed: dict[str, Any] = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or not all(part.isidentifier() for part in key.split(".")):
            raise UsageError(f"{flag} {pair!r} is not KEY=VALUE.")
        try:
            parsed[key] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise UsageError(f"the value in {flag} {pair!r} cannot be read: {error}") from error
    return parsed

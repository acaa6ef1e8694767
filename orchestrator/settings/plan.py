"""Settings of the plan: what is played, and how."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Annotated, Any, Final, Literal, get_args, get_type_hints

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializeAsAny,
    ValidationError,
    create_model,
    field_validator,
    model_validator,
)

from sparring.orchestrator.machine.memory import parse_memory
from sparring.orchestrator.retry import RetriedKind, RetryRules
from sparring.orchestrator.settings.group import Listed, SettingsGroup
from sparring.orchestrator.settings.saved_protocol import SavedProtocol
from sparring.protos.advice import Hint
from sparring.protos.episode_rules import EpisodeRules
from sparring.protos.errors import unknown

MAX_SEED: Final = 2**63 - 1
"""The largest whole number that a journal holds."""


_rules: Any = {
    rule.name: (kind, Field(rule.default, ge=rule.metadata["least"], description=rule.metadata["help"]))
    for rule, kind in zip(fields(EpisodeRules), get_type_hints(EpisodeRules).values(), strict=True)
}
RuleSettings = create_model("RuleSettings", __base__=SettingsGroup, **_rules)
"""The rules that episodes are played by, as settings of a run."""


def checked_rules(rules: Mapping[str, Any]) -> dict[str, Any]:
    """Returns some of the rules of episodes, checked; a part of a run may have own ones of those that move a score.

    Raises:
        ValueError: If there is no such rule, or it has no such value.
    """
    known = EpisodeRules().that_move()
    if strangers := [name for name in rules if name not in known]:
        raise ValueError(unknown("rule", str(strangers[0]), known).sentence.removesuffix("."))
    try:
        checked = RuleSettings(**rules).model_dump()
    except ValidationError as error:
        problem = error.errors()[0]
        raise ValueError(f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}") from error
    return {name: checked[name] for name in rules}


class Evaluation(BaseModel):
    """One benchmark's part of a run."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    benchmark: str
    task: Listed
    benchmark_arg: dict[str, Any] = Field(default_factory=dict)
    name: str = ""
    protocol: SavedProtocol | None = None
    seed: int | None = Field(default=None, ge=0, le=MAX_SEED)
    rules: dict[str, Any] = Field(default_factory=dict)

    @field_validator("name")
    @classmethod
    def _a_name(cls, name: str) -> str:
        if not re.fullmatch(r"([A-Za-z0-9][A-Za-z0-9_.-]*)?", name):
            raise ValueError("must be of letters, digits, '.', '-' and '_'")
        return name

    @field_validator("rules")
    @classmethod
    def _rules_that_move(cls, rules: dict[str, Any]) -> dict[str, Any]:
        return checked_rules(rules)

    @property
    def label(self) -> str:
        """What this part is called in the run, where others say `benchmark`: its own name, else the benchmark's."""
        return self.name or self.benchmark.replace(":", ".")


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
    protocol: SavedProtocol | None = Field(
        None,
        description="whose rules are played by: a name, or a YAML file of your own; see: sparring ls protocols; "
        "without it ours, with whatever else is set",
    )
    protocols: Listed | None = Field(
        None, description="several protocols, comma-separated: the same policy by the rules of each, in one table"
    )
    episodes: int = Field(10, ge=1, description="episodes per task")
    policy_seeds: int = Field(
        1,
        ge=1,
        le=1000,
        description="how often each episode is played, each time with another seed of the policy, for policies that "
        "sample; intervals and comparisons know that these are not episodes of their own",
    )
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
        description="stop when so many attempts ended in the same error, and none without one; 0: go on in any case",
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
        seeds = {str(Hint("seed")): self.seed}
        seeds |= {f"the seed of {part.label}": part.seed for part in self.evaluations if part.seed is not None}
        for whose, seed in seeds.items():
            if seed + self.episodes - 1 > MAX_SEED:
                raise ValueError(
                    f"{whose} is too large: the last episode's seed, {seed + self.episodes - 1}, is above "
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
        return [
            Evaluation(
                benchmark=self.benchmark, task=self.task, benchmark_arg=self.benchmark_arg, protocol=self.protocol
            )
        ]

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

    def rules_of(self, part: Evaluation) -> EpisodeRules:
        """Returns the rules that episodes of a part are played by."""
        return EpisodeRules(**{**self.own.model_dump(), **part.rules})

    def seed_of(self, part: Evaluation) -> int:
        """Returns the seed of the first episode of each task of a part."""
        return self.seed if part.seed is None else part.seed

    @property
    def retry_rules(self) -> RetryRules:
        """When an episode is tried again."""
        return RetryRules(retries=self.retries, retries_of=self.retries_of)

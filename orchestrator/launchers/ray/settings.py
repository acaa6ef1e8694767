"""The settings of the Ray launcher: where the cluster is, and what is asked of it for each worker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from sparring.orchestrator.launchers.cluster import ClusterSettings
from sparring.orchestrator.machine.memory import parse_memory
from sparring.protos.advice import Hint
from sparring.protos.errors import UsageError, unknown


class RaySettings(ClusterSettings):
    """Flags that `--launcher ray` adds."""

    ray_address: str = Field(
        "auto",
        description="the Ray cluster to start workers on, HOST:PORT; auto: RAY_ADDRESS, or the one on this machine",
    )
    ray: dict[str, Any] = Field(
        default_factory=dict,
        description="what is asked of Ray for each worker, KEY=VALUE, or BENCHMARK.KEY=VALUE for those of one "
        "benchmark; may be repeated; keys: cpus, gpus, memory, resources, scheduling, placement, placement_group, "
        "namespace, autoscale, python, runtime_env",
    )


class RayRequest(BaseModel):
    """What is asked of Ray for a worker, in Ray's own words where it has some.

    Attributes:
        cpus: None: one for each slot.
        gpus: Or a part of one.
        memory: Bytes; None: Ray counts none.
        resources: Of the cluster's own kinds.
        scheduling: Ray's scheduling strategy of an actor.
        placement: Strategy of a placement group that is made for all workers of the run: all of them, or none.
        placement_group: The name of one that is there already.
        namespace: Of the actors' names, and of that placement group's.
        autoscale: Whether nodes that are not there may come.
        python: The Python on the nodes that has sparring and the benchmark; None: the actor's own, or the one that
            `sparring env create` has made there.
        runtime_env: Ray's runtime environment: pip, conda, py_executable, working_dir, env_vars, image_uri, …
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    cpus: float | None = Field(None, ge=0)
    gpus: float = Field(0, ge=0)
    memory: int | None = None
    resources: dict[str, float] = Field(default_factory=dict)
    scheduling: Literal["DEFAULT", "SPREAD"] = "DEFAULT"
    placement: Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"] | None = None
    placement_group: str | None = None
    namespace: str | None = None
    autoscale: bool = False
    python: str | None = None
    runtime_env: dict[str, Any] = Field(default_factory=dict)

    @field_validator("memory", mode="before")
    @classmethod
    def _an_amount(cls, memory: Any) -> Any:
        return parse_memory(memory) if isinstance(memory, str) else memory

    def bundle(self, slots: int) -> dict[str, float]:
        """Returns what a worker with so many slots takes of a node, as Ray counts it."""
        counted = {"CPU": slots if self.cpus is None else self.cpus, "GPU": self.gpus, "memory": self.memory or 0}
        return {name: float(amount) for name, amount in {**counted, **self.resources}.items() if amount}

    def actor_options(self, slots: int) -> dict[str, Any]:
        """Returns the same as options of an actor."""
        options: dict[str, Any] = {
            "num_cpus": slots if self.cpus is None else self.cpus,
            "num_gpus": self.gpus,
            "resources": self.resources or None,
            "runtime_env": self.runtime_env or None,
            "namespace": self.namespace,
            "memory": self.memory,
        }
        return {name: value for name, value in options.items() if value is not None}


_OF_THE_RUN: Final = ("placement", "placement_group", "namespace", "autoscale")
"""What cannot be another for one of its benchmarks."""


def request_for(own: RaySettings, label: str, labels: Iterable[str]) -> RayRequest:
    """Returns what is asked for the workers of one part of a run.

    Args:
        own: The launcher's settings.
        label: Of the part.
        labels: Of all parts.

    Raises:
        UsageError: If a key or its value is none that Ray knows.
    """
    known, parts = RayRequest.model_fields, set(labels)
    common: dict[str, Any] = {}
    special: dict[str, Any] = {}
    for key, value in own.ray.items():
        whose, _, name = key.rpartition(".")
        if whose and whose not in parts:
            raise UsageError(f"{_hint(key, value)} is about {whose!r}, which is not part of this run.")
        if name not in known:
            raise unknown(f"key of {Hint('ray')}:", name, known)
        if whose and name in _OF_THE_RUN:
            raise UsageError(f"{_hint(key, value)}: {name} is the same for all of a run: leave out {whose!r}.")
        if whose in ("", label):
            (special if whose else common)[name] = value
    try:
        request = RayRequest(**common | special)
    except ValidationError as error:
        raise UsageError(" ".join(_sentence(problem) for problem in error.errors())) from error
    if request.placement and request.placement_group:
        raise UsageError(
            f"{Hint('ray', 'placement')} makes a placement group, and {Hint('ray', 'placement_group')} names one: "
            "give one of them."
        )
    return request


def _hint(key: str, value: Any) -> Hint:
    return Hint("ray", key, str(value))


def _sentence(problem: Mapping[str, Any]) -> str:
    said = str(problem["msg"]).removeprefix("Value error, ")
    return f"{Hint('ray', str(problem['loc'][0]))}: {said[0].lower()}{said[1:]}, not {problem['input']!r}."

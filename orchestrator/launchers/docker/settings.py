"""The docker launcher's own settings."""

from __future__ import annotations

import re
from typing import Final, Literal

from pydantic import Field, field_validator

from sparring.orchestrator.launchers.base import LauncherSettings

_LEAST_MEMORY: Final = 16 * 2**20


class DockerSettings(LauncherSettings):
    """What workers in containers are made from, and what they may use."""

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

    @field_validator("worker_memory")
    @classmethod
    def _an_amount(cls, memory: str) -> str:
        parse_memory(memory)
        return memory


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

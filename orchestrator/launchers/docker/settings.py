"""The docker launcher's own settings."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from sparring.orchestrator.launchers.base import LauncherSettings
from sparring.orchestrator.machine.memory import parse_memory


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

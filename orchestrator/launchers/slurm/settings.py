"""The slurm launcher's own settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field, field_validator

from sparring.orchestrator.launchers.base import LauncherSettings
from sparring.orchestrator.launchers.cluster import ClusterSettings
from sparring.orchestrator.launchers.slurm.batch_options import read_batch_options
from sparring.orchestrator.settings.group import Listed

_OURS: Final[Mapping[str, str]] = {
    "array": "workers",
    "ntasks": "workers",
    "nodes": "workers",
    "error": "slurm_folder",
    "output": "slurm_folder",
}
"""Options of sbatch that are not the user's to give, and the setting that says the same."""
_OURS_OF_SERVERS: Final[Mapping[str, str]] = {
    "array": "serve_replicas",
    "ntasks": "serve_replicas",
    "nodes": "serve_replicas",
    "error": "serve_folder",
    "output": "serve_folder",
    "requeue": "serve_on",
    "no-requeue": "serve_on",
}
"""The same for jobs of policy servers."""


class SlurmSettings(ClusterSettings):
    """What jobs ask Slurm for."""

    slurm: dict[str, str] = Field(
        default_factory=dict,
        description="an option of sbatch for the workers' jobs, KEY=VALUE, such as partition=gpu, account=lab, "
        "time=4:00:00, mem-per-cpu=4G; true for one without a value; may be repeated",
    )
    slurm_by: Literal["auto", "sbatch", "srun"] = Field(
        "auto",
        description="workers are jobs of their own (sbatch) or steps of the allocation that this runs in (srun); "
        "auto: steps inside an allocation",
    )
    slurm_folder: Path | None = Field(
        None,
        description="folder on storage that all nodes share, for the secret and the logs of workers; default: that of "
        "the results",
    )

    container: Listed = Field(
        "",
        description="image that workers are started in, KIND:IMAGE, by apptainer, pyxis or charliecloud: "
        "apptainer:metaworld.sif; for several benchmarks BENCHMARK=KIND:IMAGE, comma-separated; default: none, a "
        "Python that all nodes see",
    )
    container_python: str = Field("python", description="the Python in --container that has sparring and the benchmark")

    @field_validator("slurm", mode="before")
    @classmethod
    def _options(cls, given: Any) -> Any:
        return read_batch_options(given, _OURS)


class SlurmHostingSettings(LauncherSettings):
    """What the jobs of policy servers ask Slurm for."""

    serve_slurm: dict[str, str] = Field(
        default_factory=dict,
        description="an option of sbatch for the policy server's job (--serve-on slurm), KEY=VALUE, such as "
        "gres=gpu:1, partition=gpu, time=8:00:00; true for one without a value; may be repeated",
    )

    @field_validator("serve_slurm", mode="before")
    @classmethod
    def _options(cls, given: Any) -> Any:
        return read_batch_options(given, _OURS_OF_SERVERS)

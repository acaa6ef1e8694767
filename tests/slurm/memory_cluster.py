"""A Slurm that holds jobs to the memory that they ask for, as that of the other tests does not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from private_cluster import private_folder, running_slurm

SETTINGS: Final = """\
ClusterName=memory
TaskPlugin=task/cgroup
AccountingStorageType=accounting_storage/none
"""
CGROUPS: Final = "CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\nConstrainRAMSpace=yes\n"


@contextmanager
def memory_cluster() -> Iterator[Path]:
    """Yields the configuration of one, for SLURM_CONF."""
    with private_folder(SETTINGS) as folder:
        (folder / "cgroup.conf").write_text(CGROUPS)
        with running_slurm(folder):
            yield folder / "slurm.conf"

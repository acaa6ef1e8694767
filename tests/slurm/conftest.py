"""A real Slurm of three nodes on this machine."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

sys.path.append(str(Path(__file__).parent))  # for the helpers beside this file, whatever pytest's import mode

from requirements import slurm_folder
from slurm_cluster import Cluster
from support import orphans

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            for mark in (pytest.mark.everything, pytest.mark.processes, pytest.mark.requires("slurm")):
                item.add_marker(mark)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    found = Cluster(slurm_folder())
    found.repair()
    yield found
    found.repair()


@pytest.fixture
def user_folder() -> Iterator[Path]:
    """A folder of the cluster's ordinary user: what pytest makes is for its own user alone."""
    folder = Path(tempfile.mkdtemp())
    shutil.chown(folder, "tester", "tester")
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def expect_nothing_left(cluster: Cluster, tmp_path: Path) -> Callable[[str], None]:
    """Checks that a run has left no job, no secret and no process."""

    def check(name: str) -> None:
        assert cluster.jobs(name) == {}
        assert not (tmp_path / name / "slurm").exists()
        assert orphans(tmp_path) == []
        guards = [p for p in psutil.process_iter(["cmdline"]) if f"-{name}-" in " ".join(p.info["cmdline"] or [])]
        assert guards == []

    return check

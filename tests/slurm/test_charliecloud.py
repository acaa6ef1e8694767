"""Workers in images without Docker, on a real Slurm: by Charliecloud, which Debian has."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from image_folder import MARK, make_image
from slurm_cluster import Cluster
from support import Sparring, Undisturbed, orphans, read_csv

PLAN = ("run", "--benchmark", "toy", "--task", "good", "--policy", "toy_policies:Wanderer", "--episodes", "3")
SLURM = ("--launcher", "slurm", "--workers", "2", "--slots-per-worker", "1", "--slurm", "mem=100M")

pytestmark = pytest.mark.requires("charliecloud")


def test_the_same_rows_from_an_image_as_jobs_and_as_steps(
    cluster: Cluster, sparring: Sparring, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    expected = undisturbed(*PLAN)
    image = make_image(tmp_path / "image")
    given = (*PLAN, *SLURM, "--container", f"charliecloud:{image}")
    done = sparring(*given, "--output", "jobs")
    assert done.returncode == 0, done.stderr
    assert read_csv(tmp_path / "jobs") == expected
    assert not (tmp_path / "jobs" / "slurm").exists()

    allocation = ("salloc", "--quiet", "--ntasks=4", "--job-name=test-image", "--time=5")
    command = (*allocation, sys.executable, "-m", "sparring", *given, "--output", "steps")
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert read_csv(tmp_path / "steps") == expected
    assert orphans(tmp_path) == []

    for name in ("jobs", "steps"):
        logs = [path.read_text() for path in (tmp_path / name / "logs").glob("worker-*.log")]
        assert logs
        assert all(MARK in log for log in logs), "it was none of this machine's"

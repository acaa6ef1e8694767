"""`sparring submit`: the orchestrator itself is a job, which is started again until its plan is done."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from slurm_cluster import Cluster
from support import Undisturbed, read_csv, recorded, wait_for

PLAN = ("run", "--benchmark", "toy", "--task", "good", "--policy", "toy_policies:Wanderer", "--episodes", "6")
SLOW = (*PLAN, "--benchmark-arg", "step_seconds=0.1", "--slots", "1")


def submit(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command; the fixture for it wants nothing to be at work when it has ended."""
    command = [sys.executable, "-m", "sparring", "submit", *arguments]
    return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def submitted(cluster: Cluster) -> list[str]:
    """Jobs that a test has submitted; what is left of them is cancelled before the next cluster."""
    numbers: list[str] = []
    yield numbers  # type: ignore[misc]
    for number in numbers:
        cluster.do("scancel", number)


def test_a_job_that_comes_to_its_limit_goes_on_in_the_next_one(
    cluster: Cluster, undisturbed: Undisturbed, submitted: list[str], tmp_path: Path
) -> None:
    expected = undisturbed(*PLAN)
    done = submit(tmp_path, "--slurm", "time=10", "--slurm", "mem=100M", *SLOW, "--output", "sub")
    assert done.returncode == 0, done.stderr
    number = re.findall(r"submitted job (\d+)", done.stdout)[0]
    submitted.append(number)
    wait_for(lambda: recorded(tmp_path / "sub") >= 1, seconds=60)

    # What Slurm sends before the limit; the limit itself is looked at every half minute only.
    cluster.do("scancel", "--signal=USR1", "--batch", number)
    wait_for(lambda: "Restarts=1" in cluster.do("scontrol", "show", "job", number), seconds=60)
    assert recorded(tmp_path / "sub") < 6
    wait_for(lambda: "JobState=COMPLETED" in cluster.do("scontrol", "show", "job", number), seconds=120)

    assert read_csv(tmp_path / "sub") == expected
    log = (tmp_path / f"sub-{number}.log").read_text()
    assert log.count("the time limit is near: this job is started again") == 1


def test_a_run_that_loses_its_node_goes_on_elsewhere_with_workers_that_are_jobs(
    cluster: Cluster, undisturbed: Undisturbed, submitted: list[str], tmp_path: Path
) -> None:
    expected = undisturbed(*PLAN)
    workers = ("--launcher", "slurm", "--workers", "2", "--slots-per-worker", "1")
    slow = (*PLAN, "--benchmark-arg", "step_seconds=0.1", *workers, "--slurm", "mem=100M")
    done = submit(tmp_path, "--slurm", "mem=100M", *slow, "--output", "lost")
    number = re.findall(r"submitted job (\d+)", done.stdout)[0]
    submitted.append(number)
    wait_for(lambda: recorded(tmp_path / "lost") >= 1)
    cluster.kill(cluster.do("squeue", "--noheader", f"--jobs={number}", "--format=%N").strip())
    cluster.repair()
    wait_for(lambda: "JobState=COMPLETED" in cluster.do("scontrol", "show", "job", number), seconds=150)
    assert "Restarts=1" in cluster.do("scontrol", "show", "job", number)
    assert read_csv(tmp_path / "lost") == expected
    assert cluster.jobs("lost") == {}
    assert not (tmp_path / "lost" / "slurm").exists(), "what the first one had left is gone as well"


def test_workers_are_steps_of_a_job_that_has_room_for_them(
    cluster: Cluster, undisturbed: Undisturbed, submitted: list[str], tmp_path: Path
) -> None:
    expected = undisturbed(*PLAN)
    workers = ("--launcher", "slurm", "--workers", "2", "--slots-per-worker", "1", "--slurm", "mem=100M")
    room = ("--slurm", "nodes=2", "--slurm", "ntasks-per-node=1", "--slurm", "mem=200M")
    done = submit(tmp_path, *room, *PLAN, *workers, "--output", "room")
    number = re.findall(r"submitted job (\d+)", done.stdout)[0]
    submitted.append(number)
    wait_for(lambda: "JobState=COMPLETED" in cluster.do("scontrol", "show", "job", number), seconds=120)
    assert read_csv(tmp_path / "room") == expected
    logs = "".join(path.read_text() for path in (tmp_path / "room" / "logs").glob("worker-*.log"))
    assert set(re.findall(r"step of worker (toy-\d)-0 begins on n\d", logs)) == {"toy-0", "toy-1"}


def test_a_job_that_is_cancelled_is_not_started_again(cluster: Cluster, submitted: list[str], tmp_path: Path) -> None:
    done = submit(tmp_path, "--slurm", "mem=100M", *SLOW, "--output", "gone")
    number = re.findall(r"submitted job (\d+)", done.stdout)[0]
    submitted.append(number)
    wait_for(lambda: recorded(tmp_path / "gone") >= 1, seconds=60)
    cluster.do("scancel", number)
    wait_for(lambda: "JobState=CANCELLED" in cluster.do("scontrol", "show", "job", number), seconds=60)
    assert "Restarts=0" in cluster.do("scontrol", "show", "job", number)


def test_a_partition_that_is_not_there_is_told_in_slurms_words(cluster: Cluster, tmp_path: Path) -> None:
    done = submit(tmp_path, "--slurm", "partition=nowhere", *PLAN, "--output", "sub")
    assert done.returncode != 0
    assert "invalid partition" in done.stderr.lower()

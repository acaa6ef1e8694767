"""More that happens on a real Slurm: preemption, a controller that is away, workers and steps that somebody kills."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from slurm_cluster import PLAN, SLOW, Cluster, ended
from support import StartSparring, Undisturbed, orphans, processes_of, read_csv, recorded, wait_for

ONE = ("--launcher", "slurm", "--slurm", "mem=100M", "--workers", "1", "--slots-per-worker", "1")


@pytest.fixture
def preempting(cluster: Cluster) -> Iterator[Callable[[str], None]]:
    """Has somebody else take a node for some seconds, whose jobs go before those of runs."""
    cluster.do("scontrol", "update", "partitionname=short", "prioritytier=10")

    def take(node: str) -> None:
        cluster.do("sbatch", "--partition=short", "--exclusive", f"--nodelist={node}", "--output=/dev/null", *SLEEP)

    yield take
    cluster.do("scancel", "--name=test-preempting")
    cluster.do("scontrol", "update", "partitionname=short", "prioritytier=1")


SLEEP = ("--job-name=test-preempting", "--wrap=sleep 3")


def test_jobs_that_are_preempted(
    cluster: Cluster,
    preempting: Callable[[str], None],
    start_sparring: StartSparring,
    undisturbed: Undisturbed,
    expect_nothing_left: Callable[[str], None],
    tmp_path: Path,
) -> None:
    """Two runs at once: Slurm puts the job of one back in its queue, and ends that of the other."""
    expected = undisturbed(*PLAN)
    back = start_sparring(*SLOW, *ONE, "--slurm", "nodelist=n1", "--output", "put-back")
    over = start_sparring(
        *SLOW, *ONE, "--slurm", "nodelist=n2", "--slurm", "no-requeue=true", "--output", "ended-early"
    )
    wait_for(lambda: recorded(tmp_path / "put-back") >= 1 and recorded(tmp_path / "ended-early") >= 1)
    preempting("n1")
    preempting("n2")
    said = ended(over)
    assert read_csv(tmp_path / "ended-early") == expected
    assert re.search(r"job \S+ was preempted on n2 after \S+ \(PREEMPTED.*\); another is submitted", said), said
    said = ended(back)
    assert read_csv(tmp_path / "put-back") == expected
    assert re.search(r"Slurm has put its job \S+ back in the queue \(restart 1\)", said), said
    expect_nothing_left("ended-early")
    expect_nothing_left("put-back")


BROKEN_NODE = """
import os, sys
if os.environ.get("SLURMD_NODENAME") == "n2" and os.path.exists({mark!r}):
    sys.stderr.write("error: this node sees nothing\\n")
    os._exit(2)
"""


def test_a_node_that_breaks_every_worker_costs_its_place_and_not_the_run(
    cluster: Cluster,
    start_sparring: StartSparring,
    undisturbed: Undisturbed,
    expect_nothing_left: Callable[[str], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As one whose storage is not mounted any more: nothing else has its place, so each replacement comes there."""
    longer = ("--episodes", "14")
    expected = undisturbed(*PLAN, *longer)
    mark = tmp_path / "broken"
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(BROKEN_NODE.format(mark=str(mark)))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'site'}:{os.environ.get('PYTHONPATH', '')}")
    three = ("--workers", "3", "--slurm", "exclusive=true", "--max-restarts", "1")
    run = start_sparring(*SLOW, *longer, *ONE, *three, "--output", "broken-node")
    jobs = cluster.running("broken-node", 3)
    wait_for(lambda: recorded(tmp_path / "broken-node") >= 3)
    mark.touch()
    cluster.do("scancel", next(job for job, node in jobs.items() if node == "n2"))
    said = ended(run)
    assert re.search(r"job \S+ failed on n2 .*exit code 2.*Its log ends with: this node sees nothing", said), said
    assert re.search(r"job \S+ failed on n2 .*; it is not replaced, because nothing came of its last 2", said), said
    assert read_csv(tmp_path / "broken-node") == expected
    expect_nothing_left("broken-node")


def test_a_job_that_its_node_cannot_start_is_replaced(
    cluster: Cluster,
    start_sparring: StartSparring,
    undisturbed: Undisturbed,
    expect_nothing_left: Callable[[str], None],
    tmp_path: Path,
) -> None:
    """Slurm puts it back in its queue and holds it there, until somebody releases it."""
    expected = undisturbed(*PLAN)
    with cluster.unable_to_start("n1", 3):  # a question whether such jobs would be taken has a number, too
        three = ("--workers", "2", "--slurm", "exclusive=true", "--slurm", "nodelist=n1")
        run = start_sparring(*SLOW, *ONE, *three, "--output", "held")
        said = ended(run)
    assert re.search(r"job \S+ was cancelled \(CANCELLED, launch failed requeued held\); another is submitted", said), (
        said
    )
    assert read_csv(tmp_path / "held") == expected
    expect_nothing_left("held")


def test_a_controller_that_is_away_and_a_worker_that_is_killed(
    cluster: Cluster, undisturbed: Undisturbed, expect_nothing_left: Callable[[str], None], tmp_path: Path
) -> None:
    longer = ("--episodes", "14")
    expected = undisturbed(*PLAN, *longer)
    folder, log = tmp_path / "away", tmp_path / "away.log"
    command = (sys.executable, "-m", "sparring", *SLOW, *longer, *ONE, "--workers", "2", "--output", "away")
    with log.open("w") as file, subprocess.Popen(command, cwd=tmp_path, stderr=file) as run:
        try:
            cluster.running("away", 2)
            wait_for(lambda: recorded(folder) >= 1)
            cluster.kill_controller()
            wait_for(lambda: "Slurm does not answer; the run goes on with the workers" in log.read_text())
            done = recorded(folder)
            wait_for(lambda: recorded(folder) > done)
            worker, job = worker_of_a_job(tmp_path)
            worker.kill()
            cluster.repair()
            run.wait(timeout=150)
        finally:
            run.kill()
    said = log.read_text()
    assert run.returncode == 0, said
    assert read_csv(folder) == expected
    assert "Slurm answers again" in said
    assert re.search(rf"job {job} failed on n\d .*signal 9", said), said
    expect_nothing_left("away")


def worker_of_a_job(folder: Path) -> tuple[psutil.Process, str]:
    """A worker that runs, and its job."""
    for process in processes_of(folder):
        for word in process.cmdline():
            if word.startswith("--name=toy-"):
                return process, word.removeprefix("--name=toy-")
    raise AssertionError("no worker runs")


KILLED_AND_RESUMED = """
sh -c 'echo $$ > pid; exec "$@"' sh "$@"
until [ -e go ]; do sleep 0.2; done
exec "$1" -m sparring resume steps
"""


def test_the_orchestrator_of_steps_is_killed_and_resumed_in_the_same_allocation(
    cluster: Cluster, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    expected = undisturbed(*PLAN)
    folder = tmp_path / "steps"
    command = (sys.executable, "-m", "sparring", *SLOW, *ONE, "--workers", "2", "--output", "steps")
    salloc = ("salloc", "--quiet", "--nodes=2", "--ntasks=2", "--job-name=test-steps", "--time=5")
    allocation = subprocess.Popen(
        [*salloc, "sh", "-c", KILLED_AND_RESUMED, "sh", *command], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    try:
        wait_for(lambda: recorded(folder) >= 1)
        job = cluster.do("squeue", "--noheader", "--name=test-steps", "--format=%i").strip()
        token = next((folder / "slurm").glob("*.token")).read_text().strip()
        told = cluster.do("scontrol", "show", "step", job)
        assert "Name=sparring-toy-0-0" in told, "it shows what it is"
        shown = str([one.info for one in psutil.process_iter(["cmdline", "environ"])])
        assert token not in told + shown
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
        steps = ("squeue", "--steps", "--noheader", f"--jobs={job}", "--format=%j")
        wait_for(lambda: "sparring-" not in cluster.do(*steps))
        assert recorded(folder) < len(expected)
        (tmp_path / "go").touch()
        _, said = allocation.communicate(timeout=150)
    finally:
        cluster.do("scancel", "--name=test-steps")
    assert allocation.returncode == 0, said
    assert read_csv(folder) == expected
    assert not (folder / "slurm").exists(), "what the killed one had left is gone as well"
    assert orphans(tmp_path) == []

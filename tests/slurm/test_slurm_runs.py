"""Runs on a real Slurm: the same rows as on one machine, whatever happens to jobs, nodes and orchestrators."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from slurm_cluster import PLAN, SLOW, Cluster, ended
from support import ROOT, Sparring, StartSparring, Undisturbed, children_with, orphans, read_csv, recorded, wait_for

SLURM = ("--launcher", "slurm", "--workers", "3", "--slots-per-worker", "1", "--slurm", "mem=100M")


def lines_with(said: str, *words: str) -> list[str]:
    return [line for line in said.splitlines() if all(word in line for word in words)]


def test_the_same_rows_as_on_one_machine_and_the_secret_is_nowhere(
    cluster: Cluster,
    start_sparring: StartSparring,
    undisturbed: Undisturbed,
    expect_nothing_left: Callable[[str], None],
    tmp_path: Path,
) -> None:
    expected = undisturbed(*PLAN)
    run = start_sparring(*SLOW, *SLURM, "--output", "same")
    jobs = cluster.running("same", 3)
    (file,) = (tmp_path / "same" / "slurm").glob("*.token")
    assert file.stat().st_mode & 0o777 == 0o600
    token = file.read_text().strip()
    wait_for(lambda: recorded(tmp_path / "same") >= 1)
    for job in jobs:
        shown = cluster.do("scontrol", "--details", "show", "job", job)
        assert "sparring-toy-same-" in shown
        assert token not in shown
    script = cluster.do("scontrol", "write", "batch_script", next(iter(jobs)).partition("_")[0], "-")
    assert "--join-token-file=" in script
    assert token not in script
    shown_by = [p.info["pid"] for p in psutil.process_iter(["pid", "cmdline", "environ"]) if token in str(p.info)]
    assert shown_by == []
    said = ended(run)
    assert read_csv(tmp_path / "same") == expected
    assert token not in said
    assert [p for p in (tmp_path / "same").rglob("*") if p.is_file() and token.encode() in p.read_bytes()] == []
    expect_nothing_left("same")


def _cancel(cluster: Cluster, job: str, node: str) -> None:
    cluster.do("scancel", job)


def _requeue(cluster: Cluster, job: str, node: str) -> None:
    cluster.do("scontrol", "requeue", job)


def _kill_node(cluster: Cluster, job: str, node: str) -> None:
    cluster.kill(node)


Harm = Callable[[Cluster, str, str], None]
CANCELLED = r"job (\S+) was cancelled on n\d after \S+ \(CANCELLED\); another is submitted"
REQUEUED = r"Slurm has put its job (\S+) back in the queue \(restart 1\)"


@pytest.mark.parametrize(
    "harms",
    [[(_cancel, CANCELLED), (_requeue, REQUEUED)], [(_kill_node, REQUEUED)]],
    ids=["cancelled-and-requeued", "node-killed"],
)
def test_jobs_that_end_in_the_middle(
    harms: list[tuple[Harm, str]],
    cluster: Cluster,
    start_sparring: StartSparring,
    undisturbed: Undisturbed,
    expect_nothing_left: Callable[[str], None],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    name = request.node.callspec.id
    plan = (*SLOW, "--episodes", "10")
    expected = undisturbed(*PLAN, "--episodes", "10")
    run = start_sparring(*plan, *SLURM, "--output", name)
    jobs = cluster.running(name, 3)
    wait_for(lambda: recorded(tmp_path / name) >= 3)
    harmed = list(zip(jobs.items(), harms, strict=False))
    for (job, node), (harm, _) in harmed:
        harm(cluster, job, node)
    said = ended(run)
    assert read_csv(tmp_path / name) == expected
    for (job, _), (_, told) in harmed:
        assert job in {found[1] for found in re.finditer(told, said)}, said
    expect_nothing_left(name)


def test_time_limits_and_a_node_that_is_cut_off(
    cluster: Cluster,
    start_sparring: StartSparring,
    undisturbed: Undisturbed,
    expect_nothing_left: Callable[[str], None],
    tmp_path: Path,
) -> None:
    """Three runs at once, because Slurm takes its time for each: limits with and without a signal before them."""
    plan = (*SLOW, "--episodes", "14")  # a minute
    expected = undisturbed(*PLAN, "--episodes", "14")
    longer = ("--episodes", "24")  # a limit may be enforced half a minute late
    (tmp_path / "undisturbed").rename(tmp_path / "before")
    expected_longer = undisturbed(*PLAN, *longer)
    one = (*SLURM, "--workers", "1", "--slurm")
    limited = start_sparring(
        *plan, *one, "partition=short", "--slurm", "time=1", "--slurm", "nodelist=n1", "--output", "limited"
    )
    overdue = start_sparring(
        *(*plan, *longer, *one, "time=1", "--slurm", "nodelist=n1", "--slurm", "signal=B:CONT@1", "--output", "overdue")
    )
    dropped = start_sparring(*plan, *one, "exclude=n1", "--output", "dropped")
    (node,) = cluster.running("dropped", 1).values()
    wait_for(lambda: recorded(tmp_path / "dropped") >= 1)
    cluster.drop(node)
    said = ended(dropped, 240)
    assert read_csv(tmp_path / "dropped") == expected
    assert re.search(r"worker toy-\S+-r1 joined", said), f"the job ran twice, here and there: {said}"
    said = ended(limited, 240)
    assert read_csv(tmp_path / "limited") == expected
    assert lines_with(said, "another is submitted"), said
    logs = "".join(path.read_text() for path in (tmp_path / "limited" / "logs").glob("worker-*.log"))
    assert "leaving, as told" in logs
    said = ended(overdue, 240)
    assert read_csv(tmp_path / "overdue") == expected_longer
    assert re.search(r"job \S+ reached its time limit on n1 after \S+ \(TIMEOUT.*\); another is submitted", said), said
    cluster.repair()
    expect_nothing_left("overdue")
    expect_nothing_left("limited")
    expect_nothing_left("dropped")


def test_an_orchestrator_that_is_killed_leaves_no_job_and_is_resumed(
    cluster: Cluster,
    start_sparring: StartSparring,
    sparring: Sparring,
    undisturbed: Undisturbed,
    expect_nothing_left: Callable[[str], None],
    tmp_path: Path,
) -> None:
    expected = undisturbed(*PLAN)
    run = start_sparring(*SLOW, *SLURM, "--output", "killed")
    cluster.running("killed", 3)
    wait_for(lambda: recorded(tmp_path / "killed") >= 2)
    run.kill()
    run.wait()
    wait_for(lambda: cluster.jobs("killed") == {}, seconds=60)
    assert recorded(tmp_path / "killed") < len(expected)
    done = sparring("resume", "killed", timeout=150)
    assert done.returncode == 0, done.stderr
    assert read_csv(tmp_path / "killed") == expected
    wait_for(lambda: orphans(tmp_path) == [])


def test_jobs_of_a_killed_run_that_nobody_cancelled_are_found_by_clean(
    cluster: Cluster, start_sparring: StartSparring, tmp_path: Path
) -> None:
    # More than the cluster has room for: some wait, and would for as long as others have it.
    run = start_sparring(*SLOW, *SLURM, "--workers", "8", "--output", "left")
    cluster.running("left", 6)
    guards = children_with("sparring-slurm-guard", run.pid)
    for process in [*guards, psutil.Process(run.pid)]:
        process.kill()
    assert len(guards) == 1
    run.wait()
    assert cluster.jobs("left", "PENDING") != {}
    clean = [sys.executable, "-m", "sparring", "clean"]
    told = subprocess.run([*clean, "--dry-run"], capture_output=True, text=True, timeout=60, check=False).stdout
    assert lines_with(told, "would remove job", f"of the run in {str(tmp_path / 'left')!r}")
    assert cluster.jobs("left") != {}
    told = subprocess.run(clean, capture_output=True, text=True, timeout=60, check=False).stdout
    assert lines_with(told, "removed job", f"of the run in {str(tmp_path / 'left')!r}")
    wait_for(lambda: cluster.jobs("left") == {}, seconds=30)
    wait_for(lambda: orphans(tmp_path) == [], seconds=30)


def test_what_slurm_does_not_take_ends_the_run_in_seconds_with_its_own_words(
    cluster: Cluster, sparring: Sparring, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = time.monotonic()
    done = sparring(*PLAN, *SLURM, "--slurm", "partition=nope", "--output", "out")
    assert done.returncode == 2
    assert "invalid partition specified: nope" in done.stderr
    with monkeypatch.context() as shell:
        shell.setenv("SBATCH_PARTITION", "short")  # a flag goes before it
        done = sparring(*PLAN, *SLURM, "--slurm", "partition=nope", "--output", "out")
    assert done.returncode == 2
    assert "invalid partition specified: nope" in done.stderr
    done = sparring(*PLAN, *SLURM, "--slots-per-worker", "64", "--output", "out")
    assert done.returncode == 2
    assert "Requested node configuration is not available. A job asks for one node" in done.stderr
    assert "fewer with --slots-per-worker" in done.stderr
    done = sparring(*PLAN, *SLURM, "--workers", "2000", "--output", "out")
    assert done.returncode == 2
    assert "Invalid job array specification. An array has a job for each of --workers" in done.stderr
    cluster.do("scontrol", "update", "partitionname=short", "allowaccounts=lab")
    try:
        done = sparring(*PLAN, *SLURM, "--slurm", "partition=short", "--slurm", "account=nope", "--output", "out")
    finally:
        cluster.do("scontrol", "update", "partitionname=short", "allowaccounts=ALL")
    assert done.returncode == 1
    assert "Job's account not" in done.stderr
    assert time.monotonic() - began < 60
    assert cluster.jobs("out") == {}


def test_steps_inside_an_allocation(
    cluster: Cluster, undisturbed: Undisturbed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = undisturbed(*PLAN)
    workers = ("--launcher", "slurm", "--workers", "3", "--slots-per-worker", "1")
    command = (sys.executable, "-m", "sparring", *SLOW, *workers, "--output", "steps")
    # Of an allocation with --mem a step has all memory of its node, unless it says otherwise, and the next one waits.
    allocation = ("salloc", "--quiet", "--nodes=2", "--ntasks=4", "--mem=900", "--job-name=test-steps", "--time=5")
    done = subprocess.run(
        [*allocation, *command], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert read_csv(tmp_path / "steps") == expected
    joined = set(re.findall(r"worker (toy-\d)-0 joined", done.stderr))
    assert joined == {"toy-0", "toy-1", "toy-2"}, f"all at once, two of them on one node: {done.stderr}"
    logs = "".join(path.read_text() for path in (tmp_path / "steps" / "logs").glob("worker-*.log"))
    assert re.findall(r"step of worker toy-\d-0 begins on n\d", logs)
    assert orphans(tmp_path) == []


def test_inside_a_step_that_has_all_cores_it_is_said_at_once(cluster: Cluster, tmp_path: Path) -> None:
    """As in the shell of `srun --pty bash`, in which many people work."""
    command = ("srun", "--ntasks=1", "--cpus-per-task=2", "--mem=900", "--job-name=test-steps")
    run = (sys.executable, "-m", "sparring", *PLAN, "--launcher", "slurm", "--workers", "1", "--slots-per-worker", "1")
    done = subprocess.run([*command, *run], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "there is no room for a worker, which needs 1. Begin with salloc instead" in done.stderr


def test_an_ordinary_user(cluster: Cluster, undisturbed: Undisturbed, user_folder: Path) -> None:
    expected = undisturbed(*PLAN)
    python = f"/usr/bin/python3.{sys.version_info.minor}"  # ours is in root's home
    command = ["runuser", "-u", "tester", "--", python, "-m", "sparring", *PLAN, *SLURM, "--output", "own"]
    command += ["--advertise", "localhost"]
    path = [str(ROOT / "tests" / "toy"), str(ROOT / "src"), *(p for p in sys.path if p.endswith("site-packages"))]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path), "HOME": str(user_folder)}
    done = subprocess.run(
        command, cwd=user_folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert read_csv(user_folder / "own") == expected
    assert "tls://localhost:" in done.stderr, "nodes are told the name that was given"
    assert (user_folder / "own" / "episodes.csv").owner() == "tester"
    assert cluster.jobs("own") == {}
    assert orphans(user_folder) == []


def test_it_holds_to_the_rules_of_launchers(cluster: Cluster, sparring: Sparring) -> None:
    done = sparring("check", "launcher", "slurm", "--benchmark", "toy", "--slurm", "mem=100M", timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "7 ok, 0 skipped, 0 failed" in done.stdout

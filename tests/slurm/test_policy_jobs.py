"""Policy servers as jobs of a real Slurm (`--serve-on slurm`): found, replaced where they are lost, and never left."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import psutil
from slurm_cluster import PLAN, SLOW, Cluster, ended
from support import Sparring, StartSparring, Undisturbed, children_with, orphans, read_csv, recorded, wait_for

SERVED = ("--serve-on", "slurm", "--serve-slurm", "mem=100M")
WORKERS = ("--launcher", "slurm", "--workers", "2", "--slots-per-worker", "1", "--slurm", "mem=100M")


def server_processes(folder: Path) -> list[psutil.Process]:
    """The policy servers of the run in a folder: the processes, and not the programs that keep them."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if "sparring.policy_server" in words and any(word.startswith(f"--token-file={folder}/") for word in words):
            found.append(process)
    return found


def policy_job(cluster: Cluster, name: str) -> str:
    """The job of the policy server of a run, that runs."""
    told = cluster.do("squeue", "--noheader", "--states=RUNNING", "--format=%i|%j")
    rows = [line.split("|") for line in told.splitlines()]
    return next((number for number, job in rows if job.startswith(f"sparring-policy-{name}-")), "")


def test_the_secret_is_nowhere_and_a_server_that_dies_or_is_cancelled_comes_back(
    cluster: Cluster,
    start_sparring: StartSparring,
    undisturbed: Undisturbed,
    expect_nothing_left: Callable[[str], None],
    tmp_path: Path,
) -> None:
    expected = undisturbed(*PLAN)
    folder = tmp_path / "served"
    run = start_sparring(*SLOW, *WORKERS, *SERVED, "--output", "served")
    wait_for(lambda: recorded(folder) >= 1)
    secrets = [path.read_text().strip() for path in (folder / "slurm").glob("*.token")]
    assert len(secrets) == 2, "one for workers, one for the policy"
    job = policy_job(cluster, "served")
    shown = cluster.do("scontrol", "--details", "show", "job", job)
    script = cluster.do("scontrol", "write", "batch_script", job, "-")
    assert f"--token-file={folder}" in script
    processes = str([p.info for p in psutil.process_iter(["pid", "cmdline", "environ"])])
    for secret in secrets:
        assert secret not in shown + script + processes

    (server,) = server_processes(folder)
    server.kill()
    wait_for(lambda: [p for p in server_processes(folder) if p.pid != server.pid])
    assert policy_job(cluster, "served") == job, "it was started again in the job that it had"
    done = recorded(folder)
    wait_for(lambda: recorded(folder) > done)
    cluster.do("scancel", job)
    said = ended(run)
    assert read_csv(folder) == expected
    assert re.search(rf"the policy server of job {job} was ended by SIGKILL; it is started again", said), said
    assert re.search(rf"the policy server of job {job} was cancelled on n\d .*; it is started again", said), said
    assert len(set(re.findall(r"the policy server of job (\d+) serves at tls://", said))) == 2, said
    for secret in secrets:
        assert secret not in said
        assert [p for p in folder.rglob("*") if p.is_file() and secret.encode() in p.read_bytes()] == []
    expect_nothing_left("served")


def test_replicas_of_which_one_loses_its_node(
    cluster: Cluster,
    start_sparring: StartSparring,
    undisturbed: Undisturbed,
    expect_nothing_left: Callable[[str], None],
    tmp_path: Path,
) -> None:
    """Workers are processes beside the run: who starts them has nothing to do with who hosts the policy."""
    expected = undisturbed(*PLAN)
    folder = tmp_path / "lost"
    two = ("--serve-replicas", "2", "--serve-slurm", "exclusive=true", "--slots", "2")
    run = start_sparring(*SLOW, *SERVED, *two, "--output", "lost")
    nodes = cluster.running("lost", 2)
    wait_for(lambda: recorded(folder) >= 1)
    job, node = next(iter(nodes.items()))
    cluster.kill(node)
    said = ended(run)
    assert read_csv(folder) == expected
    assert re.search(rf"the policy server of job {job} lost its node on {node} .*; it is started again", said), said
    expect_nothing_left("lost")


def test_an_orchestrator_that_is_killed_leaves_no_server_and_is_resumed(
    cluster: Cluster, start_sparring: StartSparring, sparring: Sparring, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    few = ("--episodes", "3")
    expected = undisturbed(*PLAN, *few)
    folder = tmp_path / "killed"
    run = start_sparring(*SLOW, *few, *SERVED, "--slots", "1", "--output", "killed")
    wait_for(lambda: recorded(folder) >= 1)
    run.kill()
    run.wait()
    wait_for(lambda: cluster.jobs("killed") == {}, seconds=60)
    wait_for(lambda: server_processes(folder) == [])
    assert recorded(folder) < len(expected)
    done = sparring("resume", "killed", timeout=150)
    assert done.returncode == 0, done.stderr
    assert read_csv(folder) == expected
    assert not (folder / "slurm").exists(), "what the killed one had left is gone as well"
    assert orphans(tmp_path) == []


def test_ctrl_c_ends_the_server_and_clean_cancels_what_nobody_ended(
    cluster: Cluster, start_sparring: StartSparring, sparring: Sparring, tmp_path: Path
) -> None:
    run = start_sparring(*SLOW, *SERVED, "--slots", "1", "--output", "stopped")
    wait_for(lambda: recorded(tmp_path / "stopped") >= 1)
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=60)
    assert run.returncode == 130
    assert cluster.jobs("stopped") == {}
    assert not (tmp_path / "stopped" / "slurm").exists()

    run = start_sparring(*SLOW, *SERVED, "--slots", "1", "--output", "left")
    wait_for(lambda: recorded(tmp_path / "left") >= 1)
    guards = children_with("sparring-slurm-guard", run.pid)
    for process in [*guards, psutil.Process(run.pid)]:
        process.kill()
    assert len(guards) == 1
    run.wait()
    assert cluster.jobs("left") != {}
    done = sparring("clean")
    assert "removed job" in done.stdout
    wait_for(lambda: cluster.jobs("left") == {}, seconds=30)
    wait_for(lambda: orphans(tmp_path) == [], seconds=30)


def test_what_cannot_be_served_is_told_in_seconds(cluster: Cluster, sparring: Sparring, tmp_path: Path) -> None:
    done = sparring(*PLAN, *SERVED, "--serve-slurm", "partition=nope", "--output", "out")
    assert done.returncode == 2
    assert "invalid partition specified: nope" in done.stderr
    done = sparring(*PLAN[:6], "toy_policies:LacksAct", *SERVED, "--output", "out", timeout=60)
    assert done.returncode == 2, done.stderr
    assert "LacksAct" in done.stderr
    assert cluster.jobs("out") == {}
    assert os.listdir(tmp_path) in ([], ["out"])

"""Slurm with accounting: what sacct says of a job that its controller has forgotten, and limits of accounts and QOS."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from accounting_cluster import accounting_cluster
from private_cluster import answer
from slurm_cluster import PLAN, SLOW, ended
from support import Sparring, StartSparring, Undisturbed, orphans, read_csv, recorded, wait_for

from sparring.orchestrator.launchers.slurm import commands

pytestmark = pytest.mark.requires("slurmdbd")

JOBS = ("--launcher", "slurm", "--workers", "2", "--slots-per-worker", "1", "--slurm", "mem=100M")


@pytest.fixture(scope="module")
def started_cluster() -> Iterator[Path]:
    with accounting_cluster() as conf:
        yield conf


@pytest.fixture
def accounted(started_cluster: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the cluster that Slurm's commands are about."""
    monkeypatch.setenv("SLURM_CONF", str(started_cluster))
    return started_cluster.parent


def test_the_end_of_a_job_that_the_controller_has_forgotten_is_told_by_sacct(
    accounted: Path, start_sparring: StartSparring, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    few = ("--episodes", "4")
    expected = undisturbed(*PLAN, *few)
    run = start_sparring(*SLOW, *few, *JOBS, "--output", "out")
    wait_for(lambda: recorded(tmp_path / "out") >= 1)
    # Not the last of its array: that one Slurm keeps for as long as there are others.
    rows = answer(accounted, "squeue", "--noheader", "--array", "--states=R", "--format=%i").split()
    (job,) = (row for row in rows if row.endswith("_0"))
    run.send_signal(signal.SIGSTOP)  # it must not see the job's end before Slurm forgets it
    try:
        answer(accounted, "scancel", job)
        wait_for(
            lambda: (
                job not in answer(accounted, "squeue", "--noheader", "--array", "--states=all", "--format=%i").split()
            )
        )
    finally:
        run.send_signal(signal.SIGCONT)
    said = ended(run)
    assert re.search(rf"job {job} was cancelled on m1 after [\d:]+ \(CANCELLED\); another is submitted", said), said
    assert read_csv(tmp_path / "out") == expected
    assert orphans(tmp_path) == []


def test_why_a_job_once_waited_is_not_told_as_why_it_ended(accounted: Path) -> None:
    submit = ("sbatch", "--parsable", "--output=/dev/null", "--mem=10", "--qos=single")
    answer(accounted, *submit, "--wrap=sleep 1")
    job = answer(accounted, *submit, "--wrap=exit 3").strip()
    reason = ("--noheader", "--jobs", job)
    wait_for(lambda: "QOSMaxJobsPerUserLimit" in answer(accounted, "squeue", *reason, "--format=%r"))
    wait_for(lambda: not answer(accounted, "scontrol", "--oneliner", "show", "job", job))
    assert "QOSMaxJobsPerUserLimit" in answer(accounted, "sacct", *reason, "--parsable2", "--format=Reason")
    assert re.fullmatch(r"failed on m1 after [\d:]+ \(FAILED, exit code 3\)", str(commands.end_of(job, "")))
    assert str(commands.end_of("77777", "")) == "is gone, and Slurm does not say why"


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("account=others", "Invalid account or account/partition combination specified"),
        ("qos=nope", "Invalid qos specification"),
        ("account=small", "AssocMaxCpuPerJobLimit"),
        ("qos=tiny", "QOSMaxCpuPerJobLimit"),
    ],
)
def test_what_accounts_do_not_allow_ends_the_run_in_seconds_with_slurms_own_words(
    asked: str, words: str, accounted: Path, sparring: Sparring
) -> None:
    began = time.monotonic()
    done = sparring(*PLAN, *JOBS, "--slots-per-worker", "2", "--slurm", asked, "--output", "out")
    assert done.returncode in (1, 2)
    assert words in done.stderr
    assert time.monotonic() - began < 60
    assert answer(accounted, "squeue", "--noheader") == ""


def test_a_qos_that_allows_one_job_of_a_user_at_once_has_the_others_wait(
    accounted: Path, sparring: Sparring, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    few = ("--episodes", "2")
    expected = undisturbed(*PLAN, *few)
    done = sparring(*SLOW, *few, *JOBS, "--slurm", "qos=single", "--output", "out")
    assert done.returncode == 0, done.stderr
    assert "1 of 2 jobs wait for their turn: QOSMaxJobsPerUserLimit" in done.stderr
    assert read_csv(tmp_path / "out") == expected
    assert answer(accounted, "squeue", "--noheader") == ""

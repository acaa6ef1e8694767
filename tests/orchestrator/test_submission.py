"""`sparring submit`: its batch script, and what it refuses before anything is submitted."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from support import Sparring

from sparring.orchestrator.launchers.slurm.submission import Submission

PLAN = ("run", "--benchmark", "toy", "--task", "good", "--policy", "zero", "--episodes", "1")


def submission(tmp_path: Path, *command: str, most: int = 3, **options: str) -> Submission:
    return Submission(
        "sparring-run-out", tmp_path / "out", tmp_path / "out-%j.log", options=options, command=command, most=most
    )


def test_the_script_says_what_it_is_and_leaves_before_the_limit(tmp_path: Path) -> None:
    text = submission(tmp_path, "sparring", "run", "--output", "a b", time="1:00:00", partition="cpu").text()
    assert text.startswith("#!/bin/bash\n")
    assert "#SBATCH --signal=B:USR1@120\n" in text
    assert "#SBATCH --requeue\n" in text
    assert "#SBATCH --open-mode=append\n" in text
    assert "#SBATCH --partition=cpu\n" in text
    assert "sparring run --output 'a b' &\n" in text


def played(
    tmp_path: Path, code: int, *, most: int = 3, restarts: str = "0", sends: bool = True, early: str = ""
) -> tuple[int, str]:
    """Runs the script with a command that stops on SIGTERM with an exit code, and a made-up scontrol; returns its end.

    It is sent a signal when the command is up; or `early`, right before it remembers which process the command is.

    A real Slurm does it in tests/slurm; here it is a question of the shell alone, on every machine.
    """
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    scontrol = bin_folder / "scontrol"
    scontrol.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\nkill -TERM $PPID\n')
    scontrol.chmod(0o755)
    command = ("bash", "-c", f"trap 'exit {code}' INT TERM; touch {tmp_path}/up; while :; do sleep 0.05; done")
    script = submission(tmp_path, *command, most=most).text()
    environment = {
        **os.environ,
        "PATH": f"{bin_folder}:{os.environ['PATH']}",
        "SLURM_JOB_ID": "42",
        "SLURM_RESTART_COUNT": restarts,
    }
    if early:  # Bash reads this file before anything else
        (tmp_path / "early").write_text(f"""trap '[ "$BASH_COMMAND" != "run=\\$!" ] || kill -{early} $$' DEBUG\n""")
        environment["BASH_ENV"] = str(tmp_path / "early")
    process = subprocess.Popen(
        ["bash", "-c", script], env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    if not early:
        deadline = time.monotonic() + 60
        while not (tmp_path / "up").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGUSR1 if sends else signal.SIGTERM)
    try:
        said, _ = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    return process.returncode, said


def asked(tmp_path: Path) -> str:
    file = tmp_path / "asked"
    return file.read_text().strip() if file.exists() else ""


@pytest.mark.processes
def test_near_the_limit_it_stops_the_run_and_asks_to_be_started_again(tmp_path: Path) -> None:
    _, said = played(tmp_path, 130)
    assert "started again" in said
    assert asked(tmp_path) == "requeue 42"


@pytest.mark.processes
@pytest.mark.parametrize(("code", "most", "sends"), [(0, 3, True), (2, 3, True), (130, 0, True), (130, 3, False)])
def test_it_does_not_if_the_run_is_done_or_wrong_or_it_was_often_enough_or_is_cancelled(
    tmp_path: Path, code: int, most: int, sends: bool
) -> None:
    ended, _ = played(tmp_path, code, most=most, sends=sends)
    assert ended == code
    assert asked(tmp_path) == ""


@pytest.mark.processes
@pytest.mark.parametrize(("early", "requeued"), [("TERM", ""), ("USR1", "requeue 42")])
def test_a_signal_that_comes_before_the_run_has_a_number_is_passed_on(
    tmp_path: Path, early: str, requeued: str
) -> None:
    played(tmp_path, 130, early=early)
    assert asked(tmp_path) == requeued


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (PLAN, "with --output"),
        (("run",), "with --output"),
        (("--slurm", "array=3", *PLAN, "--output", "out"), "array is not to be given"),
        (("--slurm", "output=o", *PLAN, "--output", "out"), "output is not to be given"),
        (("--slurm", "time", *PLAN, "--output", "out"), "is not KEY=VALUE"),
        (("serve", "--policy", "zero"), "say what to run"),
        ((*PLAN, "--output", "out", "--epsodes", "3"), "No such option"),
        ((*PLAN, "--output", "out", "--seed", "-1"), "seed"),
        ((*PLAN, "--output", "o%t"), "takes a %"),
        ((*PLAN, "--output", "out", "--view-listen", "0.0.0.0:0"), "give --view-token-file"),
        ((*PLAN, "--output", "out", "--view-token-file", "nowhere"), "cannot be read"),
        (("--dry-run", *PLAN, "--output", "out\ntouch pwned\n#"), "characters that a batch script cannot have"),
    ],
)
def test_wrong_usage_is_told_now_and_not_when_the_job_starts(
    usage: Sparring, arguments: tuple[str, ...], said: str
) -> None:
    done = usage("submit", *arguments)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr


def test_a_dry_run_prints_the_script(usage: Sparring, tmp_path: Path) -> None:
    done = usage("submit", "--dry-run", "--slurm", "time=10", *PLAN, "--output", "out")
    assert done.returncode == 0
    assert "#SBATCH --time=10\n" in done.stdout
    assert "-m sparring run --benchmark toy" in done.stdout
    assert not (tmp_path / "out").exists()


SLURM = ("--launcher", "slurm", "--workers", "2")


@pytest.mark.parametrize(
    ("options", "flags", "added"),
    [
        ((), SLURM, True),
        (("--slurm", "cpus-per-task=4"), SLURM, True),
        (("--slurm", "nodes=2", "--slurm", "ntasks-per-node=2"), SLURM, False),  # steps have their place in there
        ((), (*SLURM, "--slurm-by", "srun"), False),
        ((), ("--slots", "2"), False),
    ],
)
def test_workers_are_jobs_where_the_runs_own_job_has_no_room_for_them(
    usage: Sparring, options: tuple[str, ...], flags: tuple[str, ...], added: bool
) -> None:
    done = usage("submit", "--dry-run", *options, *PLAN, *flags, "--output", "out")
    assert done.returncode == 0, done.stderr
    assert ("--slurm-by=sbatch" in done.stdout) == added
    assert ("#SBATCH --ntasks=1\n" in done.stdout) == ("nodes=2" not in options)


@pytest.mark.parametrize(
    ("options", "flags", "cores"),
    [
        ((), ("--slots", "6"), "6"),
        (("--slurm", "cpus-per-task=2"), ("--slots", "6"), "2"),
        (("--slurm", "exclusive=true"), ("--slots", "6"), ""),
        ((), (), ""),
        ((), (*SLURM, "--slots-per-worker", "6"), ""),
    ],
)
def test_the_job_has_a_core_for_each_slot_that_plays_in_it(
    usage: Sparring, options: tuple[str, ...], flags: tuple[str, ...], cores: str
) -> None:
    done = usage("submit", "--dry-run", *options, *PLAN, *flags, "--output", "out")
    assert done.returncode == 0, done.stderr
    assert re.findall(r"#SBATCH --cpus-per-task=(\d+)", done.stdout) == ([cores] if cores else [])

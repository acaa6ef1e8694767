"""Slurm's own commands: called with a deadline, and explained in its own words."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from typing import Final

from sparring.orchestrator.launchers.slurm.job import Job, JobEnd, Leftovers
from sparring.protos.advice import Hint
from sparring.protos.errors import SparringError, UsageError

_SECONDS: Final = 30.0
_PASSING: Final = (
    "unable to contact slurm controller",
    "socket timed out",
    "zero bytes were transmitted or received",
    "connection refused",
    "connection reset",
    "connection timed out",
    "communication connection failure",
    "temporarily unable",
    "resource temporarily unavailable",
    "transport endpoint",
    "protocol authentication error",
)
"""What Slurm says when its controller is away, or has too much to do: it may be back in a while."""
_KEPT: Final = ("SLURM_CONF", "SLURM_CLUSTERS")
_OPTION: Final = "#SBATCH "
_FORMATS: Final = ("SQUEUE_", "SINFO_", "SCONTROL_", "SACCT_")


class SlurmFailed(SparringError):
    """Slurm does not do what it is asked."""


class SlurmUnreachable(SlurmFailed):
    """Slurm's controller does not answer, and may do so later."""


def inside_allocation() -> bool:
    """Returns whether this program runs inside an allocation of Slurm's."""
    return "SLURM_JOB_ID" in os.environ


def is_installed(command: str) -> bool:
    """Returns whether a command of Slurm's is here."""
    return shutil.which(command) is not None


def check_installed(command: str) -> None:
    """Checks that a command of Slurm's is here.

    Raises:
        UsageError: If not.
    """
    if not is_installed(command):
        raise UsageError(
            f"there is no Slurm on this machine: its command {command!r} is not found. Run this on a login node of a "
            f"cluster, or start workers otherwise: {Hint('launcher', value='process')}."
        )


def call(command: str, *arguments: str, given: str = "", seconds: float = _SECONDS) -> str:
    """Calls a command of Slurm's, and returns what it says.

    Args:
        command: Of Slurm's.
        arguments: Of the command.
        given: On its standard input.
        seconds: That it may take.

    Raises:
        SlurmUnreachable: If the controller does not answer.
        SlurmFailed: If it refuses, with its own words.
        UsageError: If there is no Slurm here.
    """
    check_installed(command)
    try:
        done = subprocess.run(
            [command, *arguments],
            input=given,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
            env=_environment(),
        )
    except subprocess.TimeoutExpired as error:
        raise SlurmUnreachable(f"{command} did not answer within {seconds:g} s.") from error
    except OSError as error:
        raise SlurmFailed(f"{command} cannot be called: {error.strerror}.") from error
    if done.returncode == 0:
        return done.stdout
    said = _own_words(done.stderr) or f"{command} ended with exit code {done.returncode}"
    kind = SlurmUnreachable if any(words in said.lower() for words in _PASSING) else SlurmFailed
    raise kind(f"{said.removesuffix('.')}.")


def submit(script: str) -> str:
    """Submits a batch script, and returns the number of its job.

    Raises:
        SlurmFailed: As `call`.
    """
    return call("sbatch", "--parsable", *_options(script), given=script).strip().partition(";")[0]


def would_take(script: str) -> None:
    """Asks whether a batch script would be taken, without submitting it.

    Raises:
        SlurmFailed: As `call`.
    """
    call("sbatch", "--test-only", *_options(script), given=script)


def jobs(names: Sequence[str]) -> list[Job]:
    """Returns this user's jobs of these names that Slurm still knows, also those that have ended: one call for all.

    Raises:
        SlurmFailed: As `call`.
    """
    mine = ("--user", str(os.getuid()), "--name", ",".join(names))
    return Job.table(call("squeue", "--noheader", "--array", "--states=all", *mine, "--Format", Job.COLUMNS))


def own_jobs() -> list[Leftovers]:
    """Returns what this user has of jobs that runs of Sparring have submitted, and have not ended.

    Raises:
        SlurmFailed: As `call`.
    """
    return Leftovers.table(call("squeue", "--noheader", "--user", str(os.getuid()), "--Format", Leftovers.COLUMNS))


def end_of(job: str, state: str) -> JobEnd:
    """Returns how a job has ended, as far as Slurm tells: its controller, else its accounting.

    Args:
        job: Its number.
        state: That was seen last; empty: none, the controller does not know it any more.
    """
    try:
        return JobEnd.of_details(call("scontrol", "--oneliner", "show", "job", job))
    except SlurmUnreachable:
        return JobEnd(state or "UNKNOWN")
    except SparringError:
        pass
    try:
        told = call("sacct", "--noheader", "--allocations", "--parsable2", "--jobs", job, "--format", JobEnd.ACCOUNTING)
        return JobEnd.of_accounting(told)
    except SparringError:  # there is no accounting, or it does not know it either
        return JobEnd(state or "UNKNOWN")


def cancel_names(names: Sequence[str]) -> None:
    """Cancels all jobs of these names.

    Raises:
        SlurmFailed: As `call`.
    """
    for name in names:
        call("scancel", "--user", str(os.getuid()), "--name", name)


def cancel(numbers: Sequence[str]) -> None:
    """Cancels jobs.

    Raises:
        SlurmFailed: As `call`.
    """
    if numbers:
        call("scancel", *numbers)


def signal(numbers: Sequence[str], name: str) -> None:
    """Sends a signal to the programs that batch jobs run.

    Raises:
        SlurmFailed: As `call`.
    """
    call("scancel", f"--signal={name.removeprefix('SIG')}", "--batch", *numbers)


def _options(script: str) -> list[str]:
    """Returns what a script asks for, as arguments: before its lines variables such as SBATCH_PARTITION would go."""
    lines = (line.removeprefix(_OPTION) for line in script.splitlines() if line.startswith(_OPTION))
    return [word for line in lines for word in shlex.split(line)]


def _environment() -> dict[str, str]:
    """Returns ours, without what an allocation around us says of itself, and without users' own formats."""
    return {
        name: value for name, value in os.environ.items() if name in _KEPT or not name.startswith(("SLURM_", *_FORMATS))
    }


def _own_words(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return " ".join(lines)

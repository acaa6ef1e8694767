"""The batch script of a benchmark's workers: one job of its array is one worker."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sparring.orchestrator.launchers.slurm.container import ContainedProgram
from sparring.protos.errors import UsageError

_MARK: Final = "sparring"
"""The first word of the comment of every job of ours."""
_NAME: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_LEAVE_SECONDS: Final = 120
"""How long before its time limit a worker takes nothing new, where that is not a large part of its time."""
_LEAVE_SHARE: Final = 5
_WAIT_SECONDS: Final = 30
"""How long a job waits until the files of its run are seen on its node."""


def check_printable(folder: Path) -> None:
    """Checks that a folder may be named in a script: after the end of a line, its name would be run as a command.

    Raises:
        UsageError: If it may not.
    """
    if not str(folder).isprintable():
        raise UsageError(f"the name of {str(folder)!r} has characters that a batch script cannot have. Name another.")


def job_name(label: str, folder: Path, execution: str) -> str:
    """Returns what the jobs of a benchmark's workers are called: for people, and for one execution of one run."""
    return _NAME.sub("-", f"sparring-{label[:40]}-{folder.absolute().name[:60]}-{execution}")


def comment(owner: str, folder: Path) -> str:
    """Returns what is noted down with a job: whose it is, and of which run."""
    return f"{_MARK} {owner} {folder.absolute()}"


def read_comment(text: str) -> tuple[str, str] | None:
    """Returns the owner and the folder that a job's comment names; None: it is none of ours."""
    mark, _, rest = text.partition(" ")
    whose, _, folder = rest.partition(" ")
    return (whose, folder) if mark == _MARK and folder else None


def worker_name(label: str, job: str, restarts: int) -> str:
    """Returns what the worker of a job is called, as the script does: each time that it is started another name."""
    return f"{label}-{job}" + (f"-r{restarts}" if restarts else "")


def numbers(places: Sequence[int]) -> str:
    """Returns the numbers of an array as sbatch takes them: 0-3,7."""
    found: list[list[int]] = []
    for place in sorted(places):
        if found and found[-1][1] == place - 1:
            found[-1][1] = place
        else:
            found.append([place, place])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in found)


@dataclass(frozen=True)
class BatchScript:
    """What is submitted for workers of a benchmark.

    Attributes:
        label: Of the part of the run that they are for.
        name: Of the jobs.
        comment: Of the jobs.
        folder: Of the run, for people.
        log: Their log, with Slurm's %A and %a for the numbers of job and task.
        slots: Of each worker.
        options: Of sbatch, that the user has given.
        token: File with the run's secret.
        ca: File with the run's certificate; None: it has none.
        command: The worker's program and arguments, but for its name and these two files.
        container: What the program is started in; None: it is on the node.
    """

    label: str
    name: str
    comment: str
    folder: Path
    log: Path
    slots: int
    options: Mapping[str, str]
    token: Path
    ca: Path | None
    command: Sequence[str]
    container: ContainedProgram | None = None

    def text(self, places: Sequence[int]) -> str:
        """Returns the script for workers that take these places."""
        settings = {
            "job-name": self.name,
            "comment": self.comment,
            "array": numbers(places),
            "nodes": "1",
            "ntasks": "1",
            "cpus-per-task": str(self.slots),
            "output": str(self.log),
            "open-mode": "append",
            "signal": f"B:USR1@{leave_seconds(self.options.get('time', ''))}",
            **self.options,
        }
        seen = self.container.seen if self.container is not None else lambda path: path
        ca = [] if self.ca is None else [f"--ca={seen(self.ca)}"]
        worker = [*self.command, f"--join-token-file={seen(self.token)}", *ca]
        command = shlex.join(worker if self.container is None else self.container.started(worker))
        name = f"{shlex.quote(self.label)}-${{SLURM_ARRAY_JOB_ID}}_${{SLURM_ARRAY_TASK_ID}}"
        lines = [
            "#!/bin/sh",
            f"# Workers of the Sparring run in {self.folder}: each job of this array is one.",
            *(f"#SBATCH {option_line(key, value)}" for key, value in settings.items()),
            "",
            *wait_for_secret(self.token, "--slurm-folder"),
            # The worker takes the place of this shell, so that it hears Slurm's signals itself.
            f'exec {command} --name={name}"${{SLURM_RESTART_COUNT:+-r$SLURM_RESTART_COUNT}}"',
        ]
        return "\n".join(lines) + "\n"

    def log_of(self, job: str) -> Path:
        """Returns the log of a job."""
        array, _, task = job.partition("_")
        return Path(str(self.log).replace("%A", array).replace("%a", task).replace("%%", "%"))


def log_pattern(folder: Path, label: str) -> Path:
    """Returns the log of the workers of a benchmark, as sbatch takes it."""
    return Path(str(folder).replace("%", "%%"), f"worker-{label}-%A_%a.log")


def leave_seconds(time: str) -> int:
    """Returns how many seconds before its time limit a worker is told to take nothing new.

    Args:
        time: The limit as sbatch takes it; empty: it is not known.
    """
    seconds = _seconds(time)
    return _LEAVE_SECONDS if seconds is None else max(1, min(_LEAVE_SECONDS, seconds // _LEAVE_SHARE))


def _seconds(time: str) -> int | None:
    """Reads a time of Slurm's: minutes, minutes:seconds, hours:minutes:seconds, days-hours[:minutes[:seconds]]."""
    days, dash, rest = time.rpartition("-")
    parts = rest.split(":")
    if not all(part.isdecimal() for part in parts) or len(parts) > 3 or (dash and not days.isdecimal()):
        return None
    given = [int(part) for part in parts]
    if dash:
        hours, minutes, seconds = [*given, 0, 0][:3]
        return int(days) * 86400 + hours * 3600 + minutes * 60 + seconds
    hours, minutes, seconds = {1: (0, *given, 0), 2: (0, *given), 3: tuple(given)}[len(given)]
    return int(hours * 3600 + minutes * 60 + seconds)


def option_line(key: str, value: str) -> str:
    """Returns an option of sbatch as it stands in a script; true stands for one without a value."""
    if value == "true":
        return f"--{key}"
    return f"--{key}={_quoted(value)}"


def _quoted(value: str) -> str:
    """Returns a value as sbatch reads it in a script: it knows quotes and backslashes, as a shell does."""
    if re.fullmatch(r"[A-Za-z0-9_.,:;%+/@=\[\]-]+", value):
        return value
    return '"' + re.sub(r'(["\\])', r"\\\1", value) + '"'


def wait_for_secret(token: Path, flag: str) -> list[str]:
    """Returns the lines of a script that wait until its node sees the run's secret, or say that it does not.

    Args:
        token: The file that it is in.
        flag: That names another folder for it.
    """
    not_seen = (
        f"error: {str(token)!r} cannot be read on this node: the run has ended, or its folder is not on storage that "
        f"all nodes share; name one that is with {flag}."
    )
    return [
        "# The run's secret is in a file that only its user can read. It goes when the run has ended.",
        "waited=0",
        f"until [ -r {shlex.quote(str(token))} ]; do",
        "    waited=$((waited + 1))",
        f'    if [ "$waited" -gt {_WAIT_SECONDS} ]; then',
        f"        echo {shlex.quote(not_seen)} >&2",
        "        exit 2",
        "    fi",
        "    sleep 1",
        "done",
    ]

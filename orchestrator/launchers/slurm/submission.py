"""The orchestrator itself as a job: a batch script that runs a command until its plan is done.

A run goes on where it ended when the same command is given again. So a job that comes to its time limit stops its run,
which keeps what there is, and asks Slurm to be started once more.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sparring.orchestrator.launchers.slurm.script import leave_seconds, option_line

ROOM: Final = ("nodes", "ntasks", "ntasks-per-node")
"""Options of sbatch by which the job has room for workers beside the run."""
CORES: Final = (*ROOM, "cpus-per-task", "cpus-per-gpu", "exclusive", "mincpus")
"""And those that say how many cores it has; without any of them it has what is usual there, often one."""
INTERRUPTED: Final = 130
"""Exit code of a run that was told to stop and can go on."""
TERMINATED: Final = 128 + 15
"""Exit code of a run that was told to stop before it could listen."""


@dataclass(frozen=True)
class Submission:
    """What is submitted for a run.

    Attributes:
        name: Of the job.
        folder: Of the results.
        log: Of the job, with Slurm's %j for its number.
        options: Of sbatch, that the user has given.
        command: The run, as it is given each time.
        most: How often the job may be started again.
    """

    name: str
    folder: Path
    log: Path
    options: Mapping[str, str]
    command: Sequence[str]
    most: int

    def text(self) -> str:
        """Returns the script."""
        settings = {
            "job-name": self.name,
            **({} if self.options.keys() & ROOM else {"nodes": "1", "ntasks": "1"}),
            "output": str(self.log),
            "open-mode": "append",
            "requeue": "true",
            "signal": f"B:USR1@{leave_seconds(self.options.get('time', ''))}",
            **self.options,
        }
        lines = [
            "#!/bin/bash",
            f"# The Sparring run in {self.folder}. At its time limit it stops, and is started again, until it is done.",
            *(f"#SBATCH {option_line(key, value)}" for key, value in settings.items()),
            "",
            # Not Ctrl-C's signal: what a shell starts in the background does not hear that.
            "limit='' told=''",
            """trap 'limit=near told=yes; kill -TERM "$run" 2>/dev/null' USR1""",
            """trap 'told=yes; kill -TERM "$run" 2>/dev/null' TERM""",
            f"{shlex.join(self.command)} &",
            "run=$!",
            # Either signal may have come while there was nobody to pass it on to.
            '[ -z "$told" ] || kill -TERM "$run" 2>/dev/null',
            # A signal ends the shell's wait, with a code of its own, and not the run; when that has ended, the shell
            # still knows its code.
            'while wait "$run"; kill -0 "$run" 2>/dev/null; do :; done',
            'wait "$run"',
            "code=$?",
            "trap - TERM USR1",
            f'if [ -n "$limit" ] && {{ [ "$code" -eq {INTERRUPTED} ] || [ "$code" -eq {TERMINATED} ]; }}; then',
            f'    if [ "${{SLURM_RESTART_COUNT:-0}}" -lt {self.most} ]; then',
            '        echo "the time limit is near: this job is started again, and the run goes on"',
            '        scontrol requeue "$SLURM_JOB_ID" && sleep 60  # Slurm ends this script',
            "    fi",
            f'    echo "error: the run is not finished, and its job is not started again (most: {self.most})." \\',
            '        "Give the same command again." >&2',
            "fi",
            'exit "$code"',
        ]
        return "\n".join(lines) + "\n"

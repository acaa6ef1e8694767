"""The batch script of a policy server: a job of its own, which ends with its run."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sparring.orchestrator.launchers.slurm.script import option_line, wait_for_secret

_PROGRAM: Final = "sparring.orchestrator.launchers.slurm.server_program"
LABEL: Final = "policy"
"""What stands in the name of its job where a worker's has the benchmark."""


@dataclass(frozen=True)
class ServerScript:
    """What is submitted for a policy server.

    Attributes:
        name: Of the job.
        comment: Of the job.
        folder: Of the run, for people.
        logs: Folder for its log.
        options: Of sbatch, that the user has given.
        token: File with the secret that callers must bring.
        alive: File that the run writes anew for as long as it lives.
        towards: Name or number by which nodes reach the machine that the run is on.
        arguments: Of the policy server.
    """

    name: str
    comment: str
    folder: Path
    logs: Path
    options: Mapping[str, str]
    token: Path
    alive: Path
    towards: str
    arguments: Sequence[str]

    def text(self, news: Path) -> str:
        """Returns the script.

        Args:
            news: File that says where the policy is.
        """
        settings = {
            "job-name": self.name,
            "comment": self.comment,
            "nodes": "1",
            "ntasks": "1",
            "output": str(Path(str(self.logs).replace("%", "%%"), "policy-server-%j.log")),
            "open-mode": "append",
            "no-requeue": "true",  # its run submits another, which is somewhere else
            **self.options,
        }
        program = [sys.executable, "-P", "-m", _PROGRAM]
        given = [f"--towards={self.towards}", f"--news={news}", f"--alive={self.alive}"]
        log = f'--log={shlex.quote(str(self.logs))}/policy-server-"$SLURM_JOB_ID".log'
        lines = [
            "#!/bin/sh",
            f"# The policy server of the Sparring run in {self.folder}.",
            *(f"#SBATCH {option_line(key, value)}" for key, value in settings.items()),
            "",
            *wait_for_secret(self.token, "--serve-folder"),
            # It takes the place of this shell, so that it hears Slurm's signals itself.
            f"exec {shlex.join([*program, *given])} {log} -- {shlex.join(self.arguments)}",
        ]
        return "\n".join(lines) + "\n"

    def log_of(self, job: str) -> Path:
        """Returns the log of a job."""
        return self.logs / f"policy-server-{job}.log"

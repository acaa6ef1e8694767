"""The cluster that tests have, and what they do to it."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from support import wait_for

PLAN = ("run", "--benchmark", "toy", "--task", "good", "--policy", "toy_policies:Wanderer", "--episodes", "6")
HELD = "test-held"
SLOW = (*PLAN, "--benchmark-arg", "step_seconds=0.1")


def ended(run: subprocess.Popen[str], seconds: float = 150) -> str:
    """What a run has said that has ended well."""
    said = "".join(run.communicate(timeout=seconds))
    assert run.returncode == 0, said
    return said


def base_folder() -> Path:
    """Where the cluster has its state."""
    return Path(os.environ.get("CLUSTER_UP_BASE", "/var/lib/cluster-up"))


@dataclass(frozen=True)
class Cluster:
    """A real Slurm of three nodes on this machine."""

    folder: Path

    def repair(self) -> None:
        """Has all nodes up and well."""
        self._call(self.folder / "cluster-up")
        self._call("scancel", f"--name={HELD}")  # a controller that was killed may not have heard of it before

    def kill(self, node: str) -> None:
        """Does what a power cut does to a node, and has Slurm know of it."""
        self._call(self.folder / "cluster-node", "kill", node)
        self._call("scontrol", "update", f"nodename={node}", "state=down", "reason=killed")

    def drop(self, node: str) -> None:
        """Cuts a node off: its jobs go on, and Slurm does not know."""
        self._call(self.folder / "cluster-node", "drop", node)

    def kill_controller(self) -> None:
        """Has nobody answer Slurm's commands until it is repaired; jobs go on.

        It notes changes every five seconds only. Newer jobs would be unknown to it, and others would get their numbers.
        """
        state = base_folder() / "state" / "job_state"
        before = state.stat().st_mtime_ns
        self._call("scancel", self._held_job())
        wait_for(lambda: state.stat().st_mtime_ns > before)
        psutil.Process(int((base_folder() / "run" / "slurmctld.pid").read_text())).kill()

    @contextmanager
    def unable_to_start(self, node: str, jobs: int) -> Iterator[None]:
        """Has a node fail to start the next jobs: there are files where it would make their folders."""
        last = int(self._held_job())
        self._call("scancel", str(last))
        places = [base_folder() / "spool" / node / f"job{last + 1 + more:05}" for more in range(jobs)]
        for place in places:
            place.touch()
        try:
            yield
        finally:
            for place in places:
                place.unlink(missing_ok=True)

    def jobs(self, run: str, *states: str) -> dict[str, str]:
        """The jobs of the run in a folder of that name, each with its node."""
        told = self._call("squeue", "--noheader", "--array", "--format=%i|%j|%T|%N")
        rows = [line.split("|") for line in told.splitlines()]
        named = re.compile(rf"sparring-.+-{re.escape(run)}-[0-9a-f]+")
        return {row[0]: row[3] for row in rows if named.fullmatch(row[1]) and (not states or row[2] in states)}

    def running(self, run: str, number: int) -> dict[str, str]:
        """The same, of those that run, as soon as there are so many."""
        wait_for(lambda: len(self.jobs(run, "RUNNING")) >= number)
        return self.jobs(run, "RUNNING")

    def do(self, *command: str) -> str:
        """Calls a command of Slurm's."""
        return self._call(*command)

    def _held_job(self) -> str:
        """Submits a job that does not start, and returns its number."""
        job = ("--hold", f"--job-name={HELD}", "--output=/dev/null", "--wrap=true")
        return self._call("sbatch", "--parsable", *job).strip()

    def _call(self, *command: str | Path) -> str:
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout

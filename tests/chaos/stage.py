"""A run of the toy benchmark in real processes, in the two ways that people run it, and who takes part in it."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

import psutil
from chaos.proxy import Proxy
from support import free_port, processes_of, read_csv, recorded, wait_for

Role = Literal["slot", "fork server", "worker", "policy server", "orchestrator"]

TASKS: Final = "short,long,raises,unmeasured,segfaults"
"""Three of them are errors of every episode: a simulator that raises, one that reports NaN, one that crashes."""
SAME: Final = (
    "benchmark",
    "task",
    "index",
    "seed",
    "outcome",
    "reward_sum",
    "reward_max",
    "steps",
    "metrics",
    "error_kind",
)
_RULES: Final = (
    "--retries", "0", "--max-errors", "0", "--stall-timeout", "30", "--policy-timeout", "8", "--max-steps", "60",
    "--benchmark-arg", "step_seconds=0.002",
)  # fmt: skip
_POLICY: Final = "toy_policies:Wanderer"


class Stage:
    """A folder, and the processes of a run in it.

    Args:
        folder: Empty; its processes are told by it.
        episodes: Of each task.
        apart: Whether the policy server and the workers are started by themselves, and reached through proxies;
            otherwise one command starts everything.
    """

    def __init__(self, folder: Path, episodes: int, *, apart: bool) -> None:
        self.folder = folder
        self.output = folder / "out"
        self.episodes = 5 * episodes
        self.apart = apart
        self.proxies: dict[str, Proxy] = {}
        self.run: subprocess.Popen[str] | None = None
        self._temporary = folder / "tmp"
        self._temporary.mkdir()
        self._others: list[subprocess.Popen[str]] = []
        self._log = (folder / "log").open("w")
        self._flags = [
            "run", "--benchmark", "toy", "--task", TASKS, "--episodes", str(episodes), "--output", "out", *_RULES,
        ]  # fmt: skip

    def start(self) -> None:
        """Begins the run."""
        if self.apart:
            policy, work = free_port(), free_port()
            self.proxies = {"policy": Proxy(policy), "work": Proxy(work)}
            token = self.folder / "token"
            token.write_text(secrets.token_hex(32))
            token.chmod(0o600)
            serve = ("serve", "--policy", _POLICY, "--listen", f"127.0.0.1:{policy}")
            self._others.append(self._sparring(*serve))
            self._flags += [
                "--policy-server", f"127.0.0.1:{self.proxies['policy'].port}", "--launcher", "none",
                "--listen", f"127.0.0.1:{work}", "--join-token-file", "token",
            ]  # fmt: skip
            for name in ("a", "b"):
                self._others.append(
                    self._sparring(
                        "worker", "--stay", "--orchestrator", f"127.0.0.1:{self.proxies['work'].port}", "--slots", "2",
                        "--join-token-file", "token", "--name", name,
                    )
                )  # fmt: skip
        else:
            self._flags += ["--policy", _POLICY, "--slots", "4"]
        self.run = self._sparring(*self._flags)

    def resume(self) -> None:
        """Goes on with a run whose orchestrator has ended."""
        assert self.run is not None
        self.run.wait(30)
        if not self.apart:
            wait_for(lambda: not self._members(), seconds=60)  # all that it started ends with it
        self.run = self._sparring(*self._flags)

    def who(self, role: Role) -> list[psutil.Process]:
        """Returns the processes that have a role."""
        assert self.run is not None
        if role == "orchestrator":
            return [psutil.Process(self.run.pid)] if self.run.poll() is None else []
        return [process for process in self._members() if _role(process) == role]

    def recorded(self) -> int:
        """Returns how many episodes have a row."""
        return recorded(self.output)

    def rows(self) -> list[tuple[str, ...]]:
        """Returns what must be the same in every run."""
        return [tuple(row.get(name, "") for name in SAME) for row in read_csv(self.output)]

    def said(self) -> str:
        """Returns the end of what everybody has logged."""
        self._log.flush()
        return "\n".join((self.folder / "log").read_text().splitlines()[-60:])

    def end(self) -> list[str]:
        """Ends everything that is not part of the run, and returns what is left that should not be."""
        for process in self._others:
            process.terminate()
        for process in self._others:
            process.wait(30)
        for proxy in self.proxies.values():
            proxy.close()
        _, alive = psutil.wait_procs(processes_of(self.folder), timeout=30)
        left = [f"process: {' '.join(process.cmdline())}" for process in alive]
        # What `sparring worker` leaves when it is killed itself, nobody is there to clear away.
        files = [path for path in self._temporary.iterdir() if not (self.apart and path.name.startswith("pymp-"))]
        left += [f"file: {path}" for path in files]
        odd = [
            path for path in self.output.rglob("*") if path.name.startswith(".incoming") or path.name == "join-token"
        ]
        return left + [f"file: {path}" for path in odd]

    def kill_all(self) -> None:
        """Ends whatever still runs here."""
        for process in processes_of(self.folder):
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        self._log.close()

    def _members(self) -> list[psutil.Process]:
        assert self.run is not None
        return [process for process in processes_of(self.folder) if process.pid != self.run.pid]

    def _sparring(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "sparring", *arguments],
            cwd=self.folder,
            env={**os.environ, "TMPDIR": str(self._temporary)},
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            text=True,
            start_new_session=True,
        )


def _role(process: psutil.Process) -> Role | None:
    try:
        command, parent = process.cmdline(), process.parent()
        above: Sequence[str] = parent.cmdline() if parent is not None else ()
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return None
    line = " ".join(command)
    if "forkserver" in line:
        return "slot" if "forkserver" in " ".join(above) else "fork server"
    if "sparring.policy_server" in line:
        return "policy server"
    if "sparring.env_worker" in line and "resource_tracker" not in line:
        return "worker"
    return None

"""A run of the toy benchmark in real processes, in the ways that people run it, and who takes part in it."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import psutil
from chaos.clock import JumpingClock
from chaos.containers import Containers
from chaos.disk import SmallDisk
from chaos.link import Link
from chaos.proxy import Proxy
from requirements import missing
from support import free_port, processes_of, read_csv, recorded, wait_for

Role = Literal["slot", "fork server", "worker", "policy server", "orchestrator"]

TASKS: Final = "short,long,raises,hostile,segfaults"
"""Three of them are errors of every episode: a simulator that raises, one that crashes, and one that does each time
something else: reports NaN, wants more memory than it may have, exits, hangs."""
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
    "--retries", "0", "--max-errors", "0", "--stall-timeout", "20", "--policy-timeout", "10", "--max-steps", "60",
    "--benchmark-arg", "step_seconds=0.002",
)  # fmt: skip
_POLICY: Final = "toy_policies:Moody"
_HANGS: Final = 6
"""The episode of `hostile` in which the simulator hangs."""
_DOOMED: Final = ("toy", "short", "5")


@dataclass(frozen=True)
class Setting:
    """How a run is made.

    Attributes:
        apart: Whether the policy server and the workers are started by themselves, and reached through proxies;
            otherwise one command starts everything.
        far: Whether those workers are in a network of their own, at the end of a cable, and not behind proxies.
        small_disk: Whether the output is on a disk that can be filled up.
        slot_memory: What a slot's process may hold; empty: the default.
        takes_down: What the policy does in one of its episodes: exit or hang; empty: neither.
        image: Of the containers that workers are in; empty: they are processes.
        connection: How containers reach the run.
    """

    apart: bool = False
    far: bool = False
    small_disk: bool = False
    slot_memory: str = ""
    takes_down: str = ""
    image: str = ""
    connection: Literal["unix", "tcp"] = "unix"

    @classmethod
    def in_containers(cls, seed: int, image: str) -> Setting:
        """Returns that of a seed for workers in containers of an image."""
        return cls(takes_down=("", "exit")[seed // 2 % 2], image=image, connection="tcp" if seed % 2 else "unix")

    @classmethod
    def of(cls, seed: int) -> Setting:
        """Returns that of a seed, of what can be had on this machine."""
        apart = seed % 2 == 1
        down = "" if apart else ("exit", "hang", "")[seed // 2 % 3]
        return cls(
            apart=apart,
            far=seed % 4 == 3 and not missing("netns"),
            small_disk=seed % 3 == 0 and not missing("mount"),
            slot_memory="16m" if seed % 5 == 4 else "",
            takes_down=down,
        )

    def expected(self, row: tuple[str, ...]) -> tuple[str, ...]:
        """Returns what a row of a calm run, whose policy takes nothing down, is here."""
        if self.takes_down and row[:3] == _DOOMED:
            kind = {"exit": "policy", "hang": "limit"}[self.takes_down]
            return (*row[:4], "error", "0.0", "0.0", "0", "", kind)
        return row


class Stage:
    """A folder, and the processes of a run in it.

    Args:
        folder: Empty; its processes are told by it.
        episodes: Of each task.
        setting: How it is run.
    """

    def __init__(self, folder: Path, episodes: int, setting: Setting) -> None:
        self.folder = folder
        self.output = folder / "out"
        self.episodes = 5 * episodes
        self.setting = setting
        self.proxies: dict[str, Proxy] = {}
        self.addresses: dict[str, str] = {}
        """Where policy and run are reached over TCP."""
        self.token = ""
        """The join token, where workers come by themselves."""
        self.run: subprocess.Popen[str] | None = None
        self.disk = SmallDisk(self.output) if setting.small_disk else None
        self.link = Link() if setting.far else None
        self.containers = Containers(folder) if setting.image else None
        self.clock = JumpingClock(folder)
        self._temporary = folder / "tmp"
        self._temporary.mkdir()
        self._others: list[subprocess.Popen[str]] = []
        self._log = (folder / "log").open("w")
        self._flags = [
            "run", "--benchmark", "toy", "--task", TASKS, "--episodes", str(episodes), "--output", "out", *_RULES,
        ]  # fmt: skip

    def start(self) -> None:
        """Begins the run."""
        if self.setting.slot_memory:
            self._flags += ["--slot-memory", self.setting.slot_memory]
        if self.setting.apart:
            self._start_apart()
        else:
            self._flags += [
                "--policy",
                _POLICY,
                "--policy-arg",
                f"takes_down={self.setting.takes_down}",
                "--slots",
                "4",
            ]
        if self.setting.image:
            self._flags += [
                "--launcher", "docker", "--image", f"toy={self.setting.image}", "--worker-connection",
                self.setting.connection,
            ]  # fmt: skip
        self.run = self._sparring(*self._flags)

    def _start_apart(self) -> None:
        host, policy, work = self.link.here if self.link else "127.0.0.1", free_port(), free_port()
        if self.link is None:
            self.proxies = {"policy": Proxy(policy), "work": Proxy(work)}
        ports = {"policy": policy, "work": work} | {name: proxy.port for name, proxy in self.proxies.items()}
        self.addresses = {name: f"{host}:{port}" for name, port in ports.items()}
        self.token = secrets.token_hex(32)
        token = self.folder / "token"
        token.write_text(self.token)
        token.chmod(0o600)
        serve = ["serve", "--policy", _POLICY, "--listen", f"{host}:{policy}"]
        self._flags += [
            "--policy-server", self.addresses["policy"], "--launcher", "none", "--listen", f"{host}:{work}",
            "--join-token-file", "token",
        ]  # fmt: skip
        if self.link is not None:
            serve += ["--token-file", "token"]
            self._flags += ["--policy-token-file", "token"]
        self._others.append(self._sparring(*serve))
        for name in ("a", "b"):
            worker = (
                "worker", "--stay", "--orchestrator", self.addresses["work"], "--slots", "2", "--join-token-file",
                "token", "--name", name,
            )  # fmt: skip
            self._others.append(self._sparring(*worker, far=True))

    def resume(self) -> None:
        """Goes on with a run whose orchestrator has ended."""
        assert self.run is not None
        self.run.wait(30)
        if not self.setting.apart:
            wait_for(lambda: not self._members(), seconds=60)  # all that it started ends with it
        self.run = self._sparring(*self._flags)

    def who(self, role: Role) -> list[psutil.Process]:
        """Returns the processes that have a role."""
        assert self.run is not None
        if role == "orchestrator":
            return [psutil.Process(self.run.pid)] if self.run.poll() is None else []
        contained = self.containers.processes() if self.containers is not None else []
        return [process for process in [*self._members(), *contained] if _role(process) == role]

    def recorded(self) -> int:
        """Returns how many episodes have a row."""
        return recorded(self.output)

    def rows(self) -> list[tuple[str, ...]]:
        """Returns what must be the same in every run."""
        if not (self.output / "episodes.csv").exists():
            return []
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
        files = [
            path for path in self._temporary.iterdir() if not (self.setting.apart and path.name.startswith("pymp-"))
        ]
        left += [f"file: {path}" for path in files]
        odd = [
            path for path in self.output.rglob("*") if path.name.startswith(".incoming") or path.name == "join-token"
        ]
        left += [f"file: {path}" for path in odd]
        return left + (self.containers.left() if self.containers is not None else [])

    def present(self) -> list[str]:
        """Returns who is there, and whether it runs, sleeps or was stopped."""
        found = []
        for process in processes_of(self.folder):
            try:
                found.append(f"{process.pid} {_role(process)} {process.status()}")
            except psutil.NoSuchProcess:
                continue
        return found

    def sockets(self) -> dict[str, Path]:
        """Returns the sockets of this run in the file system, by who listens."""
        return {path.stem: path for path in self.folder.rglob("*.sock")}

    def kill_all(self) -> None:
        """Ends whatever still runs here."""
        for process in processes_of(self.folder):
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        self._log.close()
        if self.containers is not None:
            self.containers.remove()
        if self.link is not None:
            self.link.close()
        if self.disk is not None:
            self.disk.close()

    def _members(self) -> list[psutil.Process]:
        assert self.run is not None
        return [process for process in processes_of(self.folder) if process.pid != self.run.pid]

    def _sparring(self, *arguments: str, far: bool = False) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "sparring", *arguments]
        path = os.pathsep.join([str(self.clock.path), os.environ.get("PYTHONPATH", "")])
        return subprocess.Popen(
            self.link.command(command) if far and self.link is not None else command,
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": path, "TMPDIR": str(self._temporary)},
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
    # One that stays for run after run is nobody's to start again, when it is killed itself.
    if "sparring.env_worker" in line and "resource_tracker" not in line and "--stay" not in line:
        return "worker"
    return None


def planned_kind(row: tuple[str, ...]) -> str:
    """Returns the kind of the error that an episode ends in, in a calm run; empty: it has an outcome."""
    task, index = row[1], int(row[2])
    if task == "short":
        return "policy" if index in (1, 2, 3) else ""
    if task == "hostile":
        return "limit" if index == _HANGS else "simulator"
    return "" if task == "long" else "simulator"

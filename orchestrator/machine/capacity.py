"""How much of this machine may be used: cores and memory, as containers, clusters and administrators share them out."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MAX_SLOTS: Final = 64
"""The most that are taken without being asked for."""
_SMALL: Final = 4
"""Cores up to which all are used: there, one core left free is a large part of the machine."""
_SHARE: Final = 0.7
"""Of a larger machine's cores; the rest is for the policy and for everybody else."""
_EACH: Final = 3
"""Slots for each core, where the policy has a machine or a device of its own: while one waits for an answer, others
have the core. With LIBERO and a policy of 40 ms a pass, one has half of what a core can do, three have nearly all."""
SLOT_BYTES: Final = 2**30
"""Of memory for one slot: a LIBERO simulator that renders takes about half of that."""
_SLURM: Final = ("SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE")
_NO_LIMIT: Final = 2**60
"""Where version 1 of control groups says that there is no limit, it says a number near 2^63."""


@dataclass(frozen=True)
class Capacity:
    """What may be used here.

    Attributes:
        cores: Whole ones, at least one.
        memory: Bytes; None: not known.
    """

    cores: int
    memory: int | None = None

    def slots(self, episodes: int, *, elsewhere: bool = False, sessions: int = 0) -> int:
        """Returns how many slots are a good number.

        Args:
            episodes: That are left; more slots than that would have nothing to do.
            elsewhere: Whether the policy is computed by other processors than these cores.
            sessions: The most that the policy takes at once; 0: not known.
        """
        return max(1, min(self._limits(episodes, elsewhere, sessions).values()))

    def reason(self, episodes: int, *, elsewhere: bool = False, sessions: int = 0) -> str:
        """Returns why it is that number, for people."""
        limits = self._limits(episodes, elsewhere, sessions)
        return min(limits, key=lambda reason: limits[reason])

    def _limits(self, episodes: int, elsewhere: bool, sessions: int) -> dict[str, int]:
        """Returns how many slots there may be, by the reason."""
        by_cores = self.cores if self.cores <= _SMALL else max(_SMALL, math.floor(_SHARE * self.cores))
        each = "the only core" if self.cores == 1 else f"each of the {self.cores} cores"
        why = f"one for {each}" if self.cores <= _SMALL else f"{_SHARE:g} of the {self.cores} cores"
        why += " that may be used here"
        if elsewhere:
            by_cores = _EACH * self.cores
            why = f"{_EACH} for {each} that may be used here, as the policy is computed elsewhere"
        limits = {
            "one for each episode that is left": episodes,
            why: by_cores,
            f"{MAX_SLOTS} are the most that are taken without being asked for": MAX_SLOTS,
        }
        if sessions:
            limits[f"the policy takes no more than {sessions} at once"] = sessions
        if self.memory is not None:
            needed = f"{SLOT_BYTES / 2**30:g} GiB each"
            limits[f"{self.memory / 2**30:.1f} GiB of memory may be used here, {needed}"] = self.memory // SLOT_BYTES
        return limits


def capacity(root: Path = Path("/"), environment: Mapping[str, str] | None = None) -> Capacity:
    """Returns what this process may use.

    Args:
        root: Of the file system that the kernel tells about itself in.
        environment: Variables, in which Slurm says what a job has; by default this process's own.
    """
    variables = os.environ if environment is None else environment
    cores = [float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)]
    cores += [float(variables[name]) for name in _SLURM if variables.get(name, "").isdecimal()]
    memory = list(_free(root))
    for group in _groups(root):
        cores += _quota(group)
        memory += _left(group)
    # Half a core is one: there is no smaller number of slots.
    return Capacity(max(1, math.floor(min(cores))), min(memory, default=None))


def _groups(root: Path) -> Iterator[Path]:
    """Finds this process's control groups and those around them, each of which may set a limit; both versions."""
    with suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            for name in controllers.split(",") if controllers else [""]:
                base = root / "sys/fs/cgroup" / name
                inner = base / path.lstrip("/")
                yield from (folder for folder in (inner, *inner.parents) if folder.is_relative_to(base))


def _quota(group: Path) -> Iterator[float]:
    with suppress(OSError, ValueError):  # not of this version of control groups, or "max"
        allowed, period = (group / "cpu.max").read_text().split()
        yield int(allowed) / int(period)
    with suppress(OSError, ValueError):
        allowed = (group / "cpu.cfs_quota_us").read_text()
        if int(allowed) > 0:
            yield int(allowed) / int((group / "cpu.cfs_period_us").read_text())


def _left(group: Path) -> Iterator[int]:
    """Finds what a group's limit leaves of memory; pages of files that are only cached do not count as used."""
    for limit, used in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
        with suppress(OSError, ValueError):
            allowed = int((group / limit).read_text())
            if allowed < _NO_LIMIT:
                yield max(0, allowed - max(0, int((group / used).read_text()) - _cached(group)))


def _cached(group: Path) -> int:
    with suppress(OSError, ValueError):
        lines = dict(line.split(" ", 1) for line in (group / "memory.stat").read_text().splitlines())
        return int(lines.get("inactive_file", 0))
    return 0


def _free(root: Path) -> Iterator[int]:
    with suppress(OSError, ValueError):
        for line in (root / "proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                yield int(line.split()[1]) * 1024

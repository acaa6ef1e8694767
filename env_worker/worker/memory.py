"""Memory: who was killed because it ran out, as the kernel counts for each container, and what a slot may hold."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from sparring.protos.advice import Hint

_CGROUP: Final = Path("/sys/fs/cgroup")
_UNLIMITED: Final = 1 << 60
"""Version 1 writes "no limit" as a number near 2**63."""
_SHARED_OUT: Final = 0.8
"""Of all memory, how much slots may hold between episodes: in the middle of one they need more, and the worker some."""


def format_memory(count: int) -> str:
    """Bytes, for people."""
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"


class OomWatch:
    """Tells deaths by the out-of-memory killer from other deaths by SIGKILL, one by one.

    Works where the process sees its own control group at the usual place, as it does in a container; elsewhere it
    never finds any.

    Args:
        cgroup: Where control groups are mounted.
    """

    def __init__(self, cgroup: Path = _CGROUP) -> None:
        if (cgroup / "memory.events").exists():
            self._counter, self._limit = cgroup / "memory.events", cgroup / "memory.max"
        else:
            self._counter = cgroup / "memory" / "memory.oom_control"
            self._limit = cgroup / "memory" / "memory.limit_in_bytes"
        self._seen = self._kills()

    def blame(self) -> str:
        """Returns a sentence if the kernel has killed one more for lack of memory since the last time; else empty."""
        limit = self._bytes()
        if limit is None or self._kills() <= self._seen:
            return ""
        self._seen += 1
        return (
            f"the slot's process was killed: out of memory (OOM) at the worker's limit of {format_memory(limit)}; "
            f"raise {Hint('worker_memory')} or lower {Hint('slots')}."
        )

    def fair_share(self, slots: int) -> int:
        """Returns the bytes that each of so many slots may hold: of the worker's limit, or of the machine's memory."""
        machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return int(_SHARED_OUT * min(self._bytes() or machine, machine) / slots)

    def _kills(self) -> int:
        try:
            found = re.search(r"^oom_kill (\d+)$", self._counter.read_text(), re.MULTILINE)
        except OSError:
            return 0
        return int(found[1]) if found else 0

    def _bytes(self) -> int | None:
        try:
            limit = int(self._limit.read_text())
        except (OSError, ValueError):  # not there, or "max"
            return None
        return limit if limit < _UNLIMITED else None

"""Whose something is that outlives its process: a name of a process that no other had or will have."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Literal


def owner() -> str:
    """Returns a name of this process that no other had or will have."""
    return f"{socket.gethostname()}/{_boot()}/{os.getpid()}/{_started(os.getpid())}"


def owner_state(label: str) -> Literal["alive", "dead", "unknown"]:
    """Returns whether the process that a label names still runs; unknown if it is another machine's."""
    parts = label.split("/")
    if len(parts) != 4 or parts[0] != socket.gethostname() or not parts[2].isdecimal():
        return "unknown"
    _, boot, number, started = parts
    return "alive" if boot == _boot() and _started(int(number)) == started else "dead"


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "boot"


def _started(process: int) -> str:
    """Returns when a process started, in the kernel's ticks; empty if there is none of that number."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""

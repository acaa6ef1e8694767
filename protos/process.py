"""What the processes of a run have in common: their tie to the one that started them, freezes, memory."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
import time
from pathlib import Path
from typing import Final

_M_TRIM_THRESHOLD: Final = -1
_M_TOP_PAD: Final = -2
_M_MMAP_THRESHOLD: Final = -3
_MIB: Final = 1 << 20
_FREEZE_SECONDS: Final = 5.0
"""So much later than expected, and a process was not merely busy: it was stopped, or its machine was."""


class FreezeWatch:
    """Notices that this process did not run for a while: it was stopped, or a laptop was closed, a machine paused.

    Who has not run has not listened either, and must not take others' silence for theirs.
    """

    def __init__(self) -> None:
        self._last = time.monotonic()

    def was_frozen(self, *, expected: float) -> bool:
        """Returns whether far more time has passed since the last call than the caller expected, in seconds."""
        now = time.monotonic()
        passed, self._last = now - self._last, now
        return passed > expected + _FREEZE_SECONDS


def stop_with_parent(stop: asyncio.Event) -> None:
    """Sets `stop` when standard input closes, which it does however the parent ends, even by SIGKILL."""
    loop = asyncio.get_running_loop()

    def readable() -> None:
        if not os.read(0, 4096):
            loop.remove_reader(0)
            stop.set()

    loop.add_reader(0, readable)


def is_stopped(pid: int) -> bool:
    """Returns whether a process was stopped with a signal or by a debugger; False where that cannot be told."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] in ("T", "t")


def signal_name(number: int) -> str:
    """Returns what a signal is called; most of those for real time have only a number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def keep_freed_memory() -> None:
    """Tells glibc to keep what messages free instead of handing it back to the kernel after each one.

    An observation of a few hundred kilobytes otherwise costs hundreds of page faults, more than everything else in
    its round trip. Does nothing where the C library is another one.
    """
    libc = _libc()
    if libc is not None and hasattr(libc, "mallopt"):
        libc.mallopt(_M_MMAP_THRESHOLD, 32 * _MIB)
        libc.mallopt(_M_TRIM_THRESHOLD, 128 * _MIB)
        libc.mallopt(_M_TOP_PAD, 4 * _MIB)


def give_back_freed_memory() -> None:
    """Hands to the kernel what was freed and kept; for the moment after something large was closed."""
    libc = _libc()
    if libc is not None and hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)


def _libc() -> ctypes.CDLL | None:
    return ctypes.CDLL(None) if sys.platform.startswith("linux") else None

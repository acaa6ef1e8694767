"""A wall clock that jumps, for all processes of a run: the one of Python, which is ours.

The kernel's cannot be had for some processes alone: time namespaces have no CLOCK_REALTIME, and whoever answers
clock_gettime() in its place (libfaketime, a library of one's own) does not reach the futexes in which gRPC's threads
wait until a time of day: those would wait hours too long, or not at all, as after no real jump. (libfaketime 0.9.10
also ends Python 3.11's sleep() with EINVAL.) To set the clock of the machine would harm everybody on it.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final

_SITE: Final = """
import mmap, os, struct, sys, time

_file = open({path!r}, "rb")
_offset = mmap.mmap(_file.fileno(), 8, access=mmap.ACCESS_READ)
_time, _time_ns = time.time, time.time_ns


def _off():
    # gRPC's Python half reckons deadlines by this clock for its other half, which asks the kernel.
    caller = sys._getframe(2).f_globals.get("__name__") or ""
    return 0 if caller.startswith("grpc") else struct.unpack("q", _offset[:8])[0]


time.time = lambda: _time() + _off()
time.time_ns = lambda: _time_ns() + _off() * 10**9
"""


class JumpingClock:
    """Adds to the time of day that Python code sees. The kernel's own clock is everybody's, and stays as it is.

    Args:
        folder: For how far it is off, and for what has it so.
    """

    def __init__(self, folder: Path) -> None:
        self._offset = folder / "clock"
        self._offset.write_bytes(struct.pack("q", 0))
        self.path = folder / "site"
        """To be first on Python's path of those who are to see it."""
        self.path.mkdir()
        (self.path / "sitecustomize.py").write_text(_SITE.format(path=str(self._offset)))

    def jump(self, seconds: int) -> None:
        """Is off by so many seconds from now on."""
        with self._offset.open("r+b") as file:
            file.write(struct.pack("q", seconds))

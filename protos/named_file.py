"""Files that a user names: read as a whole, up to a limit, and never for ever."""

from __future__ import annotations

import errno
import os
import select
import stat
import time
from pathlib import Path
from typing import Final

_WAIT_SECONDS: Final = 10.0
"""For whoever writes to a pipe, from the first byte to the last. What a shell makes of `<(command)` is a pipe."""
_OPEN: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_BLOCK: Final = 1 << 16


def read_named(path: Path, most: int) -> bytes:
    """Returns all of a file, or what is written to a pipe until it is closed.

    Args:
        path: Of the file.
        most: Bytes of it.

    Raises:
        OSError: If it cannot be read, has more bytes, or is a pipe that nobody writes to, or closes, in time.
    """
    number = os.open(path, _OPEN)
    try:
        is_pipe = not stat.S_ISREG(os.fstat(number).st_mode)
        content, deadline = bytearray(), time.monotonic() + _WAIT_SECONDS
        while len(content) <= most:
            if is_pipe:
                _await(number, deadline, path)
            try:
                part = os.read(number, _BLOCK)
            except BlockingIOError:  # somebody else has read it first
                continue
            if not part:
                return bytes(content)
            content += part
    finally:
        os.close(number)
    raise OSError(errno.EFBIG, f"it has more than {most:,} bytes", str(path))


def _await(number: int, deadline: float, path: Path) -> None:
    """Waits for more of a pipe, or for its end. Without a writer there is neither: a read would say that it ended."""
    ready = select.poll()
    ready.register(number, select.POLLIN)
    if not ready.poll(1000 * max(0.0, deadline - time.monotonic())):
        raise OSError(
            errno.ETIMEDOUT,
            f"it is a pipe, and nobody has written to it and closed it within {_WAIT_SECONDS:g} s; start what writes "
            "to it first, or name a file",
            str(path),
        )

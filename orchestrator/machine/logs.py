"""Logs of children, which write to the files themselves: read from their end, and kept from growing without bound."""

from __future__ import annotations

import fcntl
import logging
import os
from pathlib import Path
from typing import BinaryIO, Final

log = logging.getLogger(__name__)

LIMIT: Final = 64 * 1024 * 1024
"""A log that is longer than this loses its middle."""
_BEGINNING: Final = 1024 * 1024
_TAIL: Final = 64 * 1024
_BLOCK: Final = 1024 * 1024


def tail_of(path: Path, most: int = _TAIL) -> str:
    """Returns the last lines of a log, however long it is; empty if there is none."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - most))
            content = file.read(most)
    except FileNotFoundError:
        return ""
    if size > most:  # it begins in the middle of a line, if that is not the only one
        content = content.partition(b"\n")[2] or content
    return content.decode(errors="replace")


def last_words(path: Path, lines: int = 12) -> str:
    """Returns the end of a log; only the sentence, if it ended with one that is meant for people."""
    written = tail_of(path).splitlines()
    for number in range(len(written) - 1, -1, -1):
        if written[number].startswith("error: "):
            return "\n".join(written[number:]).removeprefix("error: ")
    return "\n".join(written[-lines:])


def is_long(path: Path) -> bool:
    """Returns whether a log has grown beyond the limit."""
    try:
        return path.stat().st_size > LIMIT
    except OSError:
        return False


def shorten(path: Path, limit: int | None = None) -> bool:
    """Takes the middle out of a log that has grown beyond a limit, while others go on writing at its end.

    They must have opened it to append. Its beginning stays, and the newest half of the limit. What is written in the
    moment in which the file is cut may be lost; nobody waits for us, and nobody hears of it if this fails.

    Args:
        path: Of the log.
        limit: In bytes; by default that of all logs.

    Returns:
        Whether it was shortened.
    """
    limit = LIMIT if limit is None else limit
    try:
        if path.stat().st_size <= limit:
            return False
        with path.open("r+b", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # several children may write to one log
            return _take_out_middle(file, limit)
    except BlockingIOError:  # somebody is at it
        return False
    except OSError as error:
        log.debug("the log %s cannot be shortened: %s", path, error)
        return False


def _take_out_middle(file: BinaryIO, limit: int) -> bool:
    descriptor, size = file.fileno(), os.fstat(file.fileno()).st_size
    if size <= limit:
        return False
    beginning = min(_BEGINNING, limit // 4)
    start = _next_line(descriptor, size - limit // 2, size)
    end = _next_line(descriptor, beginning, start)
    note = f"\n... {start - end} bytes were left out here: the log was longer than {limit} bytes ...\n\n".encode()
    os.pwrite(descriptor, note, end)
    target = end + len(note)
    # What is copied lies behind where it goes, and comes to an end when it has caught up with who writes.
    while block := os.pread(descriptor, _BLOCK, start):
        os.pwrite(descriptor, block, target)
        start, target = start + len(block), target + len(block)
        if target > limit:  # whoever writes is quicker than we are
            break
    os.ftruncate(descriptor, target)
    return True


def _next_line(descriptor: int, start: int, end: int) -> int:
    """Returns where the first line begins after a place; the place itself, if that is far."""
    found = os.pread(descriptor, min(_TAIL, max(0, end - start)), start).find(b"\n")
    return start if found < 0 else start + found + 1

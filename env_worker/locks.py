"""One process at a time, for what several would otherwise do at once."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from sparring.protos.errors import SparringError


@contextmanager
def one_at_a_time(lock: Path, *, deadline: float, waiting: str) -> Iterator[int]:
    """Holds a lock that ends with its holder, however that ends; yields its file descriptor.

    Args:
        lock: A file that stands for it; made if missing, never removed.
        deadline: Seconds to wait for another holder.
        waiting: What to say on standard error when there is one.

    Raises:
        SparringError: If the other does not end in time.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    try:
        ends = time.monotonic() + deadline
        told = False
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > ends:
                    raise SparringError(
                        f"another process has held {str(lock)!r} for {deadline:g} s. End it, then try again."
                    ) from None
            if not told:
                say(f"{waiting}; waiting for it, at most {deadline:g} s")
                told = True
            time.sleep(0.2)
        yield descriptor
    finally:
        os.close(descriptor)


def say(line: str) -> None:
    """Writes a line to standard error."""
    Console(stderr=True).print(line, markup=False, highlight=False, soft_wrap=True)

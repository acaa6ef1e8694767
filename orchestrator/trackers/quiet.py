"""Keeps what a library prints off standard output, which is for results, without touching what others print."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

_lock: Final = threading.Lock()


class _Quiet:
    """Standard output, on which some threads are not heard."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.threads: set[int] = set()

    def write(self, text: str) -> int:
        return len(text) if threading.get_ident() in self.threads else int(self.stream.write(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def quiet_thread() -> Iterator[None]:
    """Lets this thread, and no other, print to nowhere."""
    with _lock:
        if not isinstance(sys.stdout, _Quiet):
            sys.stdout = _Quiet(sys.stdout)  # one in all that people do with it
        quiet: Any = sys.stdout
        quiet.threads.add(threading.get_ident())
    try:
        yield
    finally:
        with _lock:
            quiet.threads.discard(threading.get_ident())
            if not quiet.threads and sys.stdout is quiet:  # else somebody has put another in its place meanwhile
                sys.stdout = quiet.stream

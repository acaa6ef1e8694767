"""A mark that a process sets while it draws: whoever started it sees by that what it died of."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from sparring.env_worker.rendering.llvm import load_triton_first

IDLE: Final = 0
DRAWING: Final = 1
RAISED: Final = 2
"""What drew last has raised something."""


class Mark(Protocol):
    """A number; in memory that two processes share, if somebody else is to see it."""

    value: int


class _Unseen:
    value = IDLE


_mark: Mark = _Unseen()


def share_mark(mark: Mark) -> None:
    """Sets another mark from now on, in this process."""
    global _mark
    _mark = mark


@contextmanager
def drawing() -> Iterator[None]:
    """Sets the mark while GL has its hands in this process: around every image, and the making of a context."""
    load_triton_first()
    _mark.value = DRAWING
    try:
        yield
    except BaseException:
        _mark.value = RAISED
        raise
    _mark.value = IDLE

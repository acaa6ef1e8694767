"""The words of those who call `evaluate()`: keyword arguments."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sparring.protos.advice import Keywords
from sparring.protos.errors import SparringError

KEYWORDS: Final = Keywords(names={"task": "tasks"})


@contextmanager
def told_in_keywords() -> Iterator[None]:
    """Has errors that come out of it say which keyword arguments to give."""
    try:
        yield
    except SparringError as error:
        error.dialect = error.dialect or KEYWORDS
        raise

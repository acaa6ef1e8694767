"""A file that nobody else can read, for as long as it is needed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sparring.protos.errors import SparringError


@contextmanager
def private_file(path: Path, content: bytes) -> Iterator[None]:
    """Has a file for its user alone (mode 0600); it goes at the end.

    Raises:
        SparringError: If it cannot be written.
    """
    try:
        path.unlink(missing_ok=True)  # of an execution that was killed
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
    except OSError as error:
        raise SparringError(f"{str(path)!r} cannot be written: {error.strerror}.") from error
    try:
        yield
    finally:
        path.unlink(missing_ok=True)

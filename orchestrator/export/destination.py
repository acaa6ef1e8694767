"""Where a data set is written: beside its place, and put there when it is whole."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sparring.orchestrator.replay.replays import working_folder
from sparring.protos.errors import SparringError, UsageError


@contextmanager
def whole_or_nothing(out: Path) -> Iterator[Path]:
    """Gives a folder to write to; at the end it is what was wanted, and after an error nothing is left of it.

    Args:
        out: Where it is to be; there must be nothing yet, or an empty folder.

    Raises:
        UsageError: If there is something already.
        SparringError: If it cannot be written.
    """
    check_free(out)
    try:
        with working_folder(out.parent) as folder:
            folder.mkdir()
            yield folder
            folder.replace(out)  # which may be an empty folder
    except OSError as error:
        raise SparringError(f"{str(out)!r} could not be written, and nothing is left of it: {error}.") from error


def check_free(out: Path) -> None:
    """Checks that a data set may be written.

    Raises:
        UsageError: If there is something already.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{str(out)!r} is there already, and is not an empty folder; name another place.")

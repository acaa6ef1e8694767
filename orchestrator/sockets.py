"""Folders for unix sockets and whatever else lasts as long as a run; those of killed runs are cleared away."""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_PREFIX: Final = "sparring-"
_LOCK: Final = "lock"


@contextmanager
def socket_folder() -> Iterator[str]:
    """A folder for unix sockets, whose paths must be short: an output folder's may be too long.

    Whoever is killed cannot remove it; the next one to make such a folder does, and tells by its lock.
    """
    _clear_away()
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as folder, (Path(folder) / "new").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (Path(folder) / "new").rename(Path(folder) / _LOCK)  # only now, so that nobody ever sees it unlocked
        yield folder


def _clear_away() -> None:
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/{_LOCK}"):
        try:
            with path.open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path.parent, ignore_errors=True)
        except OSError:  # it is in use, or somebody else's
            continue

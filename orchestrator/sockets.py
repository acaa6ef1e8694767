"""Folders for unix sockets and whatever else lasts as long as a run; those of killed runs are cleared away."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_PREFIX: Final = "sparring-"
_LOCK: Final = "lock"


@contextmanager
def socket_folder() -> Iterator[Path]:
    """A folder for unix sockets, whose paths must be short: an output folder's may be too long.

    Nobody else gets through the folder around it. The inner one is open, and so are the sockets in it: mounted into a
    container, they can be used by whatever user the container has.

    Whoever is killed cannot remove it; the next one to make such a folder does, and tells by its lock.
    """
    _clear_away()
    private, maker = Path(tempfile.mkdtemp(prefix=_PREFIX)), os.getpid()
    try:
        with (private / "new").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            (private / "new").rename(private / _LOCK)  # only now, so that nobody ever sees it unlocked
            folder = private / "s"
            folder.mkdir()
            folder.chmod(0o755)
            yield folder
    finally:
        if os.getpid() == maker:  # not where a fork of a training program ends, which has a copy of all this
            shutil.rmtree(private, ignore_errors=True)


def _clear_away() -> None:
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/{_LOCK}"):
        try:
            with path.open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path.parent, ignore_errors=True)
        except OSError:  # it is in use, or somebody else's
            continue

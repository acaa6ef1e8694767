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

from sparring.protos.errors import SparringError

_PREFIX: Final = "sparring-"
_LOCK: Final = "lock"
_LONGEST_SOCKET: Final = 107  # bytes in a socket's path, on Linux
_OURS: Final = f"{_PREFIX}12345678/s/policy.sock.frames"
_FORK_SERVERS: Final = "pymp-12345678/listener-12345678"  # as multiprocessing names it


@contextmanager
def socket_folder() -> Iterator[Path]:
    """Makes a folder for unix sockets, whose paths must be short: an output folder's may be too long.

    Nobody else gets through the folder around it. The inner one is open, and so are the sockets in it: mounted into a
    container, they can be used by whatever user the container has.

    Whoever is killed cannot remove it; the next one to make such a folder does, and tells by its lock.

    Raises:
        SparringError: If there is no room for it.
    """
    place, maker = _place(), os.getpid()
    _clear_away(place)
    try:
        private = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
    except OSError as error:
        raise SparringError(
            f"no folder for sockets can be made in {str(place)!r}: {error.strerror}. Make room there, or name another "
            "place with TMPDIR."
        ) from error
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


def temporary_folder(sockets: Path) -> Path | None:
    """Makes a folder for the temporary files of workers, beside that of the sockets: it goes when that goes.

    A worker that is killed cannot remove its own, and there is one in every worker: the socket of the process that
    slots are forked from. None where the path of that one would be too long.
    """
    folder = sockets.parent / "t"
    if not _fits(folder / _FORK_SERVERS):
        return None
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def _place() -> Path:
    """Returns where temporary files go, unless its path (that of a job on a cluster, say) is too long for sockets."""
    named = Path(tempfile.gettempdir())
    return named if _fits(named / _OURS) else Path("/tmp")


def _fits(path: Path) -> bool:
    return len(os.fsencode(path)) <= _LONGEST_SOCKET


def _clear_away(place: Path) -> None:
    for path in place.glob(f"{_PREFIX}*/{_LOCK}"):
        try:
            with path.open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path.parent, ignore_errors=True)
        except OSError:  # it is in use, or somebody else's
            continue

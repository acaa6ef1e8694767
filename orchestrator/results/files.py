"""Files of results: written in one go, and read as what may be anybody's."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path, PurePath
from typing import IO, BinaryIO, Final

from sparring.protos.errors import SparringError

MOST_BYTES: Final = 1 << 30
"""Of a file that is read as a whole."""
_READ: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def open_regular(path: Path) -> BinaryIO:
    """Opens a file to read it, and nothing that has no end, or that waits for somebody: no pipe, and no device.

    Raises:
        OSError: If it is none, or cannot be opened.
    """
    return _regular(os.open(path, _READ), path)


def open_inside(folder: Path, inside: PurePath) -> BinaryIO:
    """Opens a file as `open_regular`, and follows no link on the way to it from a folder, which may be one itself.

    Others may write in there: what is looked at first and opened then may be another file by then. This is opened once.

    Args:
        folder: Where the way begins.
        inside: The way from there.

    Raises:
        OSError: If there is a link or a step back on the way, it is no regular file, or it cannot be opened.
    """
    if inside.is_absolute() or ".." in inside.parts or not inside.name:
        raise OSError(errno.EINVAL, "it is not in the folder", str(inside))
    here = os.open(folder, _READ | os.O_DIRECTORY)
    try:
        for part in inside.parts[:-1]:
            inner = os.open(part, _READ | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=here)
            os.close(here)
            here = inner
        return _regular(os.open(inside.name, _READ | os.O_NOFOLLOW, dir_fd=here), folder / inside)
    finally:
        os.close(here)


def open_to_lock(path: Path) -> IO[str]:
    """Opens a file to lock it, made if it is not there. What it has in it stays, and no link is followed.

    Raises:
        OSError: If it is a link, or cannot be opened.
    """
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666), "w")


def _regular(number: int, path: Path) -> BinaryIO:
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return open(number, "rb")


def read_regular(path: Path) -> str:
    """Returns the text of a file.

    Raises:
        OSError: As `open_regular`, or if it is larger than any that a run writes.
        UnicodeDecodeError: If it is no text.
    """
    return read_bytes(path).decode()


def read_bytes(path: Path, most: int = MOST_BYTES) -> bytes:
    """Returns all of a file.

    Raises:
        OSError: As `open_regular`, or if it has more bytes than `most`.
    """
    with open_regular(path) as file:
        if os.fstat(file.fileno()).st_size <= most:
            content = file.read(most + 1)  # it may grow
            if len(content) <= most:
                return content
    raise OSError(errno.EFBIG, f"it has more than {most:,} bytes", str(path))


def replace_file(path: Path, content: str | bytes) -> None:
    """Writes a file in one go, so that a reader never sees half of it.

    The folder may be a stranger's: a link that lies there in the way is replaced, and never followed.

    Raises:
        SparringError: If it cannot be written.
    """
    temporary = path.with_name(path.name + ".new")
    try:
        temporary.unlink(missing_ok=True)  # of who was killed while writing, or a link
        number = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
        with open(number, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        temporary.replace(path)
    except OSError as error:
        raise SparringError(f"{str(path)!r} cannot be written: {error.strerror}.") from error

"""Files of results: written in one go, and read as what may be anybody's."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO, Final

from sparring.protos.errors import SparringError

MOST_BYTES: Final = 1 << 30
"""Of a file that is read as a whole."""


def open_regular(path: Path) -> BinaryIO:
    """Opens a file to read it, and nothing that has no end, or that waits for somebody: no pipe, and no device.

    Raises:
        OSError: If it is none, or cannot be opened.
    """
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
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
    with open_regular(path) as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise OSError(errno.EFBIG, f"it has more than {MOST_BYTES:,} bytes", str(path))
    return content.decode()


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

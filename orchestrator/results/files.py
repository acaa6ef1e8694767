"""Files of results that are written in one go."""

from __future__ import annotations

import os
from pathlib import Path

from sparring.protos.errors import SparringError


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

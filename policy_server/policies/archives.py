"""Zip files from elsewhere (`.npz`, `.pt`): a small one may unpack to more than a machine has."""

from __future__ import annotations

import zipfile
from collections.abc import Container
from pathlib import Path

from sparring.protos import unreadable
from sparring.protos.errors import UsageError


def check_archive(path: Path, most: int, members: Container[str] | None = None) -> None:
    """Makes sure that an archive does not unpack to more than it may; a file that is none passes.

    Args:
        path: The file.
        most: Bytes.
        members: The ones that will be read, if not all.

    Raises:
        UsageError: If it does, or cannot be read.
    """
    if not zipfile.is_zipfile(path):
        return
    try:
        with zipfile.ZipFile(path) as archive:
            read = [member for member in archive.infolist() if members is None or member.filename in members]
    except unreadable.ARCHIVE as error:
        raise UsageError(f"{str(path)!r} is a damaged archive ({error}); was it copied to the end?") from error
    size = sum(member.file_size for member in read)
    if size > most:
        raise UsageError(
            f"{str(path)!r} has {path.stat().st_size} bytes and would unpack to {size}, where {most} are the most that "
            "are taken; it is not read."
        )

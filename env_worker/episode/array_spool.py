"""Arrays that pile up during an episode: on disk, so that memory does not grow with the episode."""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO, BinaryIO, Final, cast

import numpy as np

from sparring.protos.pieces import AttachmentMissing
from sparring.protos.tensor import Array

# Images of simulators shrink to a fraction with the quickest; the archive is compressed well, once, at the end.
_LEVEL: Final = 1


@dataclass
class _Column:
    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]
    places: list[tuple[int, int]] = field(default_factory=list)


class ArraySpool:
    """Takes arrays of some names, and writes those of one name out as one array.

    Nothing is left behind, however the process ends: the file has no name.
    """

    def __init__(self) -> None:
        self._file = temporary_file()
        self._columns: dict[str, _Column] = {}
        self.size = 0
        """Bytes on disk."""

    @property
    def names(self) -> list[str]:
        """Of all arrays so far, in the order of their first."""
        return list(self._columns)

    def add(self, name: str, array: Array) -> None:
        """Adds an array; all of one name have one type and one shape.

        Raises:
            AttachmentMissing: If there is no more room on the disk.
        """
        column = self._columns.setdefault(name, _Column(array.dtype, array.shape))
        if (array.dtype, array.shape) != (column.dtype, column.shape):
            raise ValueError(f"{name!r} was {column.dtype}{column.shape}, and is {array.dtype}{array.shape} now")
        content = zlib.compress(np.ascontiguousarray(array).data, _LEVEL)
        try:
            self._file.write(content)
        except OSError as error:
            raise _no_room(error) from error
        column.places.append((self.size, len(content)))
        self.size += len(content)

    def write(self, name: str, to: IO[bytes]) -> None:
        """Writes what `np.save` would write of all arrays of a name, stacked; one of them at a time is in memory."""
        column = self._columns[name]
        header = {
            "descr": np.lib.format.dtype_to_descr(column.dtype),
            "fortran_order": False,
            "shape": (len(column.places), *column.shape),
        }
        np.lib.format.write_array_header_1_0(to, header)
        for content in self._contents(column):
            to.write(content)

    def close(self) -> None:
        """Frees the disk."""
        self._file.close()

    def _contents(self, column: _Column) -> Iterator[bytes]:
        for place, length in column.places:
            self._file.seek(place)
            yield zlib.decompress(self._file.read(length))


def temporary_file() -> BinaryIO:
    """Opens a file without a name, in the folder that TMPDIR names.

    Raises:
        AttachmentMissing: If there is no room for it.
    """
    try:
        return cast(BinaryIO, tempfile.TemporaryFile(prefix="sparring-"))
    except OSError as error:
        raise _no_room(error) from error


def _no_room(error: OSError) -> AttachmentMissing:
    folder = tempfile.gettempdir()
    return AttachmentMissing(f"it could not be written to {folder!r} on the worker: {error.strerror}.")

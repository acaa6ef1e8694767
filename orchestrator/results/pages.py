"""Reads the rows of an SQLite file page by page, without SQLite: of a damaged file, each page that is whole is read.

The layout is that of https://www.sqlite.org/fileformat2.html: a table's rows are the cells of its leaf pages; a row
that does not fit goes on in a chain of overflow pages; new pages are in the write-ahead log until they are copied back.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

Value = str | int | float | bytes | None

_MAGIC: Final = b"SQLite format 3\0"
_FILE_HEADER: Final = 100
_LEAF_OF_A_TABLE: Final = 0x0D
_LOG_HEADER: Final = 32
_FRAME_HEADER: Final = 24
_USUAL_SIZE: Final = 4096
_LONGEST_ROW: Final = 64 * 1024 * 1024
_LENGTHS: Final = {0: 0, 1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8, 7: 8, 8: 0, 9: 0}
_FLOAT: Final = 7


class _Unreadable(Exception):
    """These bytes are no row."""


@dataclass(frozen=True)
class StoredRow:
    """A row as it lies in a file, of whichever table.

    Attributes:
        number: Its rowid.
        values: In the order of the columns.
    """

    number: int
    values: tuple[Value, ...]


def stored_rows(path: Path) -> Iterator[StoredRow]:
    """Yields every row that can be read: of the file first, then of its write-ahead log from old to new.

    A row may come several times, in versions of which the last is the newest.
    """
    main = path.read_bytes() if path.exists() else b""
    log_path = path.with_name(f"{path.name}-wal")
    log = log_path.read_bytes() if log_path.exists() else b""
    size, reserved = _page_size(main, log)
    pages = {n + 1: main[n * size : (n + 1) * size] for n in range(-(-len(main) // size))}
    for number, page in pages.items():
        yield from _rows_of(number, page, pages, size - reserved)
    for start in range(_LOG_HEADER, len(log), _FRAME_HEADER + size):
        number = int.from_bytes(log[start : start + 4], "big")
        page = log[start + _FRAME_HEADER : start + _FRAME_HEADER + size]
        pages[number] = page
        yield from _rows_of(number, page, pages, size - reserved)


def _page_size(main: bytes, log: bytes) -> tuple[int, int]:
    """Returns the size of pages, and how many bytes at their end are not used."""
    if main.startswith(_MAGIC):
        size = int.from_bytes(main[16:18], "big")
        size = 65536 if size == 1 else size
        if size in _SIZES:
            return size, main[20]
    size = int.from_bytes(log[8:12], "big")
    return (size if size in _SIZES else _USUAL_SIZE), 0


_SIZES: Final = {1 << power for power in range(9, 17)}


def _rows_of(number: int, page: bytes, pages: Mapping[int, bytes], usable: int) -> Iterator[StoredRow]:
    start = _FILE_HEADER if number == 1 else 0
    if len(page) < start + 8 or page[start] != _LEAF_OF_A_TABLE:
        return
    (count,) = struct.unpack_from(">H", page, start + 3)
    for cell in range(count):
        pointer = page[start + 8 + 2 * cell : start + 10 + 2 * cell]
        try:
            yield _row(page, int.from_bytes(pointer, "big"), pages, usable)
        except _Unreadable:
            continue


def _row(page: bytes, start: int, pages: Mapping[int, bytes], usable: int) -> StoredRow:
    size, start = _varint(page, start)
    number, start = _varint(page, start)
    if size > _LONGEST_ROW:
        raise _Unreadable
    whole, least = usable - 35, (usable - 12) * 32 // 255 - 23
    here = size
    if size > whole:
        here = least + (size - least) % (usable - 4)
        here = here if here <= whole else least
    payload = bytearray(page[start : start + here])
    following = int.from_bytes(page[start + here : start + here + 4], "big")
    seen: set[int] = set()
    while len(payload) < size:
        if following in seen or following not in pages:
            raise _Unreadable
        seen.add(following)
        further = pages[following]
        payload += further[4 : 4 + min(usable - 4, size - len(payload))]
        following = int.from_bytes(further[:4], "big")
    return StoredRow(number, _values(bytes(payload)))


def _values(payload: bytes) -> tuple[Value, ...]:
    end, at = _varint(payload, 0)
    kinds = []
    while at < end:
        kind, at = _varint(payload, at)
        kinds.append(kind)
    values = []
    for kind in kinds:
        length = _LENGTHS.get(kind) if kind < 12 else (kind - 12) // 2
        if length is None or at + length > len(payload):
            raise _Unreadable
        values.append(_value(kind, payload[at : at + length]))
        at += length
    return tuple(values)


def _value(kind: int, content: bytes) -> Value:
    if kind == 0:
        return None
    if kind in (8, 9):
        return kind - 8
    if kind == _FLOAT:
        (number,) = struct.unpack(">d", content)
        return float(number)
    if kind < 12:
        return int.from_bytes(content, "big", signed=True)
    if kind % 2 == 0:
        return content
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise _Unreadable from error


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Reads an integer of one to nine bytes; returns it, and where it ends."""
    value = 0
    for count in range(9):
        if at + count >= len(data):
            raise _Unreadable
        byte = data[at + count]
        if count == 8:
            value = (value << 8) | byte
            break
        value = (value << 7) | (byte & 0x7F)
        if byte < 0x80:
            break
    if value >= 1 << 63:
        value -= 1 << 64
    if value < 0:
        raise _Unreadable  # no size, kind or number of ours is
    return value, at + count + 1

"""Films and recordings on their way from a slot to the run's folder: in pieces, since no message is large enough."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import BinaryIO, Final, Literal, get_args

from sparring.protos import evaluation_pb2 as pb
from sparring.protos.errors import SparringError

AttachmentKind = Literal["video", "recording"]
"""What comes with a result, beside the record."""
KINDS: Final[tuple[AttachmentKind, ...]] = get_args(AttachmentKind)

PIECE_BYTES: Final = 1 << 20
"""The most that one piece has."""
MOST_BYTES: Final = 2 << 30
"""The most that a film or a recording may have. An episode whose film is larger counts, and its film is missing."""

_WORDS: Final[dict[int, AttachmentKind]] = {pb.ATTACHMENT_VIDEO: "video", pb.ATTACHMENT_RECORDING: "recording"}
_NUMBERS: Final = {word: pb.Attachment.ValueType(number) for number, word in _WORDS.items()}


class AttachmentMissing(SparringError):
    """A film or a recording cannot be had. What came of its episode counts nevertheless."""


def pieces_of(lease: int, kind: AttachmentKind, file: BinaryIO) -> Iterator[pb.Piece]:
    """Yields a file in pieces; one at a time is in memory."""
    file.seek(0)
    while content := file.read(PIECE_BYTES):
        yield pb.Piece(lease=lease, what=_NUMBERS[kind], content=content)


def kind_of(piece: pb.Piece) -> AttachmentKind | None:
    """Returns of what a piece is; None if that is not known here."""
    return _WORDS.get(piece.what)


def declare(result: pb.Result, kind: AttachmentKind, size: int) -> None:
    """Says in a result how much has come before it."""
    setattr(result, f"{kind}_bytes", size)


def declared(result: pb.Result, kind: AttachmentKind) -> int:
    """Returns how much a result says has come before it."""
    return int(getattr(result, f"{kind}_bytes"))


def size_of(file: BinaryIO) -> int:
    """Returns how many bytes a file has."""
    return file.seek(0, os.SEEK_END)


def check_size(kind: AttachmentKind, size: int, most: int) -> None:
    """Checks that something is not too large to be passed on.

    Raises:
        AttachmentMissing: If it is.
    """
    if size > most:
        raise AttachmentMissing(f"the {kind} would have more than {most:,} bytes.")

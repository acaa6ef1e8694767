"""Messages over a unix socket without gRPC, which costs ten times the CPU of carrying a few hundred bytes.

A policy server that listens at `policy.sock` listens at `policy.sock.frames`, too. The messages there are those of a
Rollout stream, in the same order and by the same rules; each is a frame: four bytes with its length, a byte with its
kind, and its content. The first frame of a client opens the stream and has its token; the server ends a stream that
failed with a frame that has gRPC's status. Who finds no such socket, or cannot use it, talks gRPC at the other one.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Final

from sparring.protos.errors import SparringError
from sparring.protos.net.address import Address

VERSION: Final = 1
"""Of how messages are carried, the first byte of the first frame; what they say has a version of its own."""

MESSAGE: Final = 0
"""A frame with a message of the contract."""
END: Final = 1
"""A frame of the server, and its last: a byte with gRPC's status code, and a sentence."""
OPENING: Final = 2
"""A client's first frame: a byte with `VERSION`, and what its token's header would be."""

MOST_OPENING: Final = 8192
"""Bytes of the first frame."""

_HEADER: Final = struct.Struct("<IB")
_AT_ONCE: Final = 1 << 16
"""Bytes that are taken without knowing what they are; what is longer is read to where it will stay."""
_LONGEST_PATH: Final = 107
"""Bytes of a socket's path, on Linux."""


class FrameTooLong(SparringError):
    """A frame says that it is longer than any that may come."""


def frames_path(address: Address) -> Path | None:
    """Returns where the frames of a server are taken that listens there; None: nowhere."""
    path = f"{address.path}.frames"
    return Path(path) if address.is_unix and len(os.fsencode(path)) <= _LONGEST_PATH else None


def frame(kind: int, content: bytes) -> bytes:
    """Returns a frame."""
    return _HEADER.pack(len(content), kind) + content


class FrameReader:
    """Makes frames of bytes as they come.

    Args:
        most: Bytes that a frame may have.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._bytes = bytearray(_AT_ONCE)
        self._begin = self._end = 0
        self._long: bytearray | None = None
        self._long_end = self._long_kind = 0

    @property
    def space(self) -> memoryview:
        """Where the next bytes go; never empty, if every whole frame is taken first."""
        if self._long is not None:
            return memoryview(self._long)[self._long_end :]
        if self._begin:  # what is left of a frame goes to the front, so that there is room for the rest of it
            left = self._end - self._begin
            self._bytes[:left] = self._bytes[self._begin : self._end]
            self._begin, self._end = 0, left
        return memoryview(self._bytes)[self._end :]

    def came(self, count: int) -> None:
        """Hears how many bytes were written to `space`."""
        if self._long is None:
            self._end += count
        else:
            self._long_end += count

    def take(self) -> tuple[int, bytes] | None:
        """Returns the next frame, its kind and its content, if it is there as a whole.

        Raises:
            FrameTooLong: If it may not come.
        """
        if self._long is not None:
            if self._long_end < len(self._long):
                return None
            content, self._long = bytes(self._long), None
            return self._long_kind, content
        here = self._end - self._begin - _HEADER.size
        if here < 0:
            return None
        length, kind = _HEADER.unpack_from(self._bytes, self._begin)
        if length > self.most:
            raise FrameTooLong(f"a message of {length} bytes came where {self.most} are the most.")
        begin = self._begin + _HEADER.size
        if here >= length:
            content = bytes(memoryview(self._bytes)[begin : begin + length])
            self._begin = begin + length
            if self._begin == self._end:
                self._begin = self._end = 0
            return kind, content
        if length + _HEADER.size > _AT_ONCE:
            self._long, self._long_kind, self._long_end = bytearray(length), kind, here
            self._long[:here] = self._bytes[begin : self._end]
            self._begin = self._end = 0
        return None

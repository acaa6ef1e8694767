"""A session over frames: with a policy server on the same machine, for a fifth of what gRPC costs."""

from __future__ import annotations

import socket
import struct
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import grpc
from google.protobuf.message import DecodeError

from sparring.policy_server.errors import translated
from sparring.policy_server.session_client import RemoteSession, serialized
from sparring.protos import policy_pb2 as pb
from sparring.protos.net.address import Address
from sparring.protos.net.connection import Connection
from sparring.protos.net.frames import END, MESSAGE, OPENING, VERSION, FrameReader, FrameTooLong, frame, frames_path
from sparring.protos.net.rpc import StreamEnded
from sparring.protos.tensor import MAX_TENSOR_BYTES

_CONNECT_SECONDS: Final = 1.0
_STATUS_SECONDS: Final = 1.0
"""For the status of a stream that the server has ended."""
_CREDENTIALS: Final = struct.Struct("iII")
"""As Linux tells who listens: process, user, group."""
_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}


class FramedSession(RemoteSession):
    """One stream to the server, over a socket of its own.

    Args:
        connection: The way to the server.
        opened: The socket.
        timeout: Seconds to wait for each answer.
    """

    def __init__(self, connection: Connection, opened: socket.socket, timeout: float) -> None:
        super().__init__(f"the server at {connection.address}")
        self._address = connection.address
        self._socket = opened
        self._timeout = timeout
        self._reader = FrameReader(MAX_TENSOR_BYTES)
        self.is_lost = False
        """Whether the server has hung up without a word."""
        token = dict(connection.metadata).values()
        self._unsent = frame(OPENING, bytes([VERSION]) + "".join(token).encode())

    @classmethod
    def connected(cls, connection: Connection, timeout: float) -> FramedSession | None:
        """Returns a session with a server that takes frames; None if it is not to be had that way, or not now."""
        path = frames_path(connection.address)
        if path is None:
            return None
        opened = socket.socket(socket.AF_UNIX)
        try:
            opened.settimeout(_CONNECT_SECONDS)
            opened.connect(str(path))
            if _is_of_the_same(opened, connection.address):
                return cls(connection, opened, timeout)
        except OSError:  # nobody listens, or we may not: the other socket tells, or waits
            pass
        opened.close()
        return None

    @property
    def is_over(self) -> bool:
        """Whether the stream has ended, whoever ended it, as far as this side has heard."""
        try:
            self._socket.settimeout(0)
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True  # it says something that nobody has asked for, or has hung up

    def close(self) -> None:
        """Ends the stream; a thread that waits for an answer hears of it."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _answer(self, request: pb.RolloutRequest | bytes, seconds: float | None) -> pb.RolloutResponse:
        seconds = self._timeout if seconds is None else seconds
        try:
            return self._exchanged(serialized(request), time.monotonic() + seconds)
        except StreamEnded as end:
            self.close()
            raise translated(end, self._address, seconds) from end

    def _exchanged(self, request: bytes, due: float) -> pb.RolloutResponse:
        try:
            self._send(request, due)
            kind, content = self._next(due)
        except TimeoutError:
            raise StreamEnded(grpc.StatusCode.DEADLINE_EXCEEDED, "") from None
        except OSError as error:
            raise self._status_of(error) from error
        except FrameTooLong as error:
            raise StreamEnded(grpc.StatusCode.INTERNAL, error.sentence) from error
        if kind == END:
            raise _ended(content)
        try:
            if kind == MESSAGE:
                return pb.RolloutResponse.FromString(content)
        except DecodeError:
            pass
        raise StreamEnded(grpc.StatusCode.INTERNAL, "it answered with what is not of this protocol.")

    def _send(self, request: bytes, due: float) -> None:
        self._socket.settimeout(_left(due))
        self._socket.sendall(self._unsent + frame(MESSAGE, request))
        self._unsent = b""

    def _next(self, due: float) -> tuple[int, bytes]:
        while (found := self._reader.take()) is None:
            self._socket.settimeout(_left(due))
            count = self._socket.recv_into(self._reader.space)
            if not count:
                raise ConnectionResetError("it closed the connection.")
            self._reader.came(count)
        return found

    def _status_of(self, error: OSError) -> StreamEnded:
        """Returns why the server has hung up: what it said before that, if it did."""
        with suppress(OSError, FrameTooLong):
            kind, content = self._next(time.monotonic() + _STATUS_SECONDS)
            if kind == END:
                return _ended(content)
        self.is_lost = True
        return StreamEnded(grpc.StatusCode.UNAVAILABLE, str(error.strerror or error))


def _ended(content: bytes) -> StreamEnded:
    code = _CODES.get(content[0] if content else -1, grpc.StatusCode.UNKNOWN)
    return StreamEnded(code, content[1:].decode("utf-8", "replace"))


def _left(due: float) -> float:
    left = due - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _is_of_the_same(opened: socket.socket, address: Address) -> bool:
    """Returns whether whoever listens there is of whom the other socket is: a token must not go elsewhere.

    Whose the path is says nothing: another may be there by the time that one connects to it.

    Raises:
        OSError: If the other socket is not there.
    """
    _, user, _ = _CREDENTIALS.unpack(opened.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return bool(user == Path(address.path).lstat().st_uid)

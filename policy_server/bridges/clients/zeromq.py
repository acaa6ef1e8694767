"""ZeroMQ's wire at the end of a client that asks one question at a time: the server may be anybody's."""

from __future__ import annotations

import socket
import time

from sparring.policy_server.bridges import zmtp
from sparring.policy_server.bridges.arrays import MOST_BYTES

_AT_ONCE = 1 << 20


class ZeroMqConnection:
    """One connection.

    Args:
        host: Of the server.
        port: Of the server.
        timeout: Seconds to connect and to shake hands, and for each question with its answer.

    Raises:
        OSError: If nobody is there, or not in time.
        BadMessage: If it is somebody else.
    """

    def __init__(self, host: str, port: int, timeout: float) -> None:
        self._timeout = timeout
        self._socket = socket.create_connection((host, port), timeout)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._deadline = time.monotonic() + timeout
            self._send(zmtp.GREETING)
            zmtp.check_greeting(self._bytes(len(zmtp.GREETING)))
            self._send(zmtp.ready("REQ"))
            flags, size = self._header()
            zmtp.check_ready(flags, self._bytes(size))
        except BaseException:
            self.close()
            raise

    def ask(self, question: bytes) -> bytes:
        """Returns the answer to a question.

        Raises:
            TimeoutError: If it does not come in time.
            OSError: If the server has gone.
            BadMessage: If what comes is no answer, or too large.
        """
        self._deadline = time.monotonic() + self._timeout
        self._send(zmtp.message(question))
        zmtp.check_first(*self._next_header())
        flags, size = self._next_header()
        zmtp.check_second(flags)
        return self._bytes(size)

    def close(self) -> None:
        """Ends the connection."""
        self._socket.close()

    def _next_header(self) -> tuple[int, int]:
        """Returns what is said of the next frame that is none of ZeroMQ's own."""
        while True:
            flags, size = self._header()
            if not flags & zmtp.COMMAND:
                return flags, size
            if answer := zmtp.pong(self._bytes(size)):
                self._send(answer)

    def _header(self) -> tuple[int, int]:
        (flags,) = self._bytes(1)
        return flags, zmtp.size_of(flags, self._bytes(zmtp.length_of_size(flags)), MOST_BYTES)

    def _bytes(self, count: int) -> bytes:
        found = bytearray()  # of what has come, whatever was said of its size
        while len(found) < count:
            self._wait_no_longer()
            more = self._socket.recv(min(count - len(found), _AT_ONCE))
            if not more:
                raise ConnectionResetError("it has ended the connection")
            found += more
        return bytes(found)

    def _send(self, data: bytes) -> None:
        self._wait_no_longer()
        self._socket.sendall(data)

    def _wait_no_longer(self) -> None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        self._socket.settimeout(left)

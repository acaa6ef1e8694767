"""A web socket on which each question has one answer, with deadlines."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Final

from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI
from websockets.sync.client import ClientConnection, connect

from sparring.policy_server.bridges.arrays import MOST_BYTES

LOST: Final = (ConnectionClosed, OSError, EOFError)
"""What a connection that has ended raises."""
NOT_THERE: Final = (*LOST, TimeoutError, InvalidHandshake, InvalidURI)
"""What is raised where there is nobody, or somebody else."""
_CLOSE_SECONDS: Final = 2.0


class WebSocket:
    """One connection.

    Args:
        url: Of the server.
        timeout: Seconds to connect, and for the other side to take what it is sent.
        headers: To send with the request.

    Raises:
        One of `NOT_THERE`.
    """

    def __init__(self, url: str, *, timeout: float, headers: Mapping[str, str] | None = None) -> None:
        self._kept = contextlib.ExitStack()
        opening = connect(
            url,
            compression=None,
            max_size=MOST_BYTES,
            open_timeout=timeout,
            close_timeout=_CLOSE_SECONDS,
            # A policy that computes for long answers no pings: its event loop is what computes. We have deadlines.
            ping_interval=None,
            additional_headers=dict(headers or {}),
            proxy=None,  # a policy server is on the own network, whatever a browser is told
        )
        self._connection: ClientConnection = self._kept.enter_context(opening)
        self._timeout = timeout
        # A server that reads nothing any more: without it, sending would wait for as long as that takes.
        seconds = struct.pack("ll", int(timeout), round(timeout % 1 * 1_000_000))
        self._connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, seconds)

    def send(self, message: bytes) -> None:
        """Sends one message.

        Raises:
            TimeoutError: If the other side does not take it in time.
        """
        began = time.monotonic()
        try:
            with self._cut_when_late():
                self._connection.send(message)
        except LOST as error:
            if time.monotonic() - began >= self._timeout:
                raise TimeoutError("the other side does not read") from error
            raise

    @contextlib.contextmanager
    def _cut_when_late(self) -> Iterator[None]:
        """Ends an encrypted connection after the deadline: TLS tries again when the kernel says that it is late."""
        encrypted = self._connection.socket
        if not isinstance(encrypted, ssl.SSLSocket):
            yield
            return
        deadline = threading.Timer(self._timeout, lambda: socket.socket.shutdown(encrypted, socket.SHUT_RDWR))
        deadline.daemon = True
        deadline.start()
        try:
            yield
        finally:
            deadline.cancel()

    def receive(self, timeout: float) -> bytes | str:
        """Returns the next message.

        Raises:
            TimeoutError: If none comes in time.
        """
        return self._connection.recv(timeout)

    def has_unasked(self) -> bool:
        """Returns whether a message is there that nobody has asked for; it is taken."""
        try:
            self._connection.recv(0)
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        """Ends the connection."""
        with contextlib.suppress(Exception):  # it may be broken in any way
            self._kept.close()

"""A listening socket that takes so many connections at a time and no more, whoever makes them."""

from __future__ import annotations

import errno
import socket
from typing import Any
from weakref import WeakSet

from sparring.protos.net.address import Address


class BoundedListener(socket.socket):
    """Listens, and closes what comes above a limit at once: before a request, a token, or a TLS handshake.

    Args:
        family: As of any socket; and so on.
        most: Connections at a time.
        most_of_a_peer: From one address; 0: as many.
    """

    def __init__(self, *family: Any, most: int, most_of_a_peer: int = 0) -> None:
        super().__init__(*family)
        self._most = most
        self._most_of_a_peer = most_of_a_peer or most
        self._accepted: WeakSet[socket.socket] = WeakSet()

    def accept(self) -> tuple[socket.socket, Any]:
        """Accepts a connection.

        Raises:
            ConnectionAbortedError: If there are too many; asyncio goes on with the next one then.
        """
        connection, peer = super().accept()
        if self._is_one_too_many(peer):
            connection.close()
            raise ConnectionAbortedError("there are too many connections")
        self._accepted.add(connection)
        return connection, peer

    def _is_one_too_many(self, peer: Any) -> bool:
        there = [one for one in self._accepted if one.fileno() >= 0]
        return len(there) >= self._most or sum(_host(one) == peer[0] for one in there) >= self._most_of_a_peer


def _host(connection: socket.socket) -> str:
    try:
        return str(connection.getpeername()[0])
    except OSError:  # it has gone
        return ""


def listeners(address: Address, *, most: int, most_of_a_peer: int = 0) -> list[BoundedListener]:
    """Listens at all that a name of this machine stands for, such as both of localhost's addresses.

    Raises:
        OSError: If it cannot be listened there.
    """
    found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    made: list[BoundedListener] = []
    port, problem = address.port, OSError("it has no address")
    for family, kind, protocol, _, place in dict.fromkeys(found):
        try:
            listener = BoundedListener(family, kind, protocol, most=most, most_of_a_peer=most_of_a_peer)
        except OSError as error:  # a kernel without this family
            problem = error
            continue
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind((place[0], port, *place[2:]))
            listener.listen(128)
        except OSError as error:
            listener.close()
            problem = error
            if error.errno == errno.EADDRNOTAVAIL:  # a machine without IPv6 may have names for it
                continue
            for one in made:
                one.close()
            raise
        port = listener.getsockname()[1]
        made.append(listener)
    if not made:
        raise problem
    return made

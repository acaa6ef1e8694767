"""One address has so many connections to a server and no more, whoever accepts them."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from sparring.protos.net.address import Address
from sparring.protos.net.peers import PeerLimit


class Accepting:
    """A server that accepts and says nothing."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.address = Address("tcp", "127.0.0.1", self._listener.getsockname()[1])
        self._accepted: list[socket.socket] = []

    def connect(self, source: str) -> socket.socket:
        """The client's end of a new connection."""
        here = (self.address.host, self.address.port)
        one = self._stack.enter_context(socket.create_connection(here, 5, source_address=(source, 0)))
        self._accepted.append(self._stack.enter_context(self._listener.accept()[0]))
        return one


@pytest.fixture
def accepting() -> Iterator[Accepting]:
    with ExitStack() as stack:
        yield Accepting(stack)


def is_open(connection: socket.socket) -> bool:
    connection.settimeout(0.05)
    try:
        return connection.recv(1) != b""
    except TimeoutError:
        return True


def test_the_newest_of_an_address_that_has_too_many_are_ended(accepting: Accepting) -> None:
    limit = PeerLimit([accepting.address, Address("unix", path="/nowhere")], most=2)
    first = [accepting.connect("127.0.0.1") for _ in range(2)]
    assert limit.enforce() == []
    other = accepting.connect("127.0.0.9")
    late = accepting.connect("127.0.0.1")
    assert limit.enforce() == ["127.0.0.1"]
    assert [is_open(one) for one in (*first, other, late)] == [True, True, True, False]
    assert limit.enforce() == [], "what was ended does not count"


def test_who_has_left_makes_room(accepting: Accepting) -> None:
    limit = PeerLimit([accepting.address], most=1)
    accepting.connect("127.0.0.1").close()
    accepting._accepted.pop().close()
    second = accepting.connect("127.0.0.1")
    assert limit.enforce() == []
    assert is_open(second)


def test_connections_to_others_are_left_alone(accepting: Accepting) -> None:
    limit = PeerLimit([accepting.address.with_port(1)], most=0)
    one = accepting.connect("127.0.0.1")
    assert limit.enforce() == []
    assert is_open(one)

"""Who is let in by a web socket: whoever brings the token, in any of the ways that clients have, and nobody else."""

from __future__ import annotations

import base64
import logging
import socket
from contextlib import ExitStack

import pytest
from bridges.served import Telling, serving
from bridges.test_fronts import openpi_client
from certificates import Certificates
from support import wait_for
from websockets.exceptions import ConnectionClosed

from sparring.policy_server.limits import Limits
from sparring.protos.net.address import Address
from sparring.protos.net.bounded_listener import listeners

TOKEN = "a-token-of-more-than-16-characters"
ASKING = (
    b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


def basic(said: str) -> bytes:
    return b"Basic " + base64.b64encode(said.encode())


def answered(port: int, *headers: bytes) -> int:
    """The status that somebody gets who brings these headers."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(ASKING + b"".join(header + b"\r\n" for header in headers) + b"\r\n")
        return int(connection.recv(12)[9:])


@pytest.mark.parametrize("wire", ["openpi:0", "vla-eval:0"])
def test_the_token_in_all_ways_and_whatever_else_comes_in_its_place(
    wire: str, caplog: pytest.LogCaptureFixture
) -> None:
    right = TOKEN.encode()
    with serving(Telling(), wire, token=TOKEN) as (port,):
        for said in (b"Api-Key " + right, b"Bearer " + right, basic(f"any:{TOKEN}")):
            assert answered(port, b"Authorization: " + said) == 101
        assert answered(port) == 401
        for said in (
            right,
            b"Api-Key " + right[:-1],
            b"Api-Key \xff\xfe",
            basic(TOKEN),
            basic("any:another"),
            b"Basic \xff",
            b"Basic ////////",
            b"Basic x",
            b"",
        ):
            assert answered(port, b"Authorization: " + said) == 401, said
        twice = b"Authorization: Api-Key " + right
        assert answered(port, twice, twice) == 401
        page = b"Origin: http://somewhere.example"
        assert answered(port, b"Authorization: Api-Key " + right, page) == 403, "a page in a browser"
    assert not [record for record in caplog.records if record.exc_info or record.levelno >= logging.ERROR]


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=60)


def is_closed(connection: socket.socket) -> bool:
    connection.settimeout(0.2)
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


@pytest.mark.parametrize("encrypted", [False, True])
@pytest.mark.parametrize(
    "limits", [Limits(connections_per_peer=4), Limits(sessions=0, sessions_per_peer=200)], ids=["of a peer", "of all"]
)
def test_who_connects_and_says_nothing_takes_few_places(
    limits: Limits, certificates: Certificates, *, encrypted: bool
) -> None:
    """Whoever has no token: each connection is a file descriptor of the server, until it is told from a client."""
    cert, key = certificates.pair()
    tls = {"tls_cert": cert, "tls_key": key} if encrypted else {}
    most = min(limits.most_of_a_peer, limits.most_connections)
    with serving(Telling(), "openpi:0", token=TOKEN, limits=limits, **tls) as (port,), ExitStack() as stack:
        there = [stack.enter_context(connected(port)) for _ in range(most)]
        more = [stack.enter_context(connected(port)) for _ in range(3)]
        wait_for(lambda: all(map(is_closed, more)))
        assert not is_closed(there[0])
        assert not is_closed(there[-1])
        for connection in there:
            connection.close()
        if not encrypted:
            wait_for(lambda: is_answered(port))


def is_answered(port: int) -> bool:
    try:
        return answered(port) == 401
    except (ConnectionError, ValueError):  # those before it are being closed
        return False


def test_both_addresses_of_a_name_are_listened_at() -> None:
    found = {place[4][0] for place in socket.getaddrinfo("localhost", 0, type=socket.SOCK_STREAM)}
    made = listeners(Address.parse("localhost:0"), most=1)
    try:
        assert {one.getsockname()[0] for one in made} <= found
        assert len({one.getsockname()[1] for one in made}) == 1, "one port"
        with pytest.raises(OSError, match="in use"):
            listeners(Address.parse(f"localhost:{made[0].getsockname()[1]}"), most=1)
    finally:
        for one in made:
            one.close()


def test_who_says_nothing_more_is_let_go_and_who_does_is_not() -> None:
    for seconds, ends in ((1.0, "no message came for too long"), (600.0, "timed out")):
        with (
            serving(Telling(), "openpi:0/libero", limits=Limits(idle_seconds=seconds)) as (port,),
            openpi_client(port) as quiet,
            pytest.raises((ConnectionClosed, TimeoutError), match=ends),
        ):
            quiet.recv(60 if seconds < 60 else 2)

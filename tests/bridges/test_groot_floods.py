"""Whoever connects at GR00T's wire, with a token or without: what they can make the server keep, and for how long."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import msgpack
import numpy as np
import pytest
import zmq
from bridges.served import Telling, serving
from bridges.test_fronts import asking, groot_observation
from support import wait_for

from sparring.policy_server.bridges import zmtp
from sparring.policy_server.bridges.arrays import GROOT, BadMessage
from sparring.policy_server.bridges.clients import zeromq as zeromq_client
from sparring.policy_server.bridges.clients.zeromq import ZeroMqConnection
from sparring.policy_server.bridges.servers import groot, zeromq
from sparring.policy_server.limits import Limits

TOKEN = "a-token-of-more-than-16-characters"
PING = msgpack.packb({"endpoint": "ping"})
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
MORE, LONG, COMMAND = 1, 2, 4


def frame(flags: int, content: bytes) -> bytes:
    if len(content) < 256:
        return bytes([flags, len(content)]) + content
    return bytes([flags | LONG]) + struct.pack(">Q", len(content)) + content


def ready(kind: bytes = b"REQ", more: bytes = b"") -> bytes:
    return frame(COMMAND, b"\x05READY\x0bSocket-Type" + struct.pack(">I", len(kind)) + kind + more)


def request(content: bytes) -> bytes:
    return frame(MORE, b"") + frame(0, content)


class Stranger:
    """Somebody who writes bytes to a server."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection

    def says(self, data: bytes) -> None:
        self.connection.sendall(data)

    def says_on_and_on(self, data: bytes, times: int) -> None:
        for _ in range(times):
            self.says(data)

    def hears(self, seconds: float = 60.0) -> tuple[int, bytes]:
        """The next frame."""
        self.connection.settimeout(seconds)
        flags = self._bytes(1)[0]
        size = int.from_bytes(self._bytes(8 if flags & LONG else 1), "big")
        return flags, self._bytes(size)

    def is_let_go(self, seconds: float = 60.0) -> bool:
        self.connection.settimeout(seconds)
        try:
            while self.connection.recv(1 << 16):
                continue
        except TimeoutError:
            return False
        except ConnectionError:
            return True
        return True

    def _bytes(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self.connection.recv(count - len(data))
            assert more, "it was let go"
            data += more
        return data


@contextmanager
def stranger(port: int, said: bytes | None = None) -> Iterator[Stranger]:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        one = Stranger(connection)
        if said is None:
            one.says(GREETING + ready())
            assert one._bytes(64) == GREETING
            assert one.hears()[1].startswith(b"\x05READY")
        else:
            one.says(said)
        yield one


def test_a_request_has_one_part_however_many_are_sent() -> None:
    """libzmq limits the bytes of a part, and keeps any number of them: 300 MiB of one connection, without a token."""
    with serving(Telling(), "gr00t:0/libero", token=TOKEN, max_observation=1) as (port,):
        with stranger(port) as one:
            part = frame(MORE, bytes(1 << 20))
            one.says(frame(MORE, b""))
            with pytest.raises((ConnectionError, TimeoutError)):
                one.says_on_and_on(part, 300)
        with stranger(port) as one:
            one.says(request(PING))
            one.hears()
            assert b"wants its token" in one.hears()[1]


@pytest.mark.parametrize(
    "said",
    [
        frame(0, PING),  # nothing stands before it
        frame(MORE, b"x") + frame(0, PING),
        frame(MORE, b"") + frame(MORE, PING) + frame(0, b""),
        frame(8, b""),
        bytes([LONG]) + struct.pack(">Q", 2**63),
        frame(MORE, b"") + bytes([LONG]) + struct.pack(">Q", 2**40),
    ],
)
def test_what_is_no_request_ends_its_connection_and_no_other(said: bytes) -> None:
    with serving(Telling(), "gr00t:0/libero") as (port,), asking(port) as ask, stranger(port) as one:
        assert ask("ping")["status"] == "ok"
        one.says(said)
        assert one.is_let_go()
        assert ask("ping")["status"] == "ok"


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" + bytes(64),
        GREETING.replace(b"\x7f\x03", b"\x7f\x01"),
        GREETING.replace(b"NULL\0", b"CURVE"),
        GREETING + frame(0, b"no command"),
        GREETING + frame(COMMAND, b"\x05ERROR\x00"),
        GREETING + ready(more=b"x" * zmtp.MOST_COMMAND),
    ],
)
def test_who_is_no_client_of_zeromq_is_let_go(said: bytes) -> None:
    with serving(Telling(), "gr00t:0/libero") as (port,), stranger(port, said) as one:
        assert one.is_let_go()


def test_what_a_client_says_of_itself_and_pings() -> None:
    about = ready(more=b"")[2:]
    for more, goes in ((0, False), (1, True)):
        room = zmtp.MOST_COMMAND - len(about) + more
        with serving(Telling(), "gr00t:0/libero") as (port,), stranger(port, GREETING + ready(more=b"x" * room)) as one:
            one.says(frame(COMMAND, b"\x04PING\x00\x0aright"))
            if goes:
                assert one.is_let_go()
            else:
                assert one._bytes(64) == GREETING
                assert one.hears()[1].startswith(b"\x05READY")
                assert one.hears() == (COMMAND, b"\x04PONGright")


def test_pings_are_answered_while_the_policy_computes() -> None:
    policy, goes_on = Telling(), threading.Event()
    told = policy.tell

    def slow(*given: object) -> object:
        goes_on.wait(60)
        return told(*given)  # type: ignore[arg-type]

    policy.tell = slow  # type: ignore[assignment, method-assign]
    asked = {"endpoint": "get_action", "data": {"observation": groot_observation(0)}}
    with serving(policy, "gr00t:0/libero") as (port,), stranger(port) as one:
        one.says(request(GROOT.write(asked)))
        wait_for(lambda: bool(policy.batches))
        one.says(frame(COMMAND, b"\x04PING\x00\x00x"))
        assert one.hears() == (COMMAND, b"\x04PONGx")
        goes_on.set()
        assert one.hears() == (MORE, b"")
        assert b"action.x" in one.hears()[1]


def test_who_sends_on_and_on_does_not_stop_all_others() -> None:
    with serving(Telling(), "gr00t:0/libero") as (port,), stranger(port) as one, asking(port) as ask:
        stop = threading.Event()

        def flood() -> None:
            one.connection.settimeout(0.2)
            while not stop.is_set():
                try:
                    one.connection.send((request(PING) + frame(COMMAND, b"\x04PING\x00\x00")) * 1000)
                except TimeoutError:  # nobody takes its answers, so nobody reads what it sends
                    continue
                except ConnectionError:
                    return

        flooding = threading.Thread(target=flood)
        flooding.start()
        try:
            for _ in range(20):
                assert ask("ping")["status"] == "ok"
        finally:
            stop.set()
            flooding.join(60)


def test_who_takes_no_answers_is_let_go() -> None:
    with serving(Telling(), "gr00t:0/libero", limits=Limits(taking_seconds=0.5)) as (port,), stranger(port) as one:
        one.connection.settimeout(5)
        with pytest.raises((ConnectionError, TimeoutError)):
            one.says_on_and_on(request(PING) * 1000, 1_000_000)


def test_a_connection_that_says_nothing_is_not_kept() -> None:
    limits = Limits(hello_seconds=0.5, idle_seconds=0.5, taking_seconds=0.5)
    with serving(Telling(), "gr00t:0/libero", limits=limits) as (port,):
        with stranger(port, b"") as one:
            assert one.is_let_go()
        with stranger(port, GREETING) as one:
            assert one.is_let_go()
        with stranger(port) as one:
            assert one.is_let_go()
        with stranger(port) as one:  # within a request
            one.says(frame(MORE, b"") + bytes([0, 10]) + b"x")
            assert one.is_let_go()
    with serving(Telling(), "gr00t:0/libero") as (port,), stranger(port) as one:
        assert not one.is_let_go(1.0)
        one.says(request(PING))
        assert one.hears() == (MORE, b"")


def test_an_address_has_so_many_connections_and_no_more() -> None:
    limits = Limits(connections_per_peer=3)
    with serving(Telling(), "gr00t:0/libero", limits=limits) as (port,):
        with stranger(port), stranger(port), stranger(port) as third:
            with stranger(port, GREETING) as fourth:
                assert fourth.is_let_go()
            third.says(request(PING))
            assert third.hears() == (MORE, b"")
        wait_for(lambda: served(port))


def served(port: int) -> bool:
    """Whether those before are gone."""
    try:
        with stranger(port) as one:
            one.says(request(PING))
            return one.hears() == (MORE, b"")
    except (AssertionError, ConnectionError):
        return False


def test_who_goes_gives_its_place_back_at_once() -> None:
    with serving(Telling(), "gr00t:0/libero", max_sessions=1) as (port,):
        for _ in range(3):
            with asking(port) as ask:
                wait_for(lambda ask=ask: ask("reset", {"options": {}}) == {}, seconds=4)  # nobody is silent for so long


def test_the_room_for_large_requests_is_shared_and_given_back() -> None:
    assert groot._MOST_LARGEST == 8

    async def work() -> None:
        room = zeromq.Room(10)
        await room.take(6)
        await room.take(4)
        await room.take(0)
        second, third = (asyncio.create_task(room.take(size)) for size in (5, 1))
        await asyncio.sleep(0.01)
        assert not second.done()
        assert not third.done(), "in turn"
        room.give(4)
        await asyncio.sleep(0.01)
        assert not second.done()
        second.cancel()
        await asyncio.wait([third], timeout=60)
        assert third.done()
        room.give(6)
        room.give(1)
        await asyncio.wait_for(room.take(10), 60)

    asyncio.run(work())


def test_requests_that_come_at_the_same_time_wait_for_room_and_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groot, "_MOST_LARGEST", 1)
    large = {"endpoint": "ping", "more": np.zeros(900_000, np.uint8)}  # of the MiB that there is room for
    with serving(Telling(), "gr00t:0/libero", max_observation=1) as (port,), stranger(port) as slow:
        slow.says(frame(MORE, b"") + bytes([LONG]) + struct.pack(">Q", 900_000) + bytes(1000))
        with stranger(port) as one, stranger(port) as other:
            one.says(request(GROOT.write(large)))
            time.sleep(0.3)
            with pytest.raises(TimeoutError):
                one.hears(0.3)
            other.says(request(PING))  # which is small
            assert other.hears() == (MORE, b"")
            slow.connection.close()
            assert one.hears() == (MORE, b"")


def test_a_real_client_with_heartbeats_and_large_requests() -> None:
    with serving(Telling(), "gr00t:0/libero") as (port,), zmq.Context() as context, context.socket(zmq.REQ) as client:
        client.setsockopt(zmq.LINGER, 0)
        client.setsockopt(zmq.RCVTIMEO, 60_000)
        client.setsockopt(zmq.HEARTBEAT_IVL, 50)
        client.setsockopt(zmq.HEARTBEAT_TIMEOUT, 2000)
        client.connect(f"tcp://127.0.0.1:{port}")
        for size in (10, 70_000, 5 << 20):
            client.send(GROOT.write({"endpoint": "ping", "more": np.zeros(size, np.uint8)}))
            assert GROOT.read(client.recv())["status"] == "ok"
            time.sleep(0.2)


def test_a_message_that_is_none_is_told_in_a_sentence() -> None:
    with pytest.raises(BadMessage):
        GROOT.read(b"\xc1")
    with serving(Telling(), "gr00t:0/libero") as (port,), stranger(port) as one:
        one.says(request(b"\xc1"))
        assert one.hears() == (MORE, b"")
        assert b"does not have" in one.hears()[1]


# ------------------------------------------------------------------------------------ servers


@contextmanager
def answering(*said: bytes, pause: float = 0.0) -> Iterator[int]:
    """The port of a server that answers the first question with these bytes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                connection, _ = listener.accept()
                with connection:
                    one = Stranger(connection)
                    assert one._bytes(64) == GREETING
                    one.says(GREETING + ready(b"REP"))
                    for _ in range(3):  # what it is, and its question
                        one.hears()
                    for part in said:
                        one.says(part)
                        time.sleep(pause)
                    one.is_let_go(30)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
    thread.join(60)


def asked(port: int, timeout: float = 30.0) -> bytes:
    connection = ZeroMqConnection("127.0.0.1", port, timeout)
    try:
        return connection.ask(b"what?")
    finally:
        connection.close()


def test_an_answer_comes_in_one_part_whatever_a_server_sends() -> None:
    with answering(frame(COMMAND, b"\x04PING\x00\x00") + frame(MORE, b"") + frame(0, b"y" * 300)) as port:
        assert asked(port) == b"y" * 300
    part = frame(MORE, bytes(1 << 20))
    with answering(frame(MORE, b""), *[part] * 300) as port, pytest.raises(BadMessage, match="several parts"):
        asked(port)


def test_how_large_an_answer_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zeromq_client, "MOST_BYTES", 1000)
    for size, fits in ((1000, True), (1001, False)):
        with answering(frame(MORE, b"") + frame(0, bytes(size))) as port:
            if fits:
                assert len(asked(port)) == size
            else:
                with pytest.raises(BadMessage, match="1001 bytes; 1000 are the most"):
                    asked(port)


def test_a_server_that_drips_is_late() -> None:
    drips = [bytes([byte]) for byte in frame(MORE, b"") + frame(0, bytes(200))]
    began = time.monotonic()
    with answering(*drips, pause=0.1) as port, pytest.raises(TimeoutError):
        asked(port, timeout=1.0)
    assert time.monotonic() - began < 60


def test_who_does_not_speak_zeromq_is_no_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" + bytes(64))
                Stranger(connection).is_let_go(30)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(BadMessage, match="does not speak ZeroMQ"):
            asked(listener.getsockname()[1])
        thread.join(60)

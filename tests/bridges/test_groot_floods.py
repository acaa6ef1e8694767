"""Somebody who sends on and on at GR00T's wire: others are answered meanwhile, and little is read ahead."""

from __future__ import annotations

import asyncio
import struct
from types import SimpleNamespace
from typing import Any

import msgpack
import pytest
import zmq
from bridges.served import Telling, serving
from bridges.test_fronts import asking

from sparring.policy_server.bridges.servers import groot
from sparring.policy_server.bridges.servers.groot import GrootFront

MOST = 1000


@pytest.mark.parametrize("message", [[b"me", b"no request"], [b"me", b"", b"a second one"]])
def test_who_sends_on_and_on_does_not_stop_all_others(message: list[bytes]) -> None:
    """As ZeroMQ has it: what has come already is there at once, and nothing is waited for."""
    taken = 0

    class Flooded:
        async def recv_multipart(self, **_: Any) -> list[Any]:
            nonlocal taken
            taken += 1
            if taken > MOST:
                raise asyncio.CancelledError
            return [SimpleNamespace(bytes=part) for part in message]

    async def work() -> int:
        front: Any = object.__new__(GrootFront)
        front._socket, front._clients = Flooded(), SimpleNamespace(is_answered=lambda _: True)
        flood = asyncio.create_task(front._run())
        for _ in range(10):
            await asyncio.sleep(0)
        meanwhile = taken
        await asyncio.gather(flood, return_exceptions=True)
        return meanwhile

    assert asyncio.run(work()) < 20


def test_requests_that_are_read_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each may be as large as the largest observation, and 256 of them were kept for each connection."""
    assert groot._MOST_UNREAD == 1
    kept: list[Any] = []
    listen = GrootFront.listen

    async def listening(front: GrootFront) -> Any:
        kept.append(front)
        return await listen(front)

    monkeypatch.setattr(GrootFront, "listen", listening)
    with serving(Telling(), "gr00t:0/libero") as (port,), asking(port) as ask:
        assert kept[0]._socket.getsockopt(zmq.RCVHWM) == groot._MOST_UNREAD
        assert ask("ping")["status"] == "ok", "and one is enough"
        with zmq.Context() as context, context.socket(zmq.DEALER) as flood:
            flood.setsockopt(zmq.LINGER, 0)
            flood.connect(f"tcp://127.0.0.1:{port}")
            request = msgpack.packb({"endpoint": "ping"})
            for number in range(500):
                flood.send_multipart([b"", request + struct.pack("<I", number)])
            assert ask("ping")["status"] == "ok"

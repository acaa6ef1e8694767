"""Messages that our fronts did not expect: one sentence for whoever sent it, no traceback, and the front goes on."""

from __future__ import annotations

import logging
from typing import Any

import msgpack
import numpy as np
import pytest
from bridges.foreign_servers import VlaEvalServer, pack
from bridges.served import Telling, serving
from bridges.test_fronts import asking, openpi_client
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from sparring.policy_server.bridges import front

TWO = np.zeros(2, np.float32)
"""Is neither equal to a word nor not."""
SAID = "a message that this wire does not have (ValueError)"


def no_traceback(caplog: pytest.LogCaptureFixture) -> bool:
    texts = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert any(SAID in text for text in texts), texts
    return not any(record.exc_info for record in caplog.records if record.levelno >= logging.WARNING)


def test_openpi(caplog: pytest.LogCaptureFixture) -> None:
    with serving(Telling(), "openpi:0/libero") as (port,):
        with openpi_client(port) as connection:
            connection.send(pack({"endpoint": TWO}))
            assert SAID in str(connection.recv(10))
        with openpi_client(port):
            pass
    assert no_traceback(caplog)


def test_vla_eval(caplog: pytest.LogCaptureFixture) -> None:
    def message(kind: str, payload: Any) -> bytes:
        said = {"type": kind, "payload": payload, "seq": 1, "timestamp": 0.0}
        return bytes(msgpack.packb(said, default=VlaEvalServer.packed))

    with serving(Telling(), "vla-eval:0/libero") as (port,):
        with connect(f"ws://127.0.0.1:{port}") as connection:
            connection.send(message("hello", {"protocol_version": TWO}))
            with pytest.raises(ConnectionClosed, match=r"does not have \(ValueError\)"):
                connection.recv(10)
        with connect(f"ws://127.0.0.1:{port}") as connection:
            connection.send(message("hello", {"protocol_version": 1}))
            assert msgpack.unpackb(connection.recv(10))["type"] == "hello"
    assert no_traceback(caplog)


def test_an_observation_of_vla_eval(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    # What no message is known to lead to.
    monkeypatch.setattr(front, "numbers_of", lambda value: np.zeros(2).reshape(3))
    said = {"type": "observation", "payload": {"x": 1}, "seq": 1, "timestamp": 0.0}
    with serving(Telling(), "vla-eval:0/libero") as (port,), connect(f"ws://127.0.0.1:{port}") as connection:
        for _ in range(2):
            connection.send(msgpack.packb(said))
            assert SAID in msgpack.unpackb(connection.recv(10))["payload"]["error"]
    assert no_traceback(caplog)


def test_groot(caplog: pytest.LogCaptureFixture) -> None:
    with serving(Telling(), "gr00t:0/libero") as (port,), asking(port) as ask:
        odd: Any = TWO
        assert SAID in ask(odd)["error"]
        assert ask("ping")["status"] == "ok"
    assert no_traceback(caplog)

"""Servers with `POST /act`: `--policy http://HOST:PORT/act`, in X-VLA's form or in OpenVLA's.

Arrays are JSON there: a map with `__numpy__` (base64), `dtype` and `shape`. X-VLA's form writes each as a string of
that JSON, OpenVLA's as the map itself.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import select
import socket
import ssl
import threading
from collections.abc import Mapping
from typing import Any, Final

from sparring.policy_server.bridges.arrays import MOST_BYTES, plain_array
from sparring.policy_server.bridges.peer import Peer
from sparring.policy_server.policies.base import Instruction, Observation
from sparring.protos.tensor import Array

_LOST: Final = (OSError, http.client.HTTPException)


class _ActPeer(Peer):
    """A connection to such a server."""

    default_port = 8000

    def _connect(self) -> None:
        self._is_cut = False
        self._connection = (
            http.client.HTTPSConnection(
                self._endpoint.host, self._endpoint.port, timeout=self._timeout, context=ssl.create_default_context()
            )
            if self._endpoint.encrypted
            else http.client.HTTPConnection(self._endpoint.host, self._endpoint.port, timeout=self._timeout)
        )
        try:
            self._connection.connect()
        except _LOST as error:
            raise self._unreachable(error) from error

    @property
    def metadata(self) -> Mapping[str, Any]:
        return {}

    def start(self, task: Instruction, seed: int) -> None:
        pass

    def ask(self, observation: Observation) -> Array:
        shown: dict[str, Any] = {name: self._written(array) for name, array in self._layout.shown(observation).items()}
        question = {**shown, **self._layout.sentence(str(observation.task)), **self._layout.constants}
        headers = {"Content-Type": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        self._renew_if_closed()
        # The connection's own limit is for each piece of an answer, of which there may be any number.
        deadline = threading.Timer(self._timeout, self._cut)
        deadline.daemon = True
        deadline.start()
        try:
            self._connection.request("POST", self._endpoint.path or "/act", json.dumps(question), headers)
            answer = self._connection.getresponse()
            status, content = answer.status, answer.read(MOST_BYTES)
            if len(content) < MOST_BYTES and (self._is_cut or answer.length):  # read() does not say that it ended early
                raise http.client.IncompleteRead(content, answer.length)
        except TimeoutError as error:
            raise self._late() from error
        except _LOST as error:
            raise (self._late() if self._is_cut else self._gone(error)) from error
        finally:
            deadline.cancel()
        return self._played(self._actions(status, content))

    def _renew_if_closed(self) -> None:
        """Closes a connection that the server has ended because nothing came for a while: request() makes another."""
        if self._connection.sock is not None:
            closed = select.poll()
            closed.register(self._connection.sock, select.POLLIN)  # nothing is due: it can only be its end
            if closed.poll(0):
                self._connection.close()

    def _actions(self, status: int, content: bytes) -> Any:
        try:
            found = _read(json.loads(content))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            if status != 200:
                raise self._failed(f"HTTP {status}: {content[:200]!r}") from error
            raise self._nonsense(f"what cannot be read ({error})") from error
        if isinstance(found, dict) and (status != 200 or "error" in found):
            raise self._failed(f"HTTP {status}: {found.get('error', found.get('detail', found))}")
        if status != 200 or isinstance(found, str):  # OpenVLA's server says just "error"
            raise self._failed(f"HTTP {status}: {found}")
        return found.get("action", found.get("actions")) if isinstance(found, dict) else found

    def _cut(self) -> None:
        self._is_cut = True
        with contextlib.suppress(OSError, AttributeError):  # it has ended meanwhile
            self._connection.sock.shutdown(socket.SHUT_RDWR)

    def _written(self, array: Array) -> Any:
        return _written(array)

    def close(self) -> None:
        with contextlib.suppress(Exception):  # it may be broken in any way
            self._connection.close()


class OpenVlaPeer(_ActPeer):
    """OpenVLA's form: arrays as maps."""


class XvlaPeer(_ActPeer):
    """X-VLA's form: arrays as strings of JSON."""

    def _written(self, array: Array) -> Any:
        return json.dumps(_written(array))


def _written(array: Array) -> dict[str, Any]:
    return {
        "__numpy__": base64.b64encode(array.tobytes()).decode(),
        "dtype": array.dtype.str,
        "shape": list(array.shape),
    }


def _read(value: Any) -> Any:
    """Returns what JSON says, with arrays in place of what stands for them; a string may be JSON once more."""
    if isinstance(value, str) and value.startswith(("{", "[")):
        value = json.loads(value)
    if isinstance(value, dict) and "__numpy__" in value:
        return plain_array(base64.b64decode(value["__numpy__"], validate=True), value["dtype"], value["shape"])
    if isinstance(value, list) and any(isinstance(one, dict) for one in value):
        return [_read(one) for one in value]  # an array for each action, as OpenVLA-OFT's server has them
    return {name: _read(found) for name, found in value.items()} if isinstance(value, dict) else value

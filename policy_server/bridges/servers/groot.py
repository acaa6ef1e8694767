"""GR00T's wire in front of our policy. Requests of many clients are answered at the same time, and so in batches.

`kill` is refused. Requests come without a word on who sends them but ZeroMQ's own: a client is its connection.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import zmq
import zmq.asyncio

from sparring.policy_server.bridges.arrays import GROOT, BadMessage
from sparring.policy_server.bridges.endpoint import Endpoint
from sparring.policy_server.bridges.front import ForeignClient, Front, told
from sparring.policy_server.bridges.servers.silent_clients import SilentClients
from sparring.protos.net.address import Address
from sparring.protos.tensor import Array

log = logging.getLogger(__name__)

_PREFIX: Final = "action."
_MOST_UNREAD: Final = 1
"""Requests of one connection that ZeroMQ reads ahead, each as large as it may be: nobody sends two at once."""


class GrootFront(Front):
    """Serves GR00T's clients."""

    async def listen(self) -> Address:
        self._context = zmq.asyncio.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.MAXMSGSIZE, self._most_bytes)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.RCVHWM, _MOST_UNREAD)
        self._clients: SilentClients[bytes] = SilentClients(self._rollouts, self._client)
        self._answering: set[asyncio.Task[None]] = set()
        address = self._settings.address
        try:
            self._socket.bind(Endpoint(self._settings.wire, address.host, address.port).zeromq)
        except zmq.ZMQError as error:
            self._socket.close()
            self._context.term()
            raise self._cannot(OSError(error.errno, str(error))) from error
        self._running = [asyncio.create_task(self._run()), asyncio.create_task(self._clients.sweep())]
        bound = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)
        return address.with_port(Endpoint.parse(bound, port=0).port)

    async def close(self) -> None:
        for task in [*self._running, *self._answering]:
            task.cancel()
        await asyncio.gather(*self._running, *self._answering, return_exceptions=True)
        self._clients.close()
        self._socket.close(linger=0)
        self._context.term()

    async def _run(self) -> None:
        while True:
            frames = await self._socket.recv_multipart(copy=False)
            # ZeroMQ hands out what has come already without giving way: whoever sends on and on would stop all others.
            await asyncio.sleep(0)
            # Who, nothing, the request: what a REQ socket sends, and it sends no other before it has its answer.
            if len(frames) != 3 or self._clients.is_answered(who := frames[0].bytes):
                continue
            self._clients.asks(who)
            task = asyncio.create_task(self._answer(who, frames[2].bytes, _host(frames[2])))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)
            task.add_done_callback(lambda _, who=who: self._clients.has_answer(who))  # type: ignore[misc]

    async def _answer(self, who: bytes, data: bytes, host: str) -> None:
        try:
            answer = await self._answered(who, data, host)
        except Exception as error:  # noqa: BLE001  # of what somebody made up
            said = told(error)
            log.warning("a client of GR00T's wire: %s", said)
            answer = {"error": said}
        await self._socket.send_multipart([who, b"", GROOT.write(answer)])

    async def _answered(self, who: bytes, data: bytes, host: str) -> Any:
        request = GROOT.read(data)
        if not isinstance(request, dict):
            raise BadMessage("a request that is no map.")
        if self._token and not hmac.compare_digest(str(request.get("api_token", "")).encode(), self._token.encode()):
            raise BadMessage("Unauthorized: this policy server wants its token as api_token.")
        endpoint = request.get("endpoint")
        if endpoint == "ping":
            return {"status": "ok", "message": "Server is running"}
        if endpoint == "get_modality_config":
            return self._modalities()
        if endpoint not in ("get_action", "reset"):
            raise BadMessage(f"there is no endpoint {str(endpoint)[:40]!r} here.")
        client = await self._clients.get(who, host, begins=endpoint == "reset")
        if endpoint == "reset":
            client.reset()
            return {}
        given = request.get("data")
        if not isinstance(given, dict) or not isinstance(given.get("observation"), dict):
            raise BadMessage("get_action without an observation.")
        shown, instruction = _shown(given["observation"], client)
        return [self._parts(await client.act(shown, instruction)), {}]

    def _modalities(self) -> dict[str, Any]:
        layout = self._settings.layout
        names = {"video": layout.images, "state": layout.states} if layout else {}
        return {
            kind: {"modality_keys": [name.partition(".")[2] for name in known], "delta_indices": [0]}
            for kind, known in names.items()
        }

    def _parts(self, actions: Array) -> dict[str, Array]:
        names = self._settings.layout.actions if self._settings.layout else ()
        if not names:
            return {f"{_PREFIX}actions": actions[None].astype(np.float32)}
        return {name: actions[None, :, i : i + 1].astype(np.float32) for i, name in enumerate(names)}


def _host(frame: zmq.Frame) -> str:
    """Returns the address that a request has come from."""
    try:
        return str(frame.get("Peer-Address"))
    except zmq.ZMQError:
        return ""


def _shown(observation: Mapping[str, Any], client: ForeignClient) -> tuple[dict[str, Any], str]:
    """Returns a batch of one as what it is a batch of.

    Raises:
        BadMessage: If it is another batch.
    """
    shown: dict[str, Any] = {}
    sentence = ""
    for name, value in observation.items():
        if name == client.layout.instruction:
            sentence = str(value[0] if isinstance(value, (list, tuple)) and value else value)
        elif isinstance(value, np.ndarray):
            if value.shape[:2] != (1, 1):
                raise BadMessage(f"{name!r} has the shape {value.shape}; batches of one, of one moment, are answered.")
            shown[name] = value[0, 0]
    return shown, sentence

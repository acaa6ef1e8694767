"""GR00T's wire in front of our policy. Requests of many clients are answered at the same time, and so in batches.

`kill` is refused. Requests come without a word on who sends them: a client is its connection.
"""

from __future__ import annotations

import asyncio
import hmac
import itertools
import logging
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from sparring.policy_server.bridges.arrays import GROOT, BadMessage
from sparring.policy_server.bridges.front import ForeignClient, Front, told
from sparring.policy_server.bridges.servers.silent_clients import SilentClients
from sparring.policy_server.bridges.servers.zeromq import READ_AHEAD, Request, Requests, Room
from sparring.protos.net.address import Address
from sparring.protos.net.bounded_listener import listeners
from sparring.protos.tensor import Array

log = logging.getLogger(__name__)

_PREFIX: Final = "action."
_MOST_LARGEST: Final = 8
"""Of the largest requests that there may be, so many have room at a time: who sends them may have no token."""


class GrootFront(Front):
    """Serves GR00T's clients."""

    async def listen(self) -> Address:
        address, limits = self._settings.address, self._rollouts.limits
        most, of_a_peer = limits.most_connections, limits.most_of_a_peer
        try:
            sockets = await asyncio.to_thread(listeners, address, most=most, most_of_a_peer=of_a_peer)
        except OSError as error:
            raise self._cannot(error) from error
        self._clients: SilentClients[int] = SilentClients(self._rollouts, self._client)
        self._room = Room(_MOST_LARGEST * self._most_bytes)
        self._connections = itertools.count(1)
        self._serving: set[asyncio.Task[None]] = set()
        self._servers = [await asyncio.start_server(self._serve, sock=one, limit=READ_AHEAD) for one in sockets]
        self._sweeping = asyncio.create_task(self._clients.sweep())
        return address.with_port(sockets[0].getsockname()[1])

    async def close(self) -> None:
        for server in self._servers:
            server.close()
        for task in (self._sweeping, *self._serving):
            task.cancel()
        await asyncio.gather(self._sweeping, *self._serving, return_exceptions=True)
        self._clients.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers a client until it goes."""
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        limits, who = self._rollouts.limits, next(self._connections)
        host = str((writer.get_extra_info("peername") or ("",))[0])
        requests = Requests(reader, writer, most=self._most_bytes, room=self._room, seconds=limits.taking_seconds)
        try:
            async with asyncio.timeout(limits.hello_seconds):
                await requests.shake_hands()
            await self._converse(requests, who, host)
        except (OSError, EOFError):  # it has gone, or said nothing for too long
            pass
        except BadMessage as error:
            log.warning("a client of GR00T's wire at %s: %s", host, told(error))
        finally:
            writer.transport.abort()
            self._clients.leaves(who)
            self._serving.discard(task)

    async def _converse(self, requests: Requests, who: int, host: str) -> None:
        # One is read ahead: pings are answered while the policy computes.
        coming = asyncio.create_task(requests.next())
        try:
            while True:
                async with asyncio.timeout(self._rollouts.limits.idle_seconds):
                    request = await coming
                coming = asyncio.create_task(requests.next())
                try:
                    answer = await self._answer(who, request, host)
                finally:
                    requests.forget(request)
                await requests.answer(GROOT.write(answer))
        finally:
            coming.cancel()
            for left in await asyncio.gather(coming, return_exceptions=True):
                if isinstance(left, Request):
                    requests.forget(left)

    async def _answer(self, who: int, request: Request, host: str) -> Any:
        self._clients.asks(who)
        try:
            return await self._answered(who, request.content, host)
        except Exception as error:  # noqa: BLE001  # of what somebody made up
            said = told(error)
            log.warning("a client of GR00T's wire: %s", said)
            return {"error": said}
        finally:
            self._clients.has_answer(who)

    async def _answered(self, who: int, data: bytes, host: str) -> Any:
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

"""vla-eval's wire in front of our policy: one action for each observation, from the chunk that is being played."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from websockets.asyncio.server import ServerConnection

from sparring.policy_server.bridges import vla_eval_asks
from sparring.policy_server.bridges.arrays import VLA_EVAL, BadMessage
from sparring.policy_server.bridges.clients.vla_eval import WIRE_VERSION
from sparring.policy_server.bridges.front import ForeignClient, told
from sparring.policy_server.bridges.servers.websockets_front import WebSocketFront
from sparring.protos.tensor import Array

log = logging.getLogger(__name__)

_LONGEST_VERSION: Final = 100


class VlaEvalFront(WebSocketFront):
    """Serves vla-eval's harness."""

    health_path = "/health"
    health_answer = '{"status": "ok"}'

    async def _converse(self, connection: ServerConnection, client: ForeignClient) -> None:
        chunk: deque[Array] = deque()
        while True:
            kind, payload, number = _read(await self._next(connection))
            if kind == "hello":
                if payload.get("protocol_version") != WIRE_VERSION:
                    raise BadMessage(f"this server speaks version {WIRE_VERSION} of vla-eval's wire.")
                hello: dict[str, Any] = {
                    "model_server": "sparring",
                    "capabilities": {},
                    "protocol_version": WIRE_VERSION,
                    "harness_version": str(payload.get("harness_version", ""))[:_LONGEST_VERSION],
                }
                wanted = client.wanted.keys()
                if asked := vla_eval_asks.asked_by_us(client.layout, client.benchmark, wanted, client.control):
                    hello[vla_eval_asks.PARAMS] = asked
                await self._tell(connection, "hello", hello, number)
            elif kind in ("episode_start", "episode_end"):
                chunk.clear()
                client.reset()
            elif kind == "observation":
                try:
                    if not chunk:
                        chunk.extend(await client.act(*_shown(payload, client)))
                except Exception as error:  # noqa: BLE001  # of what somebody made up
                    said = told(error)
                    log.warning("%s: %s", client.name, said)
                    client.reset()
                    await self._tell(connection, "error", {"error": said}, number)
                else:
                    await self._tell(connection, "action", {"actions": chunk.popleft()}, number)

    async def _tell(self, connection: ServerConnection, kind: str, payload: Mapping[str, Any], number: int) -> None:
        message = {"type": kind, "payload": payload, "seq": number, "timestamp": time.time()}
        await self._send(connection, VLA_EVAL.write(message))


def _shown(payload: Mapping[str, Any], client: ForeignClient) -> tuple[dict[str, Any], str]:
    images = payload.get("images")
    shown = {**payload, **(images if isinstance(images, dict) else {})}
    return shown, str(shown.pop(client.layout.instruction, shown.pop("task_description", "")))


def _read(message: Any) -> tuple[str, dict[str, Any], int]:
    found = VLA_EVAL.read(message) if isinstance(message, bytes) else None
    payload, number = (found.get("payload"), found.get("seq")) if isinstance(found, dict) else (None, None)
    if not isinstance(found, dict) or not isinstance(payload, dict) or not isinstance(number, int):
        raise BadMessage("a message that is not of vla-eval's wire.")
    return str(found.get("type")), payload, number

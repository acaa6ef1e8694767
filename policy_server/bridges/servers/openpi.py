"""openpi's wire in front of our policy.

Its clients say nothing when an episode begins. A connection's first observation does, another sentence does, and
RoboArena's `{"endpoint": "reset"}`.
"""

from __future__ import annotations

import logging

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from sparring.policy_server.bridges.arrays import OPENPI, BadMessage
from sparring.policy_server.bridges.front import ForeignClient, told
from sparring.policy_server.bridges.layout import BridgeLayout
from sparring.policy_server.bridges.servers.websockets_front import WebSocketFront

log = logging.getLogger(__name__)

_RESET = "reset successful"


class OpenpiFront(WebSocketFront):
    """Serves openpi's clients."""

    health_path = "/healthz"
    health_answer = "OK\n"

    async def _converse(self, connection: ServerConnection, client: ForeignClient) -> None:
        await self._send(
            connection, OPENPI.write({"server": "sparring", "layout": self._settings.benchmark or "as the policy's"})
        )
        try:
            while True:
                message = await self._next(connection)
                if isinstance(message, str):
                    raise BadMessage("a message of text, where this wire has bytes.")
                shown = OPENPI.read(message)
                if not isinstance(shown, dict):
                    raise BadMessage("an observation that is no map.")
                if shown.get("endpoint") == "reset":
                    client.reset()
                    await self._send(connection, _RESET)
                    continue
                instruction = shown.pop(client.layout.instruction or BridgeLayout().instruction, "")
                actions = await client.act(shown, str(instruction))
                await self._send(connection, OPENPI.write({"actions": actions}))
        except (ConnectionClosed, TimeoutError):
            raise
        except Exception as error:  # noqa: BLE001  # of what somebody made up
            said = told(error)
            log.warning("%s ended: %s", client.name, said)
            await self._send(connection, said)  # as text: what this wire says errors by
            await connection.close(1011)

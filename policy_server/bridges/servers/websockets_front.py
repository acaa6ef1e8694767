"""What fronts over web sockets have in common: sessions, tokens, deadlines."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hmac
import logging
from abc import abstractmethod
from http import HTTPStatus
from typing import Any, Final

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from sparring.policy_server.bridges.front import ForeignClient, Front, told
from sparring.policy_server.limits import ServerFull
from sparring.protos.net.address import Address
from sparring.protos.net.bounded_listener import listeners

log = logging.getLogger(__name__)

_CLOSE_SECONDS: Final = 2.0
_LONGEST_REASON: Final = 120
"""Bytes; web sockets have 123."""


class WebSocketFront(Front):
    """Listens for web sockets and has each client answered, one message after the other."""

    health_path: str
    health_answer: str

    async def listen(self) -> Address:
        address, limits = self._settings.address, self._rollouts.limits
        most, of_a_peer = limits.most_connections, limits.most_of_a_peer
        try:
            # Not asyncio's own: whoever connects and says nothing has no token to show, and takes a file descriptor.
            sockets = await asyncio.to_thread(listeners, address, most=most, most_of_a_peer=of_a_peer)
        except OSError as error:
            raise self._cannot(error) from error
        self._servers: list[Server] = [
            await serve(
                self._serve_client,
                sock=listening,
                process_request=self._checked,
                origins=[None],  # of pages in a browser, which may reach this machine's own addresses
                ssl=self._tls,
                ssl_handshake_timeout=limits.handshake_seconds if self._tls else None,
                compression=None,
                max_size=self._most_bytes,
                max_queue=1,  # a client that sends on and on waits for its answers
                open_timeout=limits.hello_seconds,
                ping_interval=limits.keepalive_seconds,
                ping_timeout=None,  # clients compute, too, and answer when they are done
            )
            for listening in sockets
        ]
        return address.with_port(sockets[0].getsockname()[1])

    async def close(self) -> None:
        for server in self._servers:
            server.close()
        with contextlib.suppress(TimeoutError):  # a client may be waiting for a policy that never answers
            async with asyncio.timeout(_CLOSE_SECONDS):
                for server in self._servers:
                    await server.wait_closed()

    @abstractmethod
    async def _converse(self, connection: ServerConnection, client: ForeignClient) -> None:
        """Answers a client until it goes."""

    def _checked(self, connection: ServerConnection, request: Request) -> Response | None:
        if request.path == self.health_path:
            return connection.respond(HTTPStatus.OK, self.health_answer)
        if self._token and not hmac.compare_digest(_brought(request.headers).encode(), self._token.encode()):
            return connection.respond(
                HTTPStatus.UNAUTHORIZED,
                "this policy server wants its token: as 'Authorization: Api-Key TOKEN' or in ws://any:TOKEN@HOST\n",
            )
        return None

    async def _serve_client(self, connection: ServerConnection) -> None:
        host = str((connection.remote_address or ("",))[0])
        try:
            with self._rollouts.foreign_session(host):
                client = await self._client()
                log.info("%s: %s has come", client.name, host)
                await self._converse(connection, client)
        except ServerFull as full:
            await connection.close(1013, _reason(full.sentence))
        except TimeoutError:
            await connection.close(1001, "no message came for too long")
        except ConnectionClosed:
            pass
        except Exception as error:  # noqa: BLE001  # of what somebody made up
            said = told(error)
            log.warning("a client of %s at %s: %s", self._settings.wire, host, said)
            await connection.close(1011, _reason(said))

    async def _send(self, connection: ServerConnection, message: bytes | str) -> None:
        """Sends a message; a client that does not take it is let go."""
        try:
            async with asyncio.timeout(self._rollouts.limits.taking_seconds):
                await connection.send(message)
        except TimeoutError:
            connection.transport.abort()
            raise

    async def _next(self, connection: ServerConnection) -> Any:
        """Returns a client's next message; whoever says nothing for too long is let go."""
        async with asyncio.timeout(self._rollouts.limits.idle_seconds):
            return await connection.recv()


def _reason(sentence: str) -> str:
    """Returns the beginning of a sentence, of as many bytes as the end of a connection has place for."""
    return sentence.encode("utf-8", "replace")[:_LONGEST_REASON].decode("utf-8", "ignore")


def _brought(headers: Headers) -> str:
    said = headers.get_all("Authorization")
    if len(said) != 1:
        return ""
    kind, _, value = said[0].partition(" ")
    if kind.lower() != "basic":  # Api-Key, Bearer
        return value
    try:
        return base64.b64decode(value, validate=True).decode().partition(":")[2]
    except ValueError:  # no base64, no ASCII, no text
        return ""

"""The health service of a server, as open as health checks must be: it needs no token, so that it has limits.

Of a call the request is not read: there is nothing in it that an answer depends on, and gRPC reads a message whole, up
to the size of the server's largest, before anybody here could say that it is too long.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

import grpc
from grpc_health.v1 import health, health_pb2

MOST_WATCHERS: Final = 64
"""That watch a server's health at once."""

_OF_THE_SERVER: Final = health_pb2.HealthCheckRequest()
"""A server and its one service are well at the same times, so what a caller asks for makes no difference."""

_Context = grpc.aio.ServicerContext[Any, Any]


class Health:
    """Says whether a server serves; it does not, until it is told that it does.

    Args:
        watchers: The most that watch it at once.
    """

    def __init__(self, watchers: int = MOST_WATCHERS) -> None:
        self._most = watchers
        self._watchers = 0
        self._servicer = health.aio.HealthServicer()

    def handler(self) -> grpc.GenericRpcHandler:
        """Returns what answers each method."""
        methods: dict[str, Any] = {
            "Check": grpc.stream_unary_rpc_method_handler(
                self._check, response_serializer=health_pb2.HealthCheckResponse.SerializeToString
            ),
            "Watch": grpc.stream_stream_rpc_method_handler(
                self._watch, response_serializer=health_pb2.HealthCheckResponse.SerializeToString
            ),
        }
        return grpc.method_handlers_generic_handler(health.SERVICE_NAME, methods)

    async def tell(self, *, serving: bool) -> None:
        """Says from now on whether the server serves."""
        response = health_pb2.HealthCheckResponse
        await self._servicer.set("", response.SERVING if serving else response.NOT_SERVING)

    async def drain(self) -> None:
        """Says from now on that the server does not serve, whatever else it is told."""
        await self._servicer.enter_graceful_shutdown()

    async def _check(self, requests: AsyncIterator[bytes], context: _Context) -> health_pb2.HealthCheckResponse:
        answer: health_pb2.HealthCheckResponse = await self._servicer.Check(_OF_THE_SERVER, context)
        return answer

    async def _watch(self, requests: AsyncIterator[bytes], context: _Context) -> None:
        if self._watchers >= self._most:
            await context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"{self._most} callers watch the server's health already; call Check instead.",
            )
        self._watchers += 1
        try:
            await self._servicer.Watch(_OF_THE_SERVER, context)
        finally:
            self._watchers -= 1

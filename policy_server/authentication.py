"""Lets in those who bring the server's token."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

import grpc
from grpc_health.v1 import health

from sparring.protos.advice import Hint
from sparring.protos.net.access import brought

_OPEN: Final = f"/{health.SERVICE_NAME}/"
"""Whoever runs the server (a container engine, a load balancer) must be able to ask whether it is well."""

_TOKEN: Final = Hint("policy_token_file")
_MISSING: Final = f"this policy server wants a token; give it with {_TOKEN}."
_WRONG: Final = f"the token given ({_TOKEN}) is not the one this policy server wants."

_Continuation = Callable[[grpc.HandlerCallDetails], Awaitable[Any]]


class TokenCheck(grpc.aio.ServerInterceptor):
    """Refuses every call without the token but health checks. Runs once per call: messages of a stream cost nothing."""

    def __init__(self, token: str) -> None:
        self._token = token

    async def intercept_service(
        self, continuation: _Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Any:
        """Checks the token of a call; gRPC calls this for each one."""
        handler = await continuation(handler_call_details)
        if handler is None or handler_call_details.method.startswith(_OPEN):
            return handler
        sentence = refusal(handler_call_details.invocation_metadata, self._token)
        return _refusing(sentence) if sentence else handler


def refusal(metadata: Iterable[tuple[str, Any]], token: str) -> str:
    """Says why a caller is not let in; nothing, if it is.

    Args:
        metadata: Of its call.
        token: That is wanted.
    """
    return {"right": "", "missing": _MISSING, "wrong": _WRONG}[brought(metadata, token)]


def _refusing(sentence: str) -> Any:
    """Returns a handler that ends the call at once.

    For gRPC it is always one of a stream: the request of any other kind would be read whole, with as much memory as its
    sender pleases, before the handler is asked. On the wire there is no difference.
    """

    async def refuse(requests: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, sentence)

    return grpc.stream_stream_rpc_method_handler(refuse)

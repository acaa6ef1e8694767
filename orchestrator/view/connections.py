"""Connections to the live page: whoever makes them, they take no more of the run's file descriptors than a share."""

from __future__ import annotations

import asyncio
import resource
from functools import partial
from typing import Final

from uvicorn.protocols.http.h11_impl import H11Protocol

_MOST: Final = 128
_LEAST: Final = 16
_SHARE: Final = 8
"""One of so many of the file descriptors that the process may have; a connection with a film takes three."""
_REQUEST_SECONDS: Final = 10.0
_HANDSHAKE_SECONDS: Final = 5.0
"""Of TLS: asyncio itself waits for a minute."""


def most_connections() -> int:
    """Returns how many there may be at a time."""
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _MOST if allowed == resource.RLIM_INFINITY else max(_LEAST, min(_MOST, allowed // _SHARE))


def limit_handshakes(loop: asyncio.AbstractEventLoop) -> None:
    """Has a loop give up on TLS connections that do not shake hands soon: each holds one of few places.

    Uvicorn makes its servers by this method, and passes on no such limit.
    """
    loop.create_server = partial(  # type: ignore[method-assign]
        loop.create_server, ssl_handshake_timeout=_HANDSHAKE_SECONDS
    )


class PromptRequests(H11Protocol):
    """HTTP, for those who say what they want: a connection without a whole request is not kept for long."""

    _alarm: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as its own base does
        super().connection_made(transport)
        self._expect()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        self._expect()
        super().on_response_complete()  # which goes on with the next request if that has come already
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)

    def _look(self) -> None:
        """Lets an answer take its time."""
        if self.cycle is not None and not self.cycle.more_body and not self.cycle.response_complete:
            self._forget()

    def _expect(self) -> None:
        self._forget()
        self._alarm = self.loop.call_later(_REQUEST_SECONDS, self.transport.abort)

    def _forget(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

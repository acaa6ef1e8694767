"""An event loop in a thread of its own, for callers that are no coroutines."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, Final, TypeVar

from sparring.orchestrator.run.errors import Interrupted
from sparring.protos.net.rpc import ignore_poller_races

T = TypeVar("T")

_CLOSING_SECONDS: Final = 30.0


class Background:
    """An event loop in a thread of its own: the caller's thread may run one already, and signals stay the caller's."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(ignore_poller_races)
        # A daemon, because Python waits for other threads before it calls what is registered with atexit.
        self._thread = threading.Thread(target=self._loop.run_forever, name="sparring", daemon=True)
        self._thread.start()
        self._running: Future[Any] | None = None

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine there and waits for it; an interruption here, such as Ctrl-C, ends it in good order.

        Raises:
            Interrupted: If `interrupt` was called meanwhile.
        """
        over = threading.Event()

        async def watched() -> T:
            try:
                return await coroutine
            finally:
                over.set()

        self._running = future = asyncio.run_coroutine_threadsafe(watched(), self._loop)
        try:
            return future.result()
        except CancelledError:
            raise Interrupted("closed while it was evaluating.") from None
        finally:
            future.cancel()
            over.wait(_CLOSING_SECONDS)

    def interrupt(self) -> None:
        """Ends what is running there, if anything is."""
        if self._running is not None:
            self._running.cancel()

    def close(self) -> None:
        """Ends the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CLOSING_SECONDS)
        if not self._thread.is_alive():
            self._loop.close()

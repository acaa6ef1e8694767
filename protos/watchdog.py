"""Ends a process whose event loop hangs: an engine says of a container that it is unhealthy, and leaves it at that."""

from __future__ import annotations

import asyncio
import faulthandler
import os
from collections.abc import Callable
from typing import Final

VARIABLE: Final = "SPARRING_WATCHDOG"
"""In an image: after how many seconds its server ends, if its event loop does not turn."""
_SECONDS: Final = 1.0


async def watch_loop(limit: float, beat: Callable[[], None] = lambda: None) -> None:
    """Ends this process with exit code 1 if its event loop does not turn for so long, until cancelled.

    It says on standard error where each of its threads is. Nothing has to run for that, not even Python, so code that
    never lets go of the interpreter is noticed, too. Who was stopped for longer than that ends as well when it goes on.

    Args:
        limit: In seconds.
        beat: Called every second.
    """
    try:
        while True:
            faulthandler.dump_traceback_later(limit, exit=True)
            beat()
            await asyncio.sleep(_SECONDS)
    finally:
        faulthandler.cancel_dump_traceback_later()


async def watch_if_asked() -> None:
    """Watches the event loop where the environment says for how long it may hang; returns at once where it does not."""
    if limit := float(os.environ.get(VARIABLE) or 0):
        await watch_loop(limit)

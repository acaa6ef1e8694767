"""What goes on beside something else: it ends with it, and what it fails with is not lost."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from sparring.orchestrator.run.errors import Interrupted

T = TypeVar("T")


@asynccontextmanager
async def background(coroutine: Coroutine[Any, Any, None]) -> AsyncIterator[asyncio.Future[None]]:
    """Has something go on for as long as the context lasts; yields what tells how it ended."""
    task: asyncio.Future[None] = asyncio.ensure_future(coroutine)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def first(wanted: asyncio.Future[T], others: Sequence[asyncio.Future[None]]) -> T:
    """Waits for one thing, unless another fails first."""
    pending: set[asyncio.Future[Any]] = {wanted, *others}
    while True:
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        for future in done:
            future.result()
        if wanted in done:
            return wanted.result()


def until_signal() -> asyncio.Future[None]:
    """Fails with Interrupted on the first Ctrl-C or SIGTERM."""
    loop = asyncio.get_running_loop()
    interrupted: asyncio.Future[None] = loop.create_future()

    def stop(number: signal.Signals) -> None:
        if not interrupted.done():
            interrupted.set_exception(Interrupted(f"interrupted by {number.name}."))

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop, number)
    interrupted.add_done_callback(lambda future: future.exception())  # seen, even if nobody waits for it any more
    return interrupted

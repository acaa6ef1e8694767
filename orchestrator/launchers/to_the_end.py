"""Blocking calls that make something: their end is seen, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


async def to_the_end(function: Callable[..., T], *arguments: Any) -> T:
    """Runs a blocking call in a thread; when cancelled it still sees the call's end, as it may make something."""
    try:
        call = asyncio.get_running_loop().run_in_executor(None, function, *arguments)
    except RuntimeError:
        # Python is ending, and has no more threads for us: a training program that never closed what it had opened.
        # What it has started must go all the same, and nobody else uses this loop any more.
        return function(*arguments)
    try:
        return await asyncio.shield(call)
    except asyncio.CancelledError:
        await asyncio.wait([call])
        if not call.cancelled():
            call.exception()  # seen
        raise

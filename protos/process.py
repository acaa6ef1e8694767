"""How the processes of a run are tied to the one that started them."""

from __future__ import annotations

import asyncio
import os


def stop_with_parent(stop: asyncio.Event) -> None:
    """Sets `stop` when standard input closes, which it does however the parent ends, even by SIGKILL."""
    loop = asyncio.get_running_loop()

    def readable() -> None:
        if not os.read(0, 4096):
            loop.remove_reader(0)
            stop.set()

    loop.add_reader(0, readable)

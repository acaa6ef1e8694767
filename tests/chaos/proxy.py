"""A way between two peers that can be cut, delayed, throttled, dead without anybody hearing of it, or end elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import threading
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future
from typing import Any, Literal

Condition = Literal["good", "slow", "narrow", "dead", "hostile"]
"""Hostile: somebody else answers."""

_DELAY = 0.15
_NARROW = 30_000
"""Bytes per second."""
_SETTINGS = bytes.fromhex("000000040000000000")
"""With which a peer of HTTP/2 begins."""
_ANSWERS: Sequence[bytes] = (
    random.Random(0).randbytes(5000),
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno",
    _SETTINGS + random.Random(1).randbytes(5000),
    _SETTINGS + bytes.fromhex("ffffff000000000001") + bytes(70_000),  # a frame of 16 MiB that nobody asked for
    _SETTINGS + bytes.fromhex("0000080700000000000000000000000000"),  # farewell
)
"""Of one who is not whom the caller meant."""


class Proxy:
    """Listens at a port of its own and passes on to another, in a thread.

    Args:
        port: Where to.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._condition: Condition = "good"
        self._connections: set[asyncio.StreamWriter] = set()
        self._answers = itertools.cycle(_ANSWERS)
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True).start()
        self._server = self._do(asyncio.start_server(self._accept, "127.0.0.1", 0)).result(10)
        self.port: int = self._server.sockets[0].getsockname()[1]

    def become(self, condition: Condition) -> None:
        """Changes what it does with what comes."""
        self._loop.call_soon_threadsafe(setattr, self, "_condition", condition)

    def cut(self) -> None:
        """Ends all connections; new ones may be made."""
        self._loop.call_soon_threadsafe(self._cut)

    def close(self) -> None:
        """Ends it."""

        async def end() -> None:
            self._server.close()
            self._cut()
            tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        self._do(end()).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _do(self, what: Coroutine[Any, Any, Any]) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(what, self._loop)

    def _cut(self) -> None:
        for connection in self._connections:
            connection.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._condition == "hostile":
            with contextlib.suppress(OSError):
                writer.write(next(self._answers))
                await writer.drain()
            writer.close()
            return
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.close()
            return
        both = {writer, back}
        self._connections |= both
        try:
            await asyncio.gather(self._pass(reader, back), self._pass(there, writer))
        finally:
            self._connections -= both

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while content := await reader.read(4096):
                if self._condition == "slow":
                    await asyncio.sleep(_DELAY)
                elif self._condition == "narrow":
                    await asyncio.sleep(len(content) / _NARROW)
                while self._condition == "dead":
                    await asyncio.sleep(0.05)
                writer.write(content)
                await writer.drain()
        writer.close()

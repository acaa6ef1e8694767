"""ZeroMQ's wire at the end of a server that clients ask one question at a time each: who connects may be anybody."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Final

from sparring.policy_server.bridges import zmtp

READ_AHEAD: Final = 1 << 18
"""Bytes of a connection that asyncio takes before they are asked for; twice as many, at most."""
_SMALL: Final = 1 << 16
"""Bytes of a request that needs no room to be made for it; a connection has two at a time."""


class Room:
    """The room that the requests of all connections have in memory together.

    Args:
        most: Bytes.
    """

    def __init__(self, most: int) -> None:
        self._left = most
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def take(self, size: int) -> None:
        """Waits until there is as much, in turn; nothing is there at once."""
        if not size or (not self._waiting and size <= self._left):
            self._left -= size
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, granted))
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():
                self.give(size)
            else:
                self._grant()
            raise

    def give(self, size: int) -> None:
        """Gives back what was taken."""
        self._left += size
        self._grant()

    def _grant(self) -> None:
        while self._waiting:
            size, granted = self._waiting[0]
            if granted.cancelled():
                self._waiting.popleft()
            elif size <= self._left:
                self._waiting.popleft()
                self._left -= size
                granted.set_result(None)
            else:
                return


@dataclass(frozen=True)
class Request:
    """What a client has sent.

    Attributes:
        content: Its bytes.
        room: That they take, to be given back when they are of no more use.
    """

    content: bytes
    room: int


class Requests:
    """The requests that come on one connection, and their answers.

    Args:
        reader: Of the connection.
        writer: Likewise.
        most: Bytes of a request.
        room: For all of them.
        seconds: For a request to come, once it has begun, and for an answer to be taken.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        most: int,
        room: Room,
        seconds: float,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._most = most
        self._room = room
        self._seconds = seconds

    async def shake_hands(self) -> None:
        """Finds out that it is ZeroMQ who speaks, and a client.

        Raises:
            BadMessage: If it is somebody else.
        """
        self._writer.write(zmtp.GREETING)
        zmtp.check_greeting(await self._reader.readexactly(len(zmtp.GREETING)))
        await self._send(zmtp.ready("ROUTER"))
        flags, size = await self._header()
        zmtp.check_ready(flags, await self._reader.readexactly(size))

    async def next(self) -> Request:
        """Returns the next request; pings are answered meanwhile.

        Raises:
            BadMessage: If what comes is none, or it is too large.
            TimeoutError: If it does not come whole in time.
        """
        flags, size = await self._next_header()
        zmtp.check_first(flags, size)
        async with asyncio.timeout(self._seconds):
            flags, size = await self._next_header()
        zmtp.check_second(flags)
        room = size if size > _SMALL else 0
        await self._room.take(room)
        try:
            async with asyncio.timeout(self._seconds):
                return Request(await self._reader.readexactly(size), room)
        except BaseException:
            self._room.give(room)
            raise

    def forget(self, request: Request) -> None:
        """Gives back the room that a request has."""
        self._room.give(request.room)

    async def answer(self, content: bytes) -> None:
        """Sends the answer to a request.

        Raises:
            TimeoutError: If it is not taken.
        """
        await self._send(zmtp.message(content))

    async def _next_header(self) -> tuple[int, int]:
        """Returns what is said of the next frame that is none of ZeroMQ's own."""
        while True:
            flags, size = await self._header()
            if not flags & zmtp.COMMAND:
                return flags, size
            if answer := zmtp.pong(await self._reader.readexactly(size)):
                await self._send(answer)
            await asyncio.sleep(0)  # what has come already is read without giving way

    async def _header(self) -> tuple[int, int]:
        (flags,) = await self._reader.readexactly(1)
        said = await self._reader.readexactly(zmtp.length_of_size(flags))
        return flags, zmtp.size_of(flags, said, self._most)

    async def _send(self, data: bytes) -> None:
        self._writer.write(data)
        async with asyncio.timeout(self._seconds):
            await self._writer.drain()

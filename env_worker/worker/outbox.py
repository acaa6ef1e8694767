"""What a worker has to say to the orchestrator, and has not said yet: it outlives a stream that breaks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from sparring.protos import evaluation_pb2 as pb

_OWED: Final = ("result", "lost", "refused", "piece")
"""What is still worth saying on another stream; who is free, and what slots are doing, is said anew."""


class Outbox:
    """Messages in order. One that could not be sent stays the first."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[pb.WorkerMessage] = asyncio.Queue()
        self._first: pb.WorkerMessage | None = None
        self._shown: set[int] = set()
        """Slots of which a frame waits."""

    def put(self, message: pb.WorkerMessage) -> None:
        """Adds a message; a frame only if none of its slot waits already: a slow stream is not to be slower for it."""
        if message.WhichOneof("message") == "frame":
            if message.frame.slot in self._shown:
                return
            self._shown.add(message.frame.slot)
        self._queue.put_nowait(message)

    async def send_next(self, write: Callable[[pb.WorkerMessage], Awaitable[None]]) -> pb.WorkerMessage:
        """Waits for the next message, writes it, and returns it."""
        if self._first is None:
            self._first = await self._queue.get()
        await write(self._first)
        sent, self._first = self._first, None
        if sent.WhichOneof("message") == "frame":
            self._shown.discard(sent.frame.slot)
        return sent

    @property
    def is_empty(self) -> bool:
        """Whether everything has been sent."""
        return self._first is None and self._queue.empty()

    def keep_owed(self) -> set[int]:
        """Forgets all that the next stream need not hear of; returns the leases that the rest is about."""
        waiting = [] if self._first is None else [self._first]
        self._first = None
        self._shown.clear()
        while not self._queue.empty():
            waiting.append(self._queue.get_nowait())
        owed = [message for message in waiting if message.WhichOneof("message") in _OWED]
        for message in owed:
            self._queue.put_nowait(message)
        return {lease_of(message) for message in owed}


def lease_of(message: pb.WorkerMessage) -> int:
    """Returns the lease that a message is about."""
    return int(getattr(message, str(message.WhichOneof("message"))).lease)

"""What one worker says, on its stream: message by message, until it ends or nothing comes any more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import grpc
from google.protobuf.message import DecodeError

from sparring.orchestrator.coordination.bounds import MAX_UNTAKEN, OutOfBounds
from sparring.protos import evaluation_pb2 as pb

_LAST_SECONDS: Final = 5.0
"""Of a silence that has been long enough: what has come meanwhile may be waiting to be read."""


class WorkerStream:
    """Reads what a worker says.

    Args:
        context: Of its call.
        silence: Seconds without a message after which it is silent.
        untaken: Says how many messages there are for it that it has not taken yet.
    """

    def __init__(
        self, context: grpc.aio.ServicerContext[Any, Any], silence: float, untaken: Callable[[], int] = lambda: 0
    ) -> None:
        self._context = context
        self.silence = silence
        self._untaken = untaken
        self._heard = asyncio.get_running_loop().time()

    async def read(self, handle: Callable[[pb.WorkerMessage], None]) -> None:
        """Passes on what the worker says, to the end of its stream.

        Raises:
            OutOfBounds: If what came is no message at all, if it talks and does not listen, or from `handle`.
        """
        while (message := await next_message(self._context)) is not grpc.aio.EOF:
            self._heard = asyncio.get_running_loop().time()
            if self._untaken() > MAX_UNTAKEN:
                raise OutOfBounds("this worker talks on, and takes nothing of what it is told.")
            handle(message)

    async def falls_silent(self, reading: asyncio.Task[None]) -> bool:
        """Waits for the end of what reads; returns whether it was silence.

        At the end of it a worker has some seconds of this process's own time left: if this process has not run for a
        while, what the worker said meanwhile is waiting to be read.
        """
        loop = asyncio.get_running_loop()
        last = min(_LAST_SECONDS, self.silence / 2)
        while not reading.done():
            heard = self._heard
            left = heard + self.silence - last - loop.time()
            await asyncio.wait({reading}, timeout=max(0.0, left))
            if not reading.done() and self._heard == heard:
                await asyncio.wait({reading}, timeout=last)
                if not reading.done() and self._heard == heard:
                    return True
        return False


async def next_message(context: grpc.aio.ServicerContext[Any, Any]) -> Any:
    """Returns the next message, or EOF.

    Raises:
        OutOfBounds: If what came is no message at all.
    """
    try:
        return await context.read()
    except DecodeError as error:
        raise OutOfBounds("what this worker sends is no message of a worker.") from error

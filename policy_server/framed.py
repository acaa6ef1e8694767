"""Frames at unix sockets, beside gRPC: the same streams, answered by the same service."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NoReturn

import grpc

from sparring.policy_server.authentication import refusal
from sparring.policy_server.limits import Limits
from sparring.protos import policy_pb2 as pb
from sparring.protos.limits import MAX_EXTRA_BYTES
from sparring.protos.net.access import TOKEN_HEADER
from sparring.protos.net.address import Address
from sparring.protos.net.frames import (
    END,
    MESSAGE,
    MOST_OPENING,
    OPENING,
    VERSION,
    FrameReader,
    FrameTooLong,
    frame,
    frames_path,
)

log = logging.getLogger(__name__)

_PEER: Final = "unix:"
"""What gRPC calls whoever comes by a unix socket."""
_DISCARDED: Final = bytearray(1 << 16)

Serve = Callable[[Any, Any], Awaitable[None]]
"""Answers a stream of gRPC: its requests, which are not looked at, and its context."""


class _Aborted(Exception):  # as gRPC has one: it ends a handler, and says nothing
    """A stream has been ended with its status."""


class FramedListener:
    """Listens for frames beside the unix sockets of a server.

    Args:
        serve: Answers a stream.
        token: That callers must bring; empty: none.
        limits: For callers.
    """

    def __init__(self, serve: Serve, token: str, limits: Limits) -> None:
        self._serve = serve
        self._token = token
        self._limits = limits
        self._servers: dict[Path, asyncio.Server] = {}
        self._streams: set[_FramedStream] = set()

    async def listen(self, addresses: Sequence[Address]) -> None:
        """Listens beside those of the addresses that are unix sockets; where that cannot be, there is gRPC."""
        for path in filter(None, map(frames_path, addresses)):
            try:
                loop = asyncio.get_running_loop()
                self._servers[path] = await loop.create_unix_server(self._stream, str(path))
            except OSError as error:
                log.warning("no frames can be taken at %s: %s; sessions there go over gRPC, at more CPU", path, error)

    async def stop(self, seconds: float) -> None:
        """Lets nobody in any more, and ends what is open after so many seconds."""
        for path, server in self._servers.items():
            server.close()
            with suppress(OSError):
                path.unlink()
        self._servers.clear()
        if tasks := [stream.task for stream in self._streams if stream.task is not None]:
            await asyncio.wait(tasks, timeout=seconds)
        for stream in list(self._streams):
            stream.drop()

    def _stream(self) -> _FramedStream:
        return _FramedStream(self._serve, self._token, self._limits, self._streams)


class _FramedStream(asyncio.BufferedProtocol):
    """One connection, which is one stream; what `Rollouts` knows of gRPC's context, it has."""

    def __init__(self, serve: Serve, token: str, limits: Limits, open_streams: set[_FramedStream]) -> None:
        self.task: asyncio.Task[None] | None = None
        self._serve = serve
        self._token = token
        self._limits = limits
        self._open = open_streams
        self._reader = FrameReader(MOST_OPENING)
        self._transport: Any = None
        self._came: bytes | None = None
        self._reading: asyncio.Future[Any] | None = None
        self._taking: asyncio.Future[None] | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._is_paused = self._is_lost = self._is_ended = False

    # What `Rollouts` calls.

    def peer(self) -> str:
        """Returns who calls, as gRPC would name it."""
        return _PEER

    async def read(self) -> Any:
        """Returns the next message, or gRPC's EOF."""
        while (came := self._came) is None:
            if self._is_lost:
                return grpc.aio.EOF
            self._reading = asyncio.get_running_loop().create_future()
            if not self._look():
                await self._reading
            self._reading = None
        self._came = None
        if self._is_paused and not self._look():
            self._go_on()
        return came

    async def write(self, message: pb.RolloutResponse) -> None:
        """Sends an answer; waits until it is taken, if it is long."""
        self._transport.write(frame(MESSAGE, message.SerializeToString()))
        await self._taken()

    async def abort(self, code: grpc.StatusCode, sentence: str = "") -> NoReturn:
        """Ends the stream with a status."""
        self._say_end(code, sentence)
        await self._taken()
        raise _Aborted

    # What asyncio calls.

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        if len(self._open) >= self._limits.most_connections:
            transport.abort()
            return
        self._open.add(self)
        self._alarm = asyncio.get_running_loop().call_later(self._limits.hello_seconds, self.drop)

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(_DISCARDED) if self._is_ended else self._reader.space

    def buffer_updated(self, nbytes: int) -> None:
        if not self._is_ended:
            self._reader.came(nbytes)
            self._look()

    def pause_writing(self) -> None:
        self._taking = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        if self._taking is not None and not self._taking.done():
            self._taking.set_result(None)
        self._taking = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        self._open.discard(self)
        self._silence()
        self.resume_writing()
        if self._reading is not None and not self._reading.done():
            self._reading.set_result(None)
        elif self.task is not None and not self._is_ended:
            self.task.cancel()

    def drop(self) -> None:
        """Ends the connection without a word."""
        self._transport.abort()

    def _look(self) -> bool:
        """Takes the next frame, if it is whole and the one before has been read; returns whether there is one."""
        if self._is_ended:
            return False
        if self._came is not None:  # nobody may talk on while an answer is due
            if not self._is_paused:
                self._is_paused = True
                self._transport.pause_reading()
            return False
        try:
            found = self._reader.take()
        except FrameTooLong as error:
            self._refuse(grpc.StatusCode.RESOURCE_EXHAUSTED, error.sentence)
            return False
        if found is None:
            return False
        kind, content = found
        if kind != (OPENING if self.task is None else MESSAGE):
            self._refuse(grpc.StatusCode.FAILED_PRECONDITION, "a frame of a kind that is not due.")
        elif kind == OPENING:
            self._begin(content)
            return self._look()
        else:
            self._came = content
            if self._reading is not None and not self._reading.done():
                self._reading.set_result(None)
            return True
        return False

    def _begin(self, opening: bytes) -> None:
        """Lets a client in, if it may."""
        self._silence()
        if opening[:1] != bytes([VERSION]):
            self._refuse(grpc.StatusCode.FAILED_PRECONDITION, "frames of a version that is not known here.")
            return
        brought = [(TOKEN_HEADER, opening[1:])] if len(opening) > 1 else []
        if self._token and (sentence := refusal(brought, self._token)):
            self._refuse(grpc.StatusCode.UNAUTHENTICATED, sentence)
            return
        self._reader.most = self._limits.message_bytes + 2 * MAX_EXTRA_BYTES
        self.task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            await self._serve(None, self)
            self._transport.close()
        except _Aborted:
            pass  # its client hangs up when it has read the status
        except asyncio.CancelledError:
            if not self._is_ended:
                self.drop()
            raise
        except Exception:
            log.exception("a stream failed")
            self._say_end(grpc.StatusCode.UNKNOWN, "the policy server failed; its log says more.")

    def _refuse(self, code: grpc.StatusCode, sentence: str) -> None:
        """Ends a stream whatever it is in the middle of: its client has broken a rule."""
        self._say_end(code, sentence)
        if self.task is not None:
            self.task.cancel()

    def _say_end(self, code: grpc.StatusCode, sentence: str) -> None:
        """Sends the status, and waits for the client to hang up. What it still says is not read: it may be long."""
        self._is_ended = True
        self._transport.write(frame(END, bytes([code.value[0]]) + sentence.encode("utf-8", "replace")))
        self._go_on()
        self._silence()
        self._alarm = asyncio.get_running_loop().call_later(self._limits.farewell_seconds, self.drop)

    def _go_on(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()

    def _silence(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    async def _taken(self) -> None:
        if self._taking is not None:
            await self._taking

"""A worker's stream in memory: in order, with delays, and cut whenever somebody likes."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any, NoReturn

import grpc
from virtual_time import clock

from sparring.protos import evaluation_pb2 as pb
from sparring.protos.net.access import TOKEN_HEADER, token_header

TOKEN = "the-secret-of-this-run"
LAUNCHED = "the-secret-of-those-whom-the-run-has-started"


class Aborted(Exception):
    """The orchestrator has refused the stream."""


class Stream:
    """Both ends of one stream. What a `grpc.aio.ServicerContext` is asked for by the service, this has.

    Args:
        rng: Decides how long messages are on the way.
        token: That the worker brings.
    """

    def __init__(self, rng: Random, token: str = TOKEN) -> None:
        self._dice = rng
        self._token = token
        self._to_orchestrator = _Pipe(rng)
        self._to_worker = _Pipe(rng)
        self.is_over = False
        """Whether the worker's end has heard that it is over."""

    def peer(self) -> str:
        """Returns where the worker is, for the service."""
        return "unix:"

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        """Returns what the worker brings, for the service."""
        return ((TOKEN_HEADER, token_header(self._token)),)

    async def read(self) -> Any:
        """Returns the worker's next message, for the service."""
        return await self._to_orchestrator.get()

    async def write(self, message: pb.OrchestratorMessage) -> None:
        """Sends to the worker, for the service."""
        self._to_worker.put(message)

    async def abort(self, code: grpc.StatusCode, details: str) -> NoReturn:
        """Ends the stream, for the service."""
        self.close()
        raise Aborted(f"{code.name}: {details}")

    def say(self, **message: Any) -> None:
        """Sends to the orchestrator."""
        self.pass_on(pb.WorkerMessage(**message))

    def pass_on(self, message: pb.WorkerMessage) -> None:
        """Sends to the orchestrator what was made before."""
        self._to_orchestrator.put(message)

    async def hear(self) -> Any:
        """Returns the orchestrator's next message, or EOF."""
        message = await self._to_worker.get()
        self.is_over = self.is_over or message is grpc.aio.EOF
        return message

    def cut(self, *, noticed: bool) -> None:
        """Ends the stream from the worker's side: what is on the way is lost.

        Args:
            noticed: Whether the orchestrator hears of it; otherwise nothing comes any more.
        """
        self._to_orchestrator.cut(noticed=noticed)
        self._to_worker.cut(noticed=True)

    def close(self) -> None:
        """Ends the stream from the orchestrator's side; what it has said before arrives."""
        self._to_worker.put(grpc.aio.EOF)


class _Pipe:
    """One direction."""

    def __init__(self, rng: Random) -> None:
        self._dice = rng
        self._arrived: asyncio.Queue[Any] = asyncio.Queue()
        self._last = 0.0
        self._is_cut = False

    def put(self, message: Any) -> None:
        delay = self._dice.choice((0.0, 0.001, self._dice.uniform(0, 0.1), self._dice.uniform(0, 3)))
        self._last = max(self._last + 1e-6, clock().time() + delay)  # alarms of one moment ring in any order
        clock().call_at(self._last, self._arrive, message)

    def cut(self, *, noticed: bool) -> None:
        self._is_cut = True
        if noticed:
            self._arrived.put_nowait(grpc.aio.EOF)

    async def get(self) -> Any:
        return await self._arrived.get()

    def _arrive(self, message: Any) -> None:
        if not self._is_cut:
            self._arrived.put_nowait(message)

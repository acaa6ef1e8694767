"""The calls that a policy server answers: sessions that are let in, waited for and ended; and what needs no session.

Of a call without a stream the request is not read: there is nothing in it that an answer depends on, and gRPC reads a
message whole, up to the size of the largest observation, before anybody here could say that it is too long.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any, Final

import grpc

from sparring.policy_server.batcher import Batcher
from sparring.policy_server.concurrent import ConcurrentRunner
from sparring.policy_server.errors import EpisodeInterrupted, PolicyAway, PolicyFailed, QueueFull
from sparring.policy_server.hosted import HostedPolicy
from sparring.policy_server.limits import Limits, OpenSessions, ServerFull
from sparring.policy_server.session import Draining, OutOfOrder, SessionHandler
from sparring.policy_server.stats import StatsCounter
from sparring.protos import policy_pb2 as pb
from sparring.protos.advice import Hint
from sparring.protos.errors import SparringError
from sparring.protos.limits import MAX_EXTRA_BYTES
from sparring.protos.net.health import Health
from sparring.protos.net.peers import PeerLimit
from sparring.protos.net.rpc import status_message
from sparring.protos.spec import SpecMismatch
from sparring.protos.tensor import TensorError

log = logging.getLogger(__name__)

SERVICE: Final = "sparring.policy.v1.Policy"

_STATUS: Final[dict[type[SparringError], tuple[grpc.StatusCode, str]]] = {
    OutOfOrder: (grpc.StatusCode.FAILED_PRECONDITION, "order"),
    SpecMismatch: (grpc.StatusCode.FAILED_PRECONDITION, "refused"),
    TensorError: (grpc.StatusCode.INVALID_ARGUMENT, "tensor"),
    PolicyFailed: (grpc.StatusCode.ABORTED, "policy"),
    EpisodeInterrupted: (grpc.StatusCode.DATA_LOSS, "interrupted"),
    PolicyAway: (grpc.StatusCode.UNAVAILABLE, "interrupted"),
    Draining: (grpc.StatusCode.UNAVAILABLE, "draining"),
    QueueFull: (grpc.StatusCode.RESOURCE_EXHAUSTED, "full"),
    ServerFull: (grpc.StatusCode.RESOURCE_EXHAUSTED, "full"),
}
"""How a stream ends that failed, and what such errors are counted as."""

_SHUT_DOWN: Final = "the policy server shut down before the episode ended; `sparring serve --grace` gives it longer."
_SHUTTING_DOWN: Final = "the policy server is shutting down."

Context = grpc.aio.ServicerContext[Any, Any]
Runner = Batcher | ConcurrentRunner


class _Stream:
    """One open stream: its task, its session when it has one, and what its client is waited for."""

    def __init__(self, task: asyncio.Task[Any] | None) -> None:
        self.task = task
        self.session: SessionHandler | None = None
        self.due = math.inf
        self.late = ""
        self.ended_as = ""
        self.ended_quietly = False

    def wait_for(self, seconds: float, late: str) -> None:
        """Notes when the client is too late, and what to tell it then."""
        self.due = asyncio.get_running_loop().time() + seconds
        self.late = late

    def end(self, why: str) -> None:
        """Ends the stream with a sentence."""
        self.ended_as = why
        self.due = math.inf
        if self.task is not None:
            self.task.cancel()


class Rollouts:
    """The service.

    Args:
        hosted: The policy, when it is loaded.
        stats: Where what is done is counted.
        limits: For callers.
        health: What is said of the server's health.
    """

    def __init__(
        self,
        hosted: asyncio.Future[HostedPolicy[Runner]],
        stats: StatsCounter,
        limits: Limits,
        health: Health,
    ) -> None:
        self._hosted = hosted
        self._stats = stats
        self._limits = limits
        self._health = health
        self._open = OpenSessions(limits)
        self._numbers = itertools.count(1)
        self._streams: set[_Stream] = set()
        self._draining = False
        self._last_failures: dict[type[SparringError], str] = {}
        hello, idle, taking = limits.hello_seconds, limits.idle_seconds, limits.taking_seconds
        self._no_hello = f"no hello came within {hello:g} s; it is a stream's first message."
        self._idle = f"no message came for {idle:g} s; `sparring serve --idle-timeout` waits for longer."
        self._not_taken = f"an answer was not taken within {taking:g} s."

    def handlers(self) -> list[grpc.GenericRpcHandler]:
        """Returns what answers each method. Rollout gets messages as bytes: observations are read without copies."""
        methods: dict[str, Any] = {
            "Describe": grpc.stream_unary_rpc_method_handler(
                self._describe, response_serializer=pb.PolicyDescription.SerializeToString
            ),
            "Rollout": grpc.stream_stream_rpc_method_handler(
                self.rollout, response_serializer=pb.RolloutResponse.SerializeToString
            ),
            "Stats": grpc.stream_unary_rpc_method_handler(
                self._tell_stats, response_serializer=pb.ServerStats.SerializeToString
            ),
        }
        return [grpc.method_handlers_generic_handler(SERVICE, methods), self._health.handler()]

    async def _describe(self, requests: AsyncIterator[bytes], context: Context) -> pb.PolicyDescription:
        return (await self._ready()).description

    async def _tell_stats(self, requests: AsyncIterator[bytes], context: Context) -> pb.ServerStats:
        return self._stats.to_message()

    async def _ready(self) -> HostedPolicy[Runner]:
        """Waits for what is hosted until it is loaded; callers have deadlines of their own."""
        return await asyncio.shield(self._hosted)

    @property
    def limits(self) -> Limits:
        """For callers."""
        return self._limits

    async def hosted(self) -> HostedPolicy[Runner]:
        """Returns what is hosted, when it is loaded."""
        return await self._ready()

    @contextmanager
    def foreign_session(self, host: str) -> Iterator[None]:
        """Counts a session of a client that speaks another wire, from `host`, as long as it is held.

        Raises:
            ServerFull: If there may be no more.
        """
        if self._draining:
            raise ServerFull(_SHUTTING_DOWN)
        caller = self._open.add(f"ipv4:{host}:0" if host else "unix:")
        self._stats.session(1)
        try:
            yield
        finally:
            self._open.remove(caller)
            self._stats.session(-1)

    def playing(self) -> int:
        """Returns how many sessions have an episode that may ask for actions."""
        return sum(stream.session.playing for stream in self._streams if stream.session is not None)

    async def rollout(self, requests: AsyncIterator[bytes], context: Context) -> None:
        """Answers a stream to its end, whatever carries it.

        Args:
            requests: Its messages; they are not read here.
            context: Reads them, writes answers, and ends the stream.
        """
        if self._draining:
            await context.abort(grpc.StatusCode.UNAVAILABLE, _SHUTTING_DOWN)
        try:
            caller = self._open.add(context.peer())
        except ServerFull as full:
            self._stats.error("full")
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, full.sentence)
        stream = _Stream(asyncio.current_task())
        self._streams.add(stream)
        self._stats.session(1)
        name = f"session-{next(self._numbers)}"
        try:
            await self._answer_all(name, stream, context)
        except asyncio.CancelledError:
            if not stream.ended_as:
                raise
            # Nobody waits for an answer at the end of a run whose workers stay for the next one.
            level = logging.INFO if stream.ended_quietly else logging.WARNING
            log.log(level, "%s ended: %s", name, stream.ended_as)
            await self._end(context, grpc.StatusCode.UNAVAILABLE, stream.ended_as)
        except SparringError as error:
            played = stream.session.episode if stream.session is not None else ""
            level = logging.INFO if self._is_told(error) else logging.WARNING
            log.log(level, "%s ended%s: %s", name, f" in {played}" if played else "", error)
            code, kind = _STATUS.get(type(error), (grpc.StatusCode.INTERNAL, "internal"))
            self._stats.error(kind)
            await self._end(context, code, status_message(error.sentence))
        finally:
            self._streams.discard(stream)
            self._open.remove(caller)
            self._stats.session(-1)

    def _is_told(self, error: SparringError) -> bool:
        """Returns whether the last failure of its kind said the same: who evaluates in a program reads it once."""
        if not isinstance(error, (PolicyFailed, EpisodeInterrupted)):
            return False
        before, now = self._last_failures.get(type(error)), re.sub(r"\d+", "0", error.sentence)
        self._last_failures[type(error)] = now
        return before == now

    async def _answer_all(self, name: str, stream: _Stream, context: Context) -> None:
        hosted = await self._ready()
        most = getattr(hosted.policy, "max_sessions", None)
        if most is not None and sum(other.session is not None for other in self._streams) >= most:
            raise ServerFull(f"the policy takes {most} sessions at once, and has them.")
        session = hosted.session(name)
        session.draining = self._draining
        stream.session = session
        stream.wait_for(self._limits.hello_seconds, self._no_hello)
        while (request := await context.read()) is not grpc.aio.EOF:
            stream.due = math.inf  # it is the client who waits
            answer = await session.answer_bytes(request)
            if session.longest > self._limits.message_bytes + 2 * MAX_EXTRA_BYTES:
                raise SpecMismatch(
                    f"an observation for this policy has {session.longest / 2**20:.0f} MiB, and the server takes "
                    f"{self._limits.message_bytes / 2**20:.0f}; whoever started it lets in more with "
                    f"{Hint('max_observation')}."
                )
            stream.wait_for(self._limits.taking_seconds, self._not_taken)
            await context.write(answer)
            stream.wait_for(self._limits.idle_seconds, self._idle)

    async def _end(self, context: Context, code: grpc.StatusCode, sentence: str) -> None:
        """Ends a stream with a status; without one, where the client does not take what comes before it."""
        try:
            async with asyncio.timeout(self._limits.farewell_seconds):
                await context.abort(code, sentence)
        except TimeoutError:
            raise asyncio.CancelledError from None  # on which gRPC lets go of the call, and resets the stream

    async def sweep(self, peers: PeerLimit) -> None:
        """Ends the streams of clients who are late, and connections of those who have too many, until cancelled.

        One timer for all: there are too many messages.
        """
        while True:
            await asyncio.sleep(self._limits.sweep_seconds)
            if over := peers.enforce():
                self._stats.error("full")
                log.warning("%d connections too many were ended, of %s", len(over), ", ".join(sorted(set(over))))
            now = asyncio.get_running_loop().time()
            for stream in [stream for stream in self._streams if stream.due <= now]:
                self._stats.error("late")
                stream.end(stream.late)

    def drain(self) -> None:
        """Refuses new sessions, and new episodes in those that are open."""
        self._draining = True
        for stream in self._streams:
            if stream.session is not None:
                stream.session.draining = True

    def cut_off(self) -> None:
        """Ends what is still open, with a status: gRPC's own way of doing it may print a traceback."""
        for stream in list(self._streams):
            stream.ended_quietly = stream.due < math.inf  # it is the client who has something to say
            stream.end(_SHUT_DOWN)

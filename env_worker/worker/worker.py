"""A worker: dials the orchestrator, holds slots, relays leases and results."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import grpc

from sparring.env_worker.benchmark import BenchmarkBroken
from sparring.env_worker.worker.addresses import from_here, knock
from sparring.env_worker.worker.outbox import Outbox, lease_of
from sparring.env_worker.worker.registration import registration
from sparring.env_worker.worker.slot_pool import SlotPool
from sparring.env_worker.worker.stream import refusal_of, say_goodbye, write
from sparring.protos import evaluation_pb2 as pb
from sparring.protos.advice import Hint
from sparring.protos.errors import SparringError, UsageError
from sparring.protos.evaluation_pb2_grpc import WorkStub
from sparring.protos.net.address import Address
from sparring.protos.net.connection import Connection
from sparring.protos.net.rpc import StreamEnded
from sparring.protos.process import FreezeWatch

if TYPE_CHECKING:  # exists in the type stubs only
    from sparring.protos.evaluation_pb2_grpc import WorkAsyncStub

log = logging.getLogger(__name__)

_STOP_GRACE: Final = 5.0
_REDIAL_SECONDS: Final = 0.5
_DEAF_SECONDS: Final = 5.0
"""So long where nobody listens any more, and the orchestrator has not just been cut off."""
_FINAL: Final = (
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
)
"""What an orchestrator says that does not want this worker, and not what a broken stream is."""
_REFUSAL_SECONDS: Final = 5.0


class OrchestratorGone(SparringError):
    """The orchestrator cannot be reached, or went away."""


class WorkerRefused(UsageError):
    """The orchestrator does not want this worker."""


class CannotPlay(SparringError):
    """The benchmark's own code raised before there were slots; the orchestrator was told, and may start another one."""


class Worker:
    """One worker's life.

    Args:
        connection: To the orchestrator's Work service.
        name: For logs and displays; unique in the run.
        slots: How many episodes at once; 0 lets the orchestrator decide.
        benchmark: The only benchmark to work for; empty for any that is installed.
        connect_timeout: Seconds to wait for the orchestrator to be reached.
        on_joined: Called when the orchestrator has taken this worker in.
        leave: Once it is set, slots play what they have to the end and take nothing new, and the worker ends.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        name: str = "",
        slots: int = 0,
        benchmark: str = "",
        evaluation: str = "",
        connect_timeout: float = 30.0,
        on_joined: Callable[[pb.Assignment], None] = lambda assignment: None,
        leave: asyncio.Event | None = None,
    ) -> None:
        self._connection = connection
        self._address = connection.address
        self._name = name or f"{socket.gethostname()}-{os.getpid()}"
        self._wanted_slots = slots
        self._benchmark = benchmark
        self._evaluation = evaluation
        self._connect_timeout = connect_timeout
        self._assignment = pb.Assignment()
        self._offered: frozenset[str] = frozenset()
        self._on_joined = on_joined
        self._leave = leave or asyncio.Event()
        self._has_left = False
        self._outbox = Outbox()
        self._unconfirmed: list[pb.WorkerMessage] = []
        self._slots = SlotPool(self._outbox.put)

    async def run(self, stop: asyncio.Event) -> None:
        """Works until the orchestrator says stop, or `stop` is set.

        Raises:
            OrchestratorGone: If it cannot be reached or its stream breaks.
            WorkerRefused: If it refuses this worker.
            CannotPlay: If the benchmark's own code raised when it was to get ready.
            UsageError: If this worker cannot do what it was started for.
        """
        async with self._connection.channel() as channel:
            stub: WorkAsyncStub = WorkStub(channel)  # type: ignore[assignment]

            def dial() -> Any:
                return stub.Work(wait_for_ready=True, metadata=self._connection.metadata)

            call = dial()
            try:
                assignment = await self._dial(channel, call, stop)
                if assignment is None:
                    return
                self._on_joined(assignment)
                self._assign(assignment)
                await self._work(call, dial, stop)
            except TimeoutError:
                raise OrchestratorGone(
                    f"no orchestrator answered at {self._address} within {self._connect_timeout:g} s. "
                    "Is `sparring run` running there? Then this machine does not reach it: have the run listen where a "
                    f"firewall lets workers in, with {Hint('listen')}, and name its machine with {Hint('advertise')}."
                ) from None
            except grpc.RpcError as error:
                raise _translated(error, self._address) from error
            finally:
                call.cancel()
                await self._slots.stop(grace=_STOP_GRACE)

    async def _dial(self, channel: grpc.aio.Channel, call: Any, stop: asyncio.Event) -> pb.Assignment | None:
        """Dials, and returns what this worker is for; None if it was told to stop before it knew.

        Raises:
            WorkerRefused: If the two ends can never understand each other: one of them speaks TLS, and so on.
        """

        async def ask() -> pb.Assignment:
            async with asyncio.timeout(self._connect_timeout):
                await call.wait_for_connection()
            try:
                await write(call, pb.WorkerMessage(register=self._register()))
            except grpc.RpcError as error:
                raise await self._refusal(channel) or error from error
            return await self._assigned(call)

        asking = asyncio.create_task(ask(), name="dial")
        stopping = asyncio.create_task(stop.wait(), name="stop")
        checking = asyncio.create_task(self._connection.fault(channel), name="fault")
        try:
            await asyncio.wait({asking, stopping, checking}, return_when=asyncio.FIRST_COMPLETED)
            if checking.done() and not asking.done():
                raise WorkerRefused(checking.result())
            return asking.result() if asking.done() else None
        finally:
            for task in (asking, stopping, checking):
                task.cancel()
            await asyncio.gather(asking, stopping, checking, return_exceptions=True)

    async def _refusal(self, channel: grpc.aio.Channel) -> StreamEnded | None:
        """Asks once more, silently, why this worker is not let in; None if that is not it.

        Whoever is not let in is told so before anything is read, and gRPC forgets what it was told if it was writing.
        """
        stub: WorkAsyncStub = WorkStub(channel)  # type: ignore[assignment]
        call: Any = stub.Work(metadata=self._connection.metadata)
        try:
            async with asyncio.timeout(_REFUSAL_SECONDS):
                code = await call.code()
            return StreamEnded(code, await call.details()) if code == grpc.StatusCode.UNAUTHENTICATED else None
        except TimeoutError:
            return None
        finally:
            call.cancel()

    def _register(self) -> pb.Register:
        register = registration(
            self._name, slots=self._wanted_slots, benchmark=self._benchmark, evaluation=self._evaluation
        )
        self._offered = frozenset(register.benchmarks)
        return register

    async def _assigned(self, call: Any) -> pb.Assignment:
        async with asyncio.timeout(self._connect_timeout):
            message = await call.read()
        if message is not grpc.aio.EOF and message.WhichOneof("message") == "preparation":
            self._assign(self._as_seen_from_here(message.preparation.assignment))
            self._slots.begin(message.preparation)  # though it is not known yet where the policy is
            async with asyncio.timeout(message.preparation.seconds):
                message = await call.read()
        if message is grpc.aio.EOF:
            raise StreamEnded(await call.code(), await call.details())
        if message.WhichOneof("message") == "stop":
            raise WorkerRefused(
                f"the orchestrator at {self._address} has no use for this worker: {message.stop.reason}"
            )
        return self._as_seen_from_here(message.assignment)

    def _assign(self, assignment: pb.Assignment) -> None:
        self._assignment = assignment
        self._slots.assign(assignment)

    def _check_offered(self, benchmark: str) -> None:
        """Checks that this worker has offered a benchmark: a name may be one of any module, which would be imported.

        Raises:
            WorkerRefused: If it has not.
        """
        if benchmark not in self._offered:
            raise WorkerRefused(
                f"the orchestrator at {self._address} wants this worker for the benchmark {benchmark!r}, "
                f"which it has not offered."
            )

    def _as_seen_from_here(self, assignment: pb.Assignment) -> pb.Assignment:
        """Returns an assignment with addresses that can be dialled from here.

        Raises:
            WorkerRefused: If it is for a benchmark that this worker has not offered.
        """
        self._check_offered(assignment.benchmark)
        told = map(Address.parse, assignment.policy_addresses)
        assignment.policy_addresses[:] = map(str, from_here(told, self._address))
        return assignment

    async def _work(self, call: Any, dial: Callable[[], Any], stop: asyncio.Event) -> None:
        chores = [
            self._slots.begin(),
            asyncio.create_task(self._watch(), name="watch"),
            asyncio.create_task(self._talk(call, dial), name="talk"),
            asyncio.create_task(stop.wait(), name="stop"),
        ]
        try:
            done, others = await asyncio.wait(chores, return_when=asyncio.FIRST_COMPLETED)
            for chore in done:
                chore.result()
        except BenchmarkBroken as broken:
            self._outbox.put(refusal_of(broken))
            await asyncio.wait(others, timeout=_STOP_GRACE, return_when=asyncio.FIRST_COMPLETED)
            raise CannotPlay(broken.sentence) from broken
        finally:
            for chore in chores:
                chore.cancel()
            await asyncio.gather(*chores, return_exceptions=True)

    async def _talk(self, call: Any, dial: Callable[[], Any]) -> None:
        """Talks to the orchestrator until it says stop; over another stream, if the one there is breaks."""
        while call is not None:
            talking = [asyncio.create_task(self._receive(call)), asyncio.create_task(self._send(call))]
            try:
                done, _ = await asyncio.wait(talking, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
                return
            except grpc.RpcError as error:
                if error.code() in _FINAL or not self._assignment.membership:
                    raise
                broken = error
            finally:
                for task in talking:
                    task.cancel()
                await asyncio.gather(*talking, return_exceptions=True)
                call.cancel()
            call = await self._rejoin(dial, _translated(broken, self._address))

    async def _rejoin(self, dial: Callable[[], Any], gone: SparringError) -> Any:
        """Dials again, and offers to go on with what slots are playing.

        Returns:
            The new stream; None if the run has ended in the meantime.

        Raises:
            OrchestratorGone: If nobody answers for too long, nobody listens there any more, or it is another run.
        """
        loop, seconds = asyncio.get_running_loop(), self._assignment.rejoin_seconds
        deadline = loop.time() + seconds
        listened = loop.time()
        log.warning("%s Dialling again for %g s at most", gone.sentence, seconds)
        while loop.time() < deadline:
            if await knock(self._address) == "refused":
                if loop.time() - listened > _DEAF_SECONDS:
                    break  # it is not hidden, frozen or cut off: it has ended
            else:
                listened = loop.time()
                call = dial()
                try:
                    message = await self._answer(call, min(self._connect_timeout, deadline - loop.time()))
                    if message.WhichOneof("message") == "assignment":
                        await self._rejoined(message.assignment)
                        return call
                    call.cancel()
                    return None
                except TimeoutError:
                    call.cancel()
                except grpc.RpcError as error:
                    call.cancel()
                    if error.code() in _FINAL:  # another run is there now
                        break
            await asyncio.sleep(_REDIAL_SECONDS)
        raise gone

    async def _answer(self, call: Any, seconds: float) -> pb.OrchestratorMessage:
        """Asks again, and returns the answer.

        Raises:
            TimeoutError: If none comes in time, or nobody listens there any more: one that was just about to end when
                it was dialled.
        """
        asking = asyncio.ensure_future(self._ask_again(call))
        deadline = asyncio.get_running_loop().time() + seconds
        try:
            while not asking.done():
                left = deadline - asyncio.get_running_loop().time()
                if left <= 0:
                    raise TimeoutError
                await asyncio.wait({asking}, timeout=min(_REDIAL_SECONDS, left))
                if not asking.done() and await knock(self._address) == "refused":
                    raise TimeoutError
            return asking.result()
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)

    async def _ask_again(self, call: Any) -> pb.OrchestratorMessage:
        await call.wait_for_connection()
        register = self._register()
        register.membership = self._assignment.membership
        unsent = self._outbox.keep_owed()
        # What was sent last may have been on its way when the stream broke.
        self._unconfirmed = self._slots.unconfirmed(unsent)
        register.held.extend(sorted(self._slots.held | unsent | set(map(lease_of, self._unconfirmed))))
        await write(call, pb.WorkerMessage(register=register))
        message = await call.read()
        if message is grpc.aio.EOF:
            raise StreamEnded(await call.code(), await call.details())
        return message  # type: ignore[no-any-return]

    async def _rejoined(self, assignment: pb.Assignment) -> None:
        """Goes on with what the orchestrator has left to this worker, and with nothing else."""
        kept = set(assignment.kept)
        dropped = self._slots.held - kept
        log.info("back at the orchestrator; of what was being played, %d go on, %d do not", len(kept), len(dropped))
        self._assign(self._as_seen_from_here(assignment))
        await self._slots.drop(dropped)
        for message in self._unconfirmed:
            if lease_of(message) in kept:
                self._outbox.put(message)
        self._slots.ask_again()

    async def _receive(self, call: Any) -> None:
        while (message := await call.read()) is not grpc.aio.EOF:
            kind = message.WhichOneof("message")
            if kind == "stop":
                log.info("stopping: %s", message.stop.reason)
                return
            if kind == "assignment":  # another run begins
                self._assign(self._as_seen_from_here(message.assignment))
            elif kind == "lease":
                self._slots.give(message.lease)
            elif kind == "watch":
                self._slots.watch(message.watch)
        if not self._has_left:
            raise StreamEnded(await call.code(), await call.details())

    async def _send(self, call: Any) -> None:
        while not self._has_left:
            message = await self._outbox.send_next(lambda message: write(call, message))
            if message.WhichOneof("message") == "piece":
                self._slots.piece_taken(message.piece)
            self._has_left = self._leave.is_set() and self._outbox.is_empty and self._slots.are_idle
        log.info("leaving, as told: every slot has come to the end of its episode")
        await say_goodbye(call)

    async def _watch(self) -> None:
        watch = FreezeWatch()
        while True:
            if self._leave.is_set():
                self._slots.take_nothing_new()
            frozen = watch.was_frozen(expected=self._assignment.heartbeat_seconds)
            activities = self._slots.check(frozen=frozen)
            self._outbox.put(pb.WorkerMessage(heartbeat=pb.Heartbeat(slots=activities)))
            await asyncio.sleep(self._assignment.heartbeat_seconds)


def _translated(error: grpc.RpcError, address: Address) -> SparringError:
    if error.code() == grpc.StatusCode.OK:
        return OrchestratorGone(f"the orchestrator at {address} ended the connection without saying why.")
    details = error.details() or error.code().name
    if error.code() in (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.UNAUTHENTICATED):
        return WorkerRefused(details)
    return OrchestratorGone(f"the orchestrator at {address} went away: {details}")

"""The gRPC side of the coordinator: one stream per worker."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc

from sparring.orchestrator.coordination.admission import Admission
from sparring.orchestrator.coordination.assignments import assignment_for
from sparring.orchestrator.coordination.attendance import REJOIN_SECONDS, Attendance
from sparring.orchestrator.coordination.bounds import MAX_MESSAGE, MAX_PEER_CONNECTIONS, MAX_WORKERS, OutOfBounds
from sparring.orchestrator.coordination.coordinator import Coordinator
from sparring.orchestrator.coordination.members import Member, Members
from sparring.orchestrator.coordination.replica_balance import ReplicaBalance
from sparring.orchestrator.coordination.waiting_room import WaitingRoom
from sparring.orchestrator.coordination.worker_stream import WorkerStream, next_message
from sparring.orchestrator.launchers.base import DEFAULT_LISTEN
from sparring.orchestrator.machine.child import open_socket
from sparring.orchestrator.run.orders import assignment_message
from sparring.orchestrator.serving.images import looks_at_images
from sparring.orchestrator.serving.policy_host import START_SECONDS, PolicyAccess
from sparring.orchestrator.settings import Evaluation, RunSettings
from sparring.protos import WORK_PROTOCOL_VERSION
from sparring.protos import evaluation_pb2 as pb
from sparring.protos.advice import FLAGS, render
from sparring.protos.errors import SparringError, UsageError
from sparring.protos.evaluation_pb2_grpc import WorkServicer, add_WorkServicer_to_server
from sparring.protos.net.address import Address, came_by_socket
from sparring.protos.net.health import Health
from sparring.protos.net.peers import PeerLimit
from sparring.protos.net.rpc import SERVER_OPTIONS, bind, discard, status_message

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS: Final = 1.0
SILENCE_SECONDS: Final = 30.0
_LOAD_SECONDS: Final = START_SECONDS + 60.0
"""A policy that is not there by then is given up; those who wait are to outlast that."""
_STOP_GRACE: Final = 1.0
_MOST_NOTES: Final = 20
_MOST_CALLS: Final = MAX_WORKERS + 256
"""Those of workers, and of others who ask how we are."""
_MOST_STREAMS: Final = 64
"""Of one connection: a worker has one, and who asks how we are some."""
_RECEIVED: Final = "grpc.max_receive_message_length"
_OPTIONS: Final = [
    *(option for option in SERVER_OPTIONS if option[0] != _RECEIVED),
    (_RECEIVED, MAX_MESSAGE),
    ("grpc.max_concurrent_streams", _MOST_STREAMS),
    ("grpc.max_allowed_incoming_connections", _MOST_CALLS),
    # Who connects and says nothing, or nothing more.
    ("grpc.server_handshake_timeout_ms", 20_000),
    ("grpc.max_connection_idle_ms", 120_000),
]
_SWEEP_SECONDS: Final = 1.0


@dataclass(frozen=True)
class _TakenIn:
    """A worker that was let in just now, and what it is told first."""

    worker: str
    part: str
    assignment: pb.Assignment


class WorkService(WorkServicer):
    """Takes in workers and passes their messages to the coordinator.

    Args:
        coordinator: Of the run.
        settings: Of the run.
        policy: Where workers find the policy, and what lets them in; None: `open` will say so. Workers that come before
            get ready meanwhile.
        default_slots: For workers that leave it to us.
        admission: Who may join.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        settings: RunSettings,
        policy: PolicyAccess | None,
        default_slots: int,
        admission: Admission,
    ) -> None:
        self.coordinator = coordinator
        self._settings = settings
        self._waiting = WaitingRoom(is_over=policy is not None)
        self._policy = policy or PolicyAccess([])
        self._balance = ReplicaBalance(self._policy.addresses)
        self._default_slots = default_slots
        self._grown: Mapping[str, int] = {}
        self._admission = admission
        self._notes: set[str] = set()
        self._outboxes: set[asyncio.Queue[pb.OrchestratorMessage]] = set()
        self._stopping = ""
        self._orders: dict[str, pb.Assignment] = {}
        """How episodes are played, by benchmark."""
        self.attendance = Attendance()
        self._sweeping: asyncio.Task[None] | None = None
        self._members = Members()

    async def start(self, sockets: Path, listen: Address | None = None) -> tuple[Address, Address]:
        """Listens on a unix socket for workers on this machine and on TCP for others; returns both addresses.

        Args:
            sockets: Folder of the unix socket.
            listen: The TCP address; None: there are no others, and both addresses are the socket's.
        """
        self._server = grpc.aio.server(options=_OPTIONS, maximum_concurrent_rpcs=_MOST_CALLS)
        add_WorkServicer_to_server(self, self._server)
        health = Health()
        self._server.add_generic_rpc_handlers([health.handler()])
        try:
            local = bind(self._server, Address.unix(sockets / "work.sock"))
            public = local if listen is None else self._bind_public(listen)
        except UsageError:
            await discard(self._server)
            raise
        await self._server.start()
        await health.tell(serving=True)
        open_socket(local)
        if public != local:
            self._sweeping = asyncio.create_task(self._sweep(PeerLimit([public], MAX_PEER_CONNECTIONS)))
        return local, public

    async def _sweep(self, peers: PeerLimit) -> None:
        """Ends the connections of those who have too many, until cancelled."""
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            if over := peers.enforce():
                log.warning("%d connections too many were ended, of %s", len(over), ", ".join(sorted(set(over))))

    def _bind_public(self, listen: Address) -> Address:
        try:
            return bind(self._server, listen, self._admission.credentials)
        except UsageError:
            if listen != DEFAULT_LISTEN or self._settings.worker.listen is not None:
                raise
            # Another run has it; any port will do, nobody asked for this one.
            return bind(self._server, listen.with_port(0), self._admission.credentials)

    def open(self, policy: PolicyAccess) -> None:
        """Lets in who has come before the policy was there, and who comes from now on.

        Args:
            policy: Where workers find it.
        """
        self._policy = policy
        self._balance = ReplicaBalance(policy.addresses)
        self._waiting.end()

    def move(self, policy: PolicyAccess) -> None:
        """Tells the workers that are here, and those that come, that the policy is somewhere else from now on.

        Slots end the episode that they are in, as far as they can, and look for it there with the next one.

        Args:
            policy: Where workers find it: the same policy of the same run.
        """
        self._policy = policy
        self._balance = ReplicaBalance(policy.addresses)
        for name in self.coordinator.workers:
            self._assign_again(name)

    def grow(self, slots: Mapping[str, int]) -> None:
        """Has the workers that the run has started, and those that it will start, hold more slots from now on.

        That is of each, by the part of the run that it is for; nobody gets fewer.
        """
        self._grown = slots
        for name in self.coordinator.grow(slots):
            self._members.grow(name, self.coordinator.workers.slots_of(name))
            self._assign_again(name)

    def _assign_again(self, name: str) -> None:
        """Tells a worker that is here what it is for now."""
        workers = self.coordinator.workers
        parts = {part.label: part for part in self._settings.plan.parts}
        assignment = self._assignment_of(parts[workers.benchmark_of(name)], workers.slots_of(name))
        assignment.membership, assignment.rejoin_seconds = self._members.membership_of(name), REJOIN_SECONDS
        if self._policy.replicas:
            assignment.policy_addresses[:] = map(str, self._balance.assign(name, assignment.slots))
        workers.send(name, pb.OrchestratorMessage(assignment=assignment))

    def hand_over(self, coordinator: Coordinator, settings: RunSettings, policy: PolicyAccess) -> None:
        """Begins another run with the workers that are here. Settings that make workers what they are must be the same.

        Args:
            coordinator: Of the next run; the one before must have ended.
            settings: Of the next run.
            policy: Where workers find the policy of the next run.
        """
        previous, self.coordinator = self.coordinator, coordinator
        self._orders.clear()
        self._settings = settings
        self._policy = policy
        self._balance = ReplicaBalance(policy.addresses)
        parts = {part.label: part for part in settings.plan.parts}
        coordinator.take_over(previous, lambda benchmark, slots: self._assignment_of(parts[benchmark], slots))

    async def stop(self, reason: str) -> None:
        """Tells all workers to stop and closes their streams."""
        self._stopping = reason
        self._waiting.end()
        for outbox in self._outboxes:
            outbox.put_nowait(pb.OrchestratorMessage(stop=pb.Stop(reason=reason)))
        if self._sweeping is not None:
            self._sweeping.cancel()
        await self._server.stop(_STOP_GRACE)

    async def Work(  # type: ignore[override]
        self, requests: AsyncIterator[pb.WorkerMessage], context: grpc.aio.ServicerContext[Any, Any]
    ) -> None:
        if fault := self._admission.fault(context):
            self._note(f"somebody {_place(context)} wanted to join without this run's join token, and was not let in")
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, fault)
        first = await self._first_message(context)
        if first is grpc.aio.EOF:
            return
        outbox: asyncio.Queue[pb.OrchestratorMessage] = asyncio.Queue()
        try:
            taken_in = None if self._stopping else await self._take_in(first, context, outbox)
        except SparringError as error:
            self._note(f"a worker {_place(context)} is not taken in: {error.sentence}")
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, status_message(error.sentence))
        if taken_in is None:
            await context.write(pb.OrchestratorMessage(stop=pb.Stop(reason=self._stopping)))
        else:
            await self._converse(taken_in, context, outbox)

    async def _first_message(self, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        """Returns a worker's first message, or EOF; who sends none in time, or nonsense, is sent away."""
        try:
            # Not by wait_for(): in Python 3.11 that loses a cancellation that comes at the moment of the message.
            async with asyncio.timeout(SILENCE_SECONDS):
                return await next_message(context)
        except TimeoutError:
            await context.abort(
                grpc.StatusCode.DEADLINE_EXCEEDED, "no registration came; a worker's first message is one."
            )
        except OutOfBounds as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, error.sentence)

    async def _take_in(
        self,
        first: pb.WorkerMessage,
        context: grpc.aio.ServicerContext[Any, Any],
        outbox: asyncio.Queue[pb.OrchestratorMessage],
    ) -> _TakenIn | None:
        """Makes a worker one of the run's, as soon as the policy is there; None: the run has ended before.

        Raises:
            SparringError: If the run has nothing for it.
        """
        parts, register = {part.label: part for part in self._settings.plan.parts}, first.register
        member = await self._members.returning(register, parts)
        part = self._part(first) if member is None else parts[member.part]
        slots = (register.slots or self._default_slots) if member is None else member.slots
        if not self._waiting.is_over:
            await self._get_ready(context, register, part, slots)
        if self._stopping:
            return None
        launched = self._admission.is_launched(context)
        if launched:
            slots = max(slots, self._grown.get(part.label, 0))
        assignment = self._assignment_of(part, slots)
        name = self.coordinator.join(register, assignment, outbox.put_nowait, part=part.label, launched=launched)
        assignment.membership = register.membership or secrets.token_urlsafe(16)
        assignment.rejoin_seconds = REJOIN_SECONDS
        if member is not None:
            assignment.kept.extend(self.coordinator.take_back(name, set(register.held)))
            log.info("worker %s is back, and goes on with %d episodes", name, len(assignment.kept))
        if self._policy.replicas:  # only now, that the worker is one of ours
            spread = self._balance.assign(name, assignment.slots)
            assignment.policy_addresses[:] = map(str, spread)
        return _TakenIn(name, part.label, assignment)

    async def _converse(
        self,
        taken_in: _TakenIn,
        context: grpc.aio.ServicerContext[Any, Any],
        outbox: asyncio.Queue[pb.OrchestratorMessage],
    ) -> None:
        """Sends a worker what is for it and passes on what it says, until its stream ends or it falls silent."""
        name, assignment = taken_in.worker, taken_in.assignment
        reason = f"the connection to worker {name!r} was lost."
        self._outboxes.add(outbox)
        outbox.put_nowait(pb.OrchestratorMessage(assignment=assignment))
        self.attendance.joined(name)
        silent = False
        stream = WorkerStream(context, SILENCE_SECONDS, outbox.qsize)
        reading = asyncio.create_task(stream.read(lambda message: self.coordinator.handle(name, message)))
        left = asyncio.Event()
        self._members.add(assignment.membership, Member(name, taken_in.part, assignment.slots, reading, left))
        sender = asyncio.create_task(self._send(context, outbox))
        try:
            if await stream.falls_silent(reading):
                silent = True
                reason = f"worker {name!r} was silent for {stream.silence:g} s."
            elif not reading.cancelled():  # else the same worker has dialled again
                reading.result()
        except OutOfBounds as error:
            log.warning("worker %s is sent away: %s", name, error.sentence)
            reason = f"worker {name!r} was sent away: {error.sentence}"
            self._members.remove(assignment.membership)
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, error.sentence)
        finally:
            self._outboxes.discard(outbox)
            sender.cancel()
            reading.cancel()
            self._balance.leave(name)
            self.attendance.left(name, reason, silent=silent)
            self.coordinator.leave(name, reason)
            left.set()

    def _note(self, sentence: str) -> None:
        """Logs that somebody was turned away: once, and a few of them, as they may ask again without end."""
        if sentence not in self._notes and len(self._notes) < _MOST_NOTES:
            self._notes.add(sentence)
            log.warning("%s", render(sentence, FLAGS))

    async def _send(
        self, context: grpc.aio.ServicerContext[Any, Any], outbox: asyncio.Queue[pb.OrchestratorMessage]
    ) -> None:
        while True:
            await context.write(await outbox.get())

    def _part(self, first: pb.WorkerMessage) -> Evaluation:
        """Returns which part of the run a new worker is for: the one that it was started for, else the neediest."""
        if first.WhichOneof("message") != "register":
            raise UsageError("a worker's first message must be its registration.")
        register, settings = first.register, self._settings
        if register.protocol != WORK_PROTOCOL_VERSION:
            raise UsageError(
                f"the worker speaks protocol version {register.protocol}, this orchestrator {WORK_PROTOCOL_VERSION}; "
                "install the same release of sparring on both sides."
            )
        able = [part for part in settings.plan.parts if part.benchmark in register.benchmarks]
        if not able:
            wanted = " and ".join(part.benchmark for part in settings.plan.parts)
            has = ", ".join(register.benchmarks) or "nothing"
            raise UsageError(f"this run is of {wanted}, and the worker has only {has} installed.")
        if register.evaluation:
            able = [part for part in able if part.label == register.evaluation]
            if not able:
                raise UsageError(f"this run has no evaluation {register.evaluation!r} that the worker could be for.")
        return max(able, key=lambda part: self.coordinator.need(part.label, coming=self._waiting.slots(part.label)))

    async def _get_ready(
        self, context: grpc.aio.ServicerContext[Any, Any], register: pb.Register, part: Evaluation, slots: int
    ) -> None:
        """Lets a worker get ready until the policy is there, or the run has ended. It is none of the run's yet."""
        name, launched = register.worker, self._admission.is_launched(context)
        with self._waiting.entered(register, part.label, slots, self.coordinator) as tasks:
            if launched:  # who has started it need not wonder where it is
                self.attendance.joined(name)
            preparation = pb.Preparation(
                assignment=self._assignment_of(part, slots),  # which has no policy in it yet
                tasks=tasks,
                images=looks_at_images(self._settings),
                seconds=_LOAD_SECONDS + self._settings.policy.policy_timeout,
            )
            try:
                await context.write(pb.OrchestratorMessage(preparation=preparation))
                await self._waiting.wait()
            except BaseException:
                if launched:
                    self.attendance.left(name, f"the connection to worker {name!r} was lost.", silent=False)
                raise

    def _assignment_of(self, part: Evaluation, slots: int) -> pb.Assignment:
        settings, policy = self._settings, self._policy
        if part.label not in self._orders:  # it takes a look at all packages that are installed
            self._orders[part.label] = assignment_message(settings, part)
        assignment = assignment_for(self._orders[part.label], settings, policy, slots=slots)
        assignment.renderers.extend(self.coordinator.renderers(part.label))
        assignment.heartbeat_seconds, assignment.silence_seconds = HEARTBEAT_SECONDS, SILENCE_SECONDS
        return assignment


def _place(context: grpc.aio.ServicerContext[Any, Any]) -> str:
    """Returns where a peer is, for people."""
    peer = context.peer()
    return "on this machine" if came_by_socket(peer) else f"at {peer}"

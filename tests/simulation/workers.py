"""Workers of a simulated run: they play by the truth, and are killed, frozen, cut off and mistaken on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Protocol

import grpc
from simulation.faults import Faults
from simulation.plans import recording_of, truth_of
from simulation.wire import Stream
from virtual_time import clock

from sparring.orchestrator.plan import EpisodeId
from sparring.protos import WORK_PROTOCOL_VERSION
from sparring.protos import evaluation_pb2 as pb
from sparring.protos.pieces import declare

_DIAL_SECONDS = 60.0
_HEARTBEAT_SECONDS = 5.0
"""Fewer than the contract asks for: they cost most of the time that a simulation takes, and silence begins at 30."""


_OF_TROUBLE = {"full": "policy full", "gone": "policy unreachable"}


class Network(Protocol):
    """Where orchestrators are found."""

    @property
    def trouble(self) -> str:
        """What is wrong for everybody just now; empty: nothing.

        Something is "missing" that is not installed, and every episode ends in the same error; or the policy is "full",
        or "gone".
        """

    def dial(self, *, launched: bool) -> Stream | None:
        """Returns a new stream to the orchestrator; None if there is none just now.

        Args:
            launched: Whether it is of a worker that the run has started itself.
        """

    def held_by_others(self, worker: str) -> list[int]:
        """Returns the leases that others hold: what a thief who reads along would know."""


class Died(Exception):
    """The worker's process has ended."""


class SimulatedWorker:
    """One worker's life, over many streams.

    Args:
        name: Unique in the run, as long as it lives.
        slots: How many.
        network: To dial.
        faults: What goes wrong.
        rng: For everything else.
        launched: Whether the run has started it itself.
    """

    def __init__(self, name: str, slots: int, network: Network, faults: Faults, rng: Random, *, launched: bool) -> None:
        self.name = name
        self._launched = launched
        self._slots = slots
        self._network = network
        self._faults = faults
        self._dice = rng
        self._thaws = 0.0
        self._late: list[pb.Result] = []
        self._membership = ""
        self._rejoin_seconds = 0.0
        self._comes_back = False
        self._held: dict[int, int] = {}
        """The leases that its slots play, or owe the results of, and by which slot."""
        self._owed: list[tuple[int, list[pb.WorkerMessage]]] = []
        """What could not be said, by lease, while there was no stream."""
        self._free: set[int] = set()
        """Slots that have asked and got nothing."""
        self._dropped: set[int] = set()
        """Leases that others have got while it was away."""
        self._broken = asyncio.Event()

    async def live(self) -> None:
        """Works until it is killed; dials again when its stream has ended."""
        while True:
            stream = self._network.dial(launched=self._launched)
            if stream is not None:
                try:
                    await self._work(stream)
                except Died:
                    return
            await asyncio.sleep(self._dice.uniform(0.1, 5))

    async def _work(self, stream: Stream) -> None:
        """Works for one run, over as many streams as it takes."""
        self._membership, self._held, self._owed, self._free = "", {}, [], set()
        self._dropped.clear()
        self._broken.clear()
        self._comes_back = False
        if await self._assigned(stream) is None:
            return
        for result in self._late:  # also to an orchestrator that has been started anew meanwhile
            stream.say(result=result)
        self._late.clear()
        self._stream: Stream | None = stream
        self._leases: list[asyncio.Queue[pb.Lease]] = [asyncio.Queue() for _ in range(self._slots)]
        slots = [asyncio.create_task(self._play(slot)) for slot in range(self._slots)]
        try:
            while self._stream is not None:
                await self._talk(self._stream, slots)
                for slot in slots:
                    if slot.done():
                        slot.result()  # it has died
                if not self._comes_back:
                    return
                self._comes_back = False
                self._stream = await self._rejoin(slots)
        finally:
            for task in slots:
                task.cancel()
            await asyncio.gather(*slots, return_exceptions=True)

    async def _assigned(self, stream: Stream, held: Sequence[int] = ()) -> pb.Assignment | None:
        """Registers; returns what the orchestrator says, None if it does not want this worker."""
        stream.say(
            register=pb.Register(
                protocol=WORK_PROTOCOL_VERSION,
                worker=self.name,
                slots=self._slots,
                benchmarks=["toy"],
                host="sim",
                membership=self._membership,
                held=held,
            )
        )
        try:
            async with asyncio.timeout(_DIAL_SECONDS):
                first = await self._hear(stream)
        except TimeoutError:
            stream.cut(noticed=True)
            return None
        if first is grpc.aio.EOF or first.WhichOneof("message") != "assignment":
            return None
        self._membership = first.assignment.membership
        self._rejoin_seconds = first.assignment.rejoin_seconds
        return first.assignment  # type: ignore[no-any-return]

    async def _talk(self, stream: Stream, slots: list[asyncio.Task[None]]) -> None:
        """Talks until the stream ends, or a slot's fault ends it."""
        chores = [asyncio.create_task(self._receive(stream)), asyncio.create_task(self._beat(stream))]
        try:
            broken = asyncio.create_task(self._broken.wait())
            chores.append(broken)
            await asyncio.wait([*chores, *slots], return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._broken.clear()
            self._stream = None
            for chore in chores:
                chore.cancel()
            await asyncio.gather(*chores, return_exceptions=True)

    async def _rejoin(self, slots: list[asyncio.Task[None]]) -> Stream | None:
        """Comes back, with the leases that it has; its slots play on meanwhile. None if it is not wanted any more."""
        deadline = clock().time() + self._rejoin_seconds
        while clock().time() < deadline and not any(slot.done() for slot in slots):
            await asyncio.sleep(self._dice.choice((0.0, 0.0, 0.5, self._dice.uniform(0, 100))))
            stream = self._network.dial(launched=self._launched)
            if stream is None:
                continue
            held = sorted(self._held)
            if self._dice.random() < 0.2:  # and with what it never had
                held += [self._dice.getrandbits(62), *self._network.held_by_others(self.name)]
            assignment = await self._assigned(stream, held)
            if assignment is None:
                return None
            self._go_on(stream, set(assignment.kept))
            return stream
        return None

    def _go_on(self, stream: Stream, kept: set[int]) -> None:
        """Sends what it owes, says which slots are free, and forgets what others have got meanwhile."""
        self._stream = stream
        for number, messages in self._owed:
            if number in kept:
                for message in messages:
                    stream.pass_on(message)
            self._free.add(self._held.pop(number, 0))
        self._owed.clear()
        for number in [number for number in self._held if number not in kept]:
            self._dropped.add(number)
        for slot in sorted(self._free):
            stream.say(ready=pb.Ready(slot=slot))

    async def _receive(self, stream: Stream) -> None:
        while (message := await self._hear(stream)) is not grpc.aio.EOF:
            kind = message.WhichOneof("message")
            if kind == "stop":
                return
            if kind == "lease":
                self._held[message.lease.lease] = message.lease.slot
                self._free.discard(message.lease.slot)
                self._leases[message.lease.slot].put_nowait(message.lease)
        self._comes_back = self._dice.random() < 0.5  # it has broken, or the orchestrator has

    async def _beat(self, stream: Stream) -> None:
        while True:
            await self._thawed()
            stream.say(heartbeat=pb.Heartbeat())
            await asyncio.sleep(_HEARTBEAT_SECONDS)

    async def _play(self, slot: int) -> None:
        self._ask(slot)
        while True:
            lease = await self._leases[slot].get()
            await asyncio.sleep(self._dice.choice((0.0, 0.01, self._dice.uniform(0, 5), self._dice.uniform(0, 60))))
            await self._thawed()
            if lease.lease in self._dropped:
                self._dropped.discard(lease.lease)
                del self._held[lease.lease]
                self._ask(slot)
                continue
            episode = EpisodeId("toy", lease.task, lease.index)
            result = truth_of(episode).result(lease.lease)
            if self._network.trouble == "missing":
                kind = pb.ERROR_KIND_SIMULATOR
                result = pb.Result(
                    lease=lease.lease, outcome=pb.OUTCOME_ERROR, error="something is missing.", error_kind=kind
                )
            fault = _OF_TROUBLE.get(self._network.trouble) or self._faults.draw()
            pieces: list[pb.WorkerMessage] = []
            if lease.record and result.outcome != pb.OUTCOME_ERROR:
                content = recording_of(episode)
                declare(result, "recording", len(content))
                pieces = self._pieces(lease.lease, content, missing=fault == "piece missing")
            if fault == "cut, comes back":
                self._cut()
            stream = self._stream
            if stream is None or stream.is_over:  # it is told when there is one again
                self._owed.append((lease.lease, [*pieces, pb.WorkerMessage(result=result)]))
                continue
            for piece in pieces:
                stream.pass_on(piece)
            await self._end(stream, slot, result, fault)
            self._held.pop(lease.lease, None)
            self._ask(slot)

    def _cut(self) -> None:
        """Loses its stream, but not its life."""
        if self._stream is not None:
            self._stream.cut(noticed=self._dice.random() < 0.5)
            self._stream = None
            self._comes_back = True
            self._broken.set()

    def _ask(self, slot: int) -> None:
        self._free.add(slot)
        if self._stream is not None:
            self._stream.say(ready=pb.Ready(slot=slot))

    def _pieces(self, lease: int, content: bytes, *, missing: bool) -> list[pb.WorkerMessage]:
        """Returns a recording in pieces, perhaps not all of them."""
        ends = sorted(self._dice.sample(range(1, len(content)), 2))
        parts = [content[: ends[0]], content[ends[0] : ends[1]], content[ends[1] :]]
        if missing:
            del parts[self._dice.randrange(3)]
        return [
            pb.WorkerMessage(piece=pb.Piece(lease=lease, what=pb.ATTACHMENT_RECORDING, content=part)) for part in parts
        ]

    async def _end(self, stream: Stream, slot: int, result: pb.Result, fault: str) -> None:
        """Says what came of a lease, or does not."""
        number = result.lease
        if fault == "error":
            kind = pb.ERROR_KIND_LIMIT
            result = pb.Result(lease=number, outcome=pb.OUTCOME_ERROR, error="out of memory.", error_kind=kind)
        elif fault == "not finite":
            result = pb.Result(lease=number, outcome=pb.OUTCOME_SUCCESS, reward_sum=float("nan"))
        elif fault == "no outcome":
            result = pb.Result(lease=number)
        elif fault == "lost":
            stream.say(lost=pb.Lost(lease=number, reason="the slot was killed."))
            return
        elif fault == "policy full":
            stream.say(lost=pb.Lost(lease=number, reason="the server is full.", policy_full=True))
            await asyncio.sleep(self._dice.uniform(0, 20))
            return
        elif fault == "policy changed":
            stream.say(lost=pb.Lost(lease=number, reason="it is another one.", policy_changed=True))
            return
        elif fault == "policy unreachable":
            await asyncio.sleep(self._dice.uniform(0, 20))  # that it was waited for
            stream.say(lost=pb.Lost(lease=number, reason="nobody is there.", policy_unreachable=True))
            return
        elif fault == "refused":
            stream.say(refused=pb.Refused(lease=number, reason="it does not fit."))
            return
        elif fault == "cannot begin":  # though it has: no honest worker says so now
            stream.say(refused=pb.Refused(reason="it cannot get ready."))
        elif fault == "interrupted":
            stream.say(lost=pb.Lost(lease=number, reason="another one has failed.", interrupted=True))
            return
        elif fault == "killed":
            stream.cut(noticed=True)
            raise Died
        elif fault == "vanished":
            stream.cut(noticed=False)
            raise Died
        elif fault == "cut":
            stream.cut(noticed=self._dice.random() < 0.5)
            self._late.append(result)  # it tells the next time, as if it had been started anew
            self._broken.set()
            return
        elif fault == "frozen":
            self._thaws = clock().time() + self._dice.choice((5.0, 29.0, 31.0, 200.0))
            await self._thawed()
        elif fault == "machine frozen":
            clock().now += self._dice.uniform(20, 500)
        elif fault == "invented":
            stream.say(result=pb.Result(lease=self._dice.getrandbits(62), outcome=pb.OUTCOME_SUCCESS, reward_sum=999))
            stream.say(lost=pb.Lost(lease=self._dice.getrandbits(62), reason="never had it."))
        elif fault == "of others":
            for other in self._network.held_by_others(self.name):
                stream.say(result=pb.Result(lease=other, outcome=pb.OUTCOME_SUCCESS, reward_sum=999))
                stream.say(lost=pb.Lost(lease=other, reason="not mine."))
        elif fault == "asks and asks":
            for _ in range(20):
                stream.say(ready=pb.Ready(slot=slot))
        stream.say(result=result)
        if fault == "duplicate":
            again = pb.Result(lease=number, outcome=pb.OUTCOME_SUCCESS, reward_sum=999)
            stream.say(result=again if self._dice.random() < 0.5 else result)
        elif fault == "result, then lost":
            stream.say(lost=pb.Lost(lease=number, reason="it was not."))

    async def _hear(self, stream: Stream) -> object:
        message = await stream.hear()
        await self._thawed()
        return message

    async def _thawed(self) -> None:
        while (left := self._thaws - clock().time()) > 0:
            await asyncio.sleep(left)

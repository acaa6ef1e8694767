"""Workers of a simulated run: they play by the truth, and are killed, frozen, cut off and mistaken on the way."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Protocol

import grpc
from simulation.faults import Faults
from simulation.plans import recording_of, truth_of
from simulation.wire import Stream
from virtual_time import clock

from sparring.orchestrator.run.plan import EpisodeId
from sparring.protos import WORK_PROTOCOL_VERSION
from sparring.protos import evaluation_pb2 as pb
from sparring.protos.pieces import declare

_DIAL_SECONDS = 60.0
_HEARTBEAT_SECONDS = 5.0
"""Fewer than the contract asks for: they cost most of the time that a simulation takes, and silence begins at 30."""


class Network(Protocol):
    """Where orchestrators are found."""

    def dial(self) -> Stream | None:
        """Returns a new stream to the orchestrator; None if there is none just now."""

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
        dice: For everything else.
    """

    def __init__(self, name: str, slots: int, network: Network, faults: Faults, dice: Random) -> None:
        self.name = name
        self._slots = slots
        self._network = network
        self._faults = faults
        self._dice = dice
        self._thaws = 0.0
        self._late: list[pb.Result] = []

    async def live(self) -> None:
        """Works until it is killed; dials again when its stream has ended."""
        while True:
            stream = self._network.dial()
            if stream is not None:
                try:
                    await self._work(stream)
                except Died:
                    return
            await asyncio.sleep(self._dice.uniform(0.1, 5))

    async def _work(self, stream: Stream) -> None:
        stream.say(
            register=pb.Register(
                protocol=WORK_PROTOCOL_VERSION, worker=self.name, slots=self._slots, benchmarks=["toy"], host="sim"
            )
        )
        try:
            async with asyncio.timeout(_DIAL_SECONDS):
                first = await self._hear(stream)
        except TimeoutError:
            stream.cut(noticed=True)
            return
        if first is grpc.aio.EOF or first.WhichOneof("message") != "assignment":
            return
        for result in self._late:  # also to an orchestrator that has been started anew meanwhile
            stream.say(result=result)
        self._late.clear()
        leases: list[asyncio.Queue[pb.Lease]] = [asyncio.Queue() for _ in range(self._slots)]
        chores = [
            asyncio.create_task(self._receive(stream, leases)),
            asyncio.create_task(self._beat(stream)),
            *(asyncio.create_task(self._play(stream, slot, queue)) for slot, queue in enumerate(leases)),
        ]
        try:
            await asyncio.wait(chores, return_when=asyncio.FIRST_COMPLETED)
            for chore in chores:
                if chore.done():
                    chore.result()
        finally:
            for chore in chores:
                chore.cancel()
            await asyncio.gather(*chores, return_exceptions=True)

    async def _receive(self, stream: Stream, leases: list[asyncio.Queue[pb.Lease]]) -> None:
        while (message := await self._hear(stream)) is not grpc.aio.EOF:
            kind = message.WhichOneof("message")
            if kind == "stop":
                return
            if kind == "lease":
                leases[message.lease.slot].put_nowait(message.lease)

    async def _beat(self, stream: Stream) -> None:
        while True:
            await self._thawed()
            stream.say(heartbeat=pb.Heartbeat())
            await asyncio.sleep(_HEARTBEAT_SECONDS)

    async def _play(self, stream: Stream, slot: int, leases: asyncio.Queue[pb.Lease]) -> None:
        while True:
            await self._thawed()
            stream.say(ready=pb.Ready(slot=slot))
            lease = await leases.get()
            await asyncio.sleep(self._dice.choice((0.0, 0.01, self._dice.uniform(0, 5), self._dice.uniform(0, 60))))
            await self._thawed()
            episode = EpisodeId("toy", lease.task, lease.index)
            result = truth_of(episode).result(lease.lease)
            fault = self._faults.draw()
            if lease.record and result.outcome != pb.OUTCOME_ERROR:
                content = recording_of(episode)
                declare(result, "recording", len(content))
                self._attach(stream, lease.lease, content, missing=fault == "piece missing")
            await self._end(stream, slot, result, fault)

    def _attach(self, stream: Stream, lease: int, content: bytes, *, missing: bool) -> None:
        """Sends a recording in pieces, perhaps not all of them."""
        ends = sorted(self._dice.sample(range(1, len(content)), 2))
        parts = [content[: ends[0]], content[ends[0] : ends[1]], content[ends[1] :]]
        if missing:
            del parts[self._dice.randrange(3)]
        for part in parts:
            stream.say(piece=pb.Piece(lease=lease, what=pb.ATTACHMENT_RECORDING, content=part))

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
        elif fault == "killed":
            stream.cut(noticed=True)
            raise Died
        elif fault == "vanished":
            stream.cut(noticed=False)
            raise Died
        elif fault == "cut":
            stream.cut(noticed=self._dice.random() < 0.5)
            self._late.append(result)  # it tells the next time
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

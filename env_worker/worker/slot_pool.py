"""All slots of a worker: made from what it is assigned, told what is new, and ended together."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Sequence
from typing import Any

from sparring.env_worker.benchmark import Benchmark, asking
from sparring.env_worker.registry import get_benchmark
from sparring.env_worker.rendering.choice import ThisMachine, choose_devices
from sparring.env_worker.rendering.devices import RenderDevices
from sparring.env_worker.worker.fork_server import ForkServer
from sparring.env_worker.worker.memory import OomWatch
from sparring.env_worker.worker.outbox import lease_of
from sparring.env_worker.worker.slots import SlotHandle
from sparring.protos import evaluation_pb2 as pb


class SlotPool:
    """The slots; none, until they are begun with.

    Args:
        send: Takes the messages that they have for the orchestrator.
    """

    def __init__(self, send: Callable[[pb.WorkerMessage], None]) -> None:
        self._send = send
        self._assignment = pb.Assignment()
        self._serving: asyncio.Task[None] | None = None
        self._assigned = asyncio.Event()
        self.handles: Sequence[SlotHandle] = ()

    def assign(self, assignment: pb.Assignment) -> None:
        """Says what the slots are for from now on: those that there are, and those that are being made.

        If it asks for more of them than there are, more are made. None is taken away.
        """
        self._assignment = assignment
        for slot in self.handles:
            slot.assignment = assignment
        self._assigned.set()

    def begin(self, preparation: pb.Preparation | None = None) -> asyncio.Task[None]:
        """Begins with the slots, unless that was done before; returns the task that they are served in, for ever.

        Args:
            preparation: What they may do before their first leases come.
        """
        if self._serving is None:
            self._serving = asyncio.create_task(self._serve(preparation or pb.Preparation()), name="slots")
        return self._serving

    async def stop(self, *, grace: float) -> None:
        """Ends all of them."""
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.gather(self._serving, return_exceptions=True)
        await asyncio.gather(*(slot.stop(grace=grace) for slot in self.handles))

    def give(self, lease: pb.Lease) -> None:
        """Gives a lease to the slot that it is for."""
        self.handles[lease.slot].leases.put_nowait(lease)

    def watch(self, watch: pb.Watch) -> None:
        """Lets a slot show what it plays, for a while; nothing comes of one that there is not, or not yet."""
        for slot in self.handles[watch.slot : watch.slot + 1]:
            slot.watch(watch)

    def take_nothing_new(self) -> None:
        """Has slots play what they have to the end, and not say that they are free."""
        for slot in self.handles:
            slot.is_leaving = True

    @property
    def are_idle(self) -> bool:
        """Whether nothing is being played, and nothing waits to be played."""
        return all(slot.held is None and slot.leases.empty() for slot in self.handles)

    def piece_taken(self, piece: pb.Piece) -> None:
        """Tells whoever it concerns that a piece is on its way."""
        for slot in self.handles:
            slot.piece_taken(piece)

    def check(self, *, frozen: bool) -> Sequence[pb.SlotActivity]:
        """Kills those that stall, and returns what each is doing.

        Args:
            frozen: Whether this process did not run: what slots have said in the meantime has not been read yet.
        """
        for slot in self.handles:
            if frozen:
                slot.excuse()
            slot.kill_if_stalled()
        return [slot.activity for slot in self.handles]

    @property
    def held(self) -> set[int]:
        """The numbers of the leases that are being played."""
        return {slot.held for slot in self.handles if slot.held}

    def unconfirmed(self, unsent: Collection[int]) -> list[pb.WorkerMessage]:
        """Returns how leases have ended whose orchestrator may not have heard of it, but for those not sent yet."""
        return [m for slot in self.handles if (m := slot.unconfirmed) and lease_of(m) not in unsent]

    async def drop(self, leases: Collection[int]) -> None:
        """Ends what is being played of these leases, without a word."""
        await asyncio.gather(*(slot.drop() for slot in self.handles if slot.held in leases))

    def ask_again(self) -> None:
        """Says once more which slots are free."""
        for slot in self.handles:
            slot.ask_again()

    async def _serve(self, preparation: pb.Preparation) -> None:
        benchmark = get_benchmark(self._assignment.benchmark)
        settings = benchmark.read_settings(json.loads(self._assignment.benchmark_settings))
        await asyncio.to_thread(self._get_ready, benchmark, settings)  # may download; heartbeats go on
        devices = await _render_devices(self._assignment.render_device, benchmark)
        server, oom = ForkServer.of(benchmark), OomWatch()
        first = dict(enumerate(preparation.tasks))

        def make(number: int) -> SlotHandle:
            return SlotHandle(
                server,
                number,
                self._assignment,
                benchmark.tasks_per_process,
                self._send,
                oom,
                devices=devices,
                preparation=pb.Preparation(tasks=[first.get(number, "")], images=preparation.images),
            )

        await self._keep_serving(make, oom)

    async def _keep_serving(self, make: Callable[[int], SlotHandle], oom: OomWatch) -> None:
        """Makes slots and serves them, and more of them when an assignment asks for more, for ever."""
        serving: set[asyncio.Task[Any]] = set()
        try:
            while True:
                self._assigned.clear()
                new = [make(number) for number in range(len(self.handles), self._assignment.slots)]
                self.handles = [*self.handles, *new]
                for slot in self.handles:
                    slot.fair_share = oom.fair_share(len(self.handles))
                serving |= {asyncio.create_task(slot.serve()) for slot in new}
                more = asyncio.create_task(self._assigned.wait())
                serving.add(more)
                done, serving = await asyncio.wait(serving, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
        finally:
            for task in serving:
                task.cancel()
            await asyncio.gather(*serving, return_exceptions=True)

    def _get_ready(self, benchmark: Benchmark, settings: Any) -> None:
        with asking(self._assignment.benchmark, "prepare()"):
            benchmark.prepare(settings)


async def _render_devices(wanted: str, benchmark: Benchmark) -> RenderDevices:
    """Returns what slots draw on. Processes of their own find that out, in their own time.

    Raises:
        UsageError: If nothing that was asked for draws here.
    """
    machine, mujoco = ThisMachine(), benchmark.draws_with_mujoco()
    return RenderDevices(await asyncio.to_thread(choose_devices, wanted, machine, mujoco=mujoco))

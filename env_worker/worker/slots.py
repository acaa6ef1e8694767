"""The slots of a worker: forked, fed, watched and replaced."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, ForkServerProcess

from sparring.env_worker.benchmark import Benchmark
from sparring.env_worker.worker import slot as slot_process
from sparring.env_worker.worker.memory import OomWatch
from sparring.protos import evaluation_pb2 as pb
from sparring.protos.errors import SparringError
from sparring.protos.record import EpisodeRecord

log = logging.getLogger(__name__)

# multiprocessing's word for "the fork server is gone, and how its child ended with it".
_UNKNOWN_EXIT = 255
# A slot that ends by one of these was ended by somebody: the episode is not to blame, and runs again.
_KILLED = (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGHUP, -signal.SIGINT, _UNKNOWN_EXIT)


def fork_server(benchmark: Benchmark) -> ForkServerContext:
    """Starts a process that imports the benchmark's simulator once, and forks slots from there."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["sparring.env_worker.worker.slot", f"{type(benchmark).__module__}", *benchmark.preload]
    )
    return context


class SlotHandle:
    """The worker's end of one slot. Its process is replaced when it dies, stalls or has served its number of tasks.

    Args:
        context: Where slots are forked from.
        number: Of the slot in this worker.
        assignment: What the worker is for; may be replaced by another one of the same benchmark and its settings.
        tasks_per_process: See `Benchmark`.
        send: Takes the messages that the slot has for the orchestrator.
        oom: Of the worker: it knows which deaths were for lack of memory.
    """

    def __init__(
        self,
        context: ForkServerContext,
        number: int,
        assignment: pb.Assignment,
        tasks_per_process: int,
        send: Callable[[pb.WorkerMessage], None],
        oom: OomWatch,
    ) -> None:
        self._context = context
        self._number = number
        self.assignment = assignment
        self._told = assignment
        self._tasks_per_process = tasks_per_process
        self._send = send
        self._oom = oom
        self._process: ForkServerProcess | None = None
        self._pipe: Connection | None = None
        self._lease: pb.Lease | None = None
        self._tasks: set[str] = set()
        self._heard = time.monotonic()
        self._stall_verdict = ""
        self.activity = pb.SlotActivity(slot=number)
        self.leases: asyncio.Queue[pb.Lease] = asyncio.Queue()

    async def serve(self) -> None:
        """Forks the process, says that the slot is free, and gives it the leases that come, for ever."""
        await self._fork()
        self._ready()
        while True:
            await self._run(await self.leases.get())

    async def _run(self, lease: pb.Lease) -> None:
        self._lease = lease
        if self._tasks_per_process and lease.task not in self._tasks and len(self._tasks) >= self._tasks_per_process:
            await self._retire()
        if self._process is None:
            await self._fork()
        self._tasks.add(lease.task)
        self._heard = time.monotonic()
        assert self._pipe is not None
        with suppress(OSError):  # it has just died; the reader finds out and gives the lease back
            if self._told is not self.assignment:
                self._told = self.assignment
                self._pipe.send_bytes(pb.OrchestratorMessage(assignment=self.assignment).SerializeToString())
            self._pipe.send_bytes(pb.OrchestratorMessage(lease=lease).SerializeToString())

    def kill_if_stalled(self) -> None:
        """Kills the process if it has not made a step for too long."""
        silent = time.monotonic() - self._heard
        if self._lease is not None and self._process is not None and silent > self.assignment.stall_seconds:
            self._stall_verdict = f"the simulator made no step for {silent:.0f} s and its slot was killed."
            log.warning("slot %d: %s", self._number, self._stall_verdict)
            self._process.kill()

    async def stop(self, *, grace: float) -> None:
        """Ends the process: politely if it is idle, at once if it is in an episode."""
        process = self._process
        if process is None:
            return
        if self._lease is None:
            await self._retire(grace=grace)
        else:
            self._detach()
            process.kill()
            await asyncio.to_thread(process.join, grace)

    async def _fork(self) -> None:
        ours, theirs = self._context.Pipe(duplex=True)
        self._told = self.assignment
        process = self._context.Process(
            target=slot_process.main,
            args=(theirs, self._number, self._told.SerializeToString()),
            name=f"slot-{self._number}",
            daemon=True,
        )
        # Blocks until the fork server has done its imports, so not in the loop.
        try:
            await asyncio.to_thread(process.start)
        except EOFError as error:
            raise SparringError(
                "the process that slots are forked from died while it imported the simulator; its log says why."
            ) from error
        theirs.close()
        self._process, self._pipe, self._tasks = process, ours, set()
        asyncio.get_running_loop().add_reader(ours.fileno(), self._receive)

    async def _retire(self, *, grace: float = 10.0) -> None:
        process, pipe = self._process, self._pipe
        self._detach(close=False)
        assert process is not None
        assert pipe is not None
        with suppress(OSError):  # dead already
            pipe.send_bytes(pb.OrchestratorMessage(stop=pb.Stop()).SerializeToString())
        await asyncio.to_thread(process.join, grace)
        if process.is_alive():
            process.kill()
            await asyncio.to_thread(process.join, grace)
        pipe.close()

    def _detach(self, *, close: bool = True) -> None:
        assert self._pipe is not None
        asyncio.get_running_loop().remove_reader(self._pipe.fileno())
        if close:
            self._pipe.close()
        self._process = self._pipe = None

    def _receive(self) -> None:
        assert self._pipe is not None
        try:
            message = pb.WorkerMessage.FromString(self._pipe.recv_bytes())
        except (EOFError, OSError):
            self._died()
            return
        self._heard = time.monotonic()
        kind = message.WhichOneof("message")
        if kind == "activity":
            self.activity = message.activity
            return
        self._lease = None
        self.activity = pb.SlotActivity(slot=self._number, total_steps=self.activity.total_steps)
        self._send(message)
        self._ready()

    def _ready(self) -> None:
        self._send(pb.WorkerMessage(ready=pb.Ready(slot=self._number)))

    def _died(self) -> None:
        process, lease = self._process, self._lease
        self._detach()
        assert process is not None
        process.join(1.0)
        log.warning("slot %d ended with exit code %s", self._number, process.exitcode)
        if lease is None:
            return  # idle; the next lease forks a new one
        self._lease = None
        blame = self._stall_verdict or (self._oom.blame() if process.exitcode == -signal.SIGKILL else "")
        verdict = blame or _verdict(process.exitcode)
        if process.exitcode in _KILLED and not blame:
            self._send(pb.WorkerMessage(lost=pb.Lost(lease=lease.lease, reason=verdict)))
        else:
            failed = EpisodeRecord.failed("limit" if blame else "simulator", verdict)
            self._send(pb.WorkerMessage(result=failed.to_message(lease.lease)))
        self._stall_verdict = ""
        self._ready()


def _verdict(exit_code: int | None) -> str:
    if exit_code is not None and exit_code < 0:
        return f"the slot's process was ended by {signal.Signals(-exit_code).name}; its log says more."
    return f"the slot's process ended with exit code {exit_code}; its log says more."

"""The slots of a worker: forked, fed, watched and replaced."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from sparring.env_worker.rendering.device import Device
from sparring.env_worker.rendering.devices import RenderDevices
from sparring.env_worker.rendering.mark import DRAWING, RAISED, Mark
from sparring.env_worker.rendering.probe import Drawn, NotDrawn, try_device
from sparring.env_worker.worker import slot as slot_process
from sparring.env_worker.worker.fork_server import ForkServer
from sparring.env_worker.worker.memory import OomWatch, format_memory
from sparring.env_worker.worker.slot_process import SlotProcess
from sparring.protos import evaluation_pb2 as pb
from sparring.protos.process import signal_name
from sparring.protos.record import EpisodeRecord

log = logging.getLogger(__name__)

# multiprocessing's word for "the fork server is gone, and how its child ended with it".
_UNKNOWN_EXIT = 255
_DROP_GRACE = 5.0
# A slot that ends by one of these was ended by somebody, or nobody knows how: the episode is not to blame.
_KILLED = (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGHUP, -signal.SIGINT, -signal.SIGQUIT, _UNKNOWN_EXIT, None)


class SlotHandle:
    """The worker's end of one slot. Its process is replaced when it dies, stalls, grows or has served its tasks.

    Args:
        server: Where slots are forked from.
        number: Of the slot in this worker.
        assignment: What the worker is for; may be replaced by another one of the same benchmark and its settings.
        tasks_per_process: See `Benchmark`.
        send: Takes the messages that the slot has for the orchestrator.
        oom: Of the worker: it knows which deaths were for lack of memory.
        fair_share: See the attribute.
        devices: Of the worker, to draw on.
        preparation: What its first process may do before the first lease comes.
    """

    def __init__(
        self,
        server: ForkServer,
        number: int,
        assignment: pb.Assignment,
        tasks_per_process: int,
        send: Callable[[pb.WorkerMessage], None],
        oom: OomWatch,
        *,
        fair_share: int = 0,
        devices: RenderDevices | None = None,
        preparation: pb.Preparation | None = None,
    ) -> None:
        self._server = server
        self._number = number
        self.assignment = assignment
        self._told = assignment
        self._tasks_per_process = tasks_per_process
        self._send = send
        self._oom = oom
        self.fair_share = fair_share
        """Bytes that a process may hold between two episodes where the assignment does not say; 0: any number."""
        self._devices = devices or RenderDevices()
        self._device: Device | None = None
        self._mark: Mark | None = None
        self._trying: asyncio.Task[None] | None = None
        self._preparation = preparation or pb.Preparation()
        self._is_preparing = False
        self._process: SlotProcess | None = None
        self._lease: pb.Lease | None = None
        self._tasks: set[str] = set()
        self._heard = time.monotonic()
        self._stalled = ""
        self._stopped = ""
        self._was_stopped = False
        self._is_free = False
        """Whether it has said so, and has got nothing since."""
        self.is_leaving = False
        """Whether it takes nothing new."""
        self.unconfirmed: pb.WorkerMessage | None = None
        """How the last lease ended, until the next one comes: by then the orchestrator has heard of it for certain."""
        self.activity = pb.SlotActivity(slot=number)
        self.leases: asyncio.Queue[pb.Lease] = asyncio.Queue()

    async def serve(self) -> None:
        """Forks the process, says that the slot is free, and gives it the leases that come, for ever."""
        await self._fork()
        self._prepare()
        self._ready()
        while True:
            await self._run(await self.leases.get())

    def _prepare(self) -> None:
        """Lets the process make the simulator that it will begin with; it says when it has, or could not."""
        task = next(iter(self._preparation.tasks), "")
        if task and self._process is not None:
            self._is_preparing = True
            self._tasks.add(task)
            self._process.send(pb.OrchestratorMessage(preparation=self._preparation))

    async def _run(self, lease: pb.Lease) -> None:
        self._lease, self._is_free, self.unconfirmed = lease, False, None
        if self._process is not None and self._is_used_up(self._process, lease):
            await self._retire(self._process)
        if self._process is None:
            await self._fork()
        self._tasks.add(lease.task)
        self._heard = time.monotonic()
        assert self._process is not None
        if self._told is not self.assignment:
            self._process.send(pb.OrchestratorMessage(assignment=self._assigned()))
        self._process.send(pb.OrchestratorMessage(lease=lease))

    def _is_used_up(self, process: SlotProcess, lease: pb.Lease) -> bool:
        """Returns whether a process that has played episodes is not to play this one, too."""
        if self._devices.is_left(self._device):
            return True
        if self._tasks_per_process and lease.task not in self._tasks and len(self._tasks) >= self._tasks_per_process:
            return True
        limit = self.assignment.slot_memory or self.fair_share
        held = process.memory if limit and self._tasks else 0
        if held > limit:
            log.info(
                "slot %d: its process holds %s, more than %s, and is replaced",
                self._number,
                format_memory(held),
                format_memory(limit),
            )
        return held > limit

    def piece_taken(self, piece: pb.Piece) -> None:
        """Hears that a piece is on its way; if it was of this slot, the next may come."""
        if self._lease is None or self._lease.lease != piece.lease or self._process is None:
            return
        self._heard = time.monotonic()  # it could not do anything meanwhile
        self._process.send(pb.OrchestratorMessage(taken=pb.PieceTaken(lease=piece.lease)))

    def watch(self, watch: pb.Watch) -> None:
        """Lets the process show what it plays, if it plays something."""
        if self._lease is not None and self._process is not None:
            self._process.send(pb.OrchestratorMessage(watch=watch))

    def kill_if_stalled(self) -> None:
        """Kills the process if it has not made a step for too long."""
        silent = time.monotonic() - self._heard
        if self._lease is None or self._process is None or silent <= self.assignment.stall_seconds / 2:
            return
        before, self._was_stopped = self._was_stopped, self._process.stopped
        if before and not self._was_stopped:  # it goes on, and has not had the time to say so
            self.excuse()
        if time.monotonic() - self._heard <= self.assignment.stall_seconds:
            return
        if self._was_stopped:  # which no simulator does to itself
            self._stopped = (
                f"the slot's process was stopped by somebody, and killed after {silent:.0f} s without a step."
            )
        else:
            self._stalled = f"the simulator made no step for {silent:.0f} s and its slot was killed."
        log.warning("slot %d: %s", self._number, self._stopped or self._stalled)
        self._process.kill()

    @property
    def held(self) -> int | None:
        """The number of the lease that is being played."""
        return None if self._lease is None else self._lease.lease

    def ask_again(self) -> None:
        """Says once more that the slot is free, if it is: who was told has gone."""
        if self._is_free and self._lease is None and self.leases.empty():
            self._ready()

    async def drop(self) -> None:
        """Ends what is being played, without a word: somebody else has that episode now."""
        process = self._process
        if self._lease is not None and process is not None:  # else it is being forked; what comes of it changes nothing
            self._lease = self._process = None
            self._is_free = True
            self.activity = pb.SlotActivity(slot=self._number, total_steps=self.activity.total_steps)
            await process.end(grace=_DROP_GRACE, politely=False)

    def excuse(self) -> None:
        """Forgets how long the process has been silent: it was this process that did not run."""
        self._heard = time.monotonic()

    async def stop(self, *, grace: float) -> None:
        """Ends the process: politely if it is idle, at once if it is in an episode, or makes a simulator for one."""
        process, self._process = self._process, None
        if self._trying is not None:
            self._trying.cancel()
        if process is not None:
            await process.end(grace=grace, politely=self._lease is None and not self._is_preparing)

    async def _fork(self) -> None:
        self._is_preparing = False
        self._device = self._devices.of(self._number)
        number, mark = None, None
        if self._device is not None:
            await self._server.use(self._device.shared)
            number, mark = self._device.number, self._server.shared_number()
        self._mark = mark
        arguments = (self._number, self._assigned().SerializeToString(), number, mark)
        process, pipe = await self._server.fork(slot_process.main, arguments, name=f"slot-{self._number}")
        self._process = SlotProcess(process, pipe, self._receive, self._died)
        self._was_stopped = False
        self._tasks = set()

    def _assigned(self) -> pb.Assignment:
        """Returns what the process is to be told that it is for."""
        self._told = self.assignment
        if not self._devices.have_changed or not self._told.renderers:
            return self._told
        told = pb.Assignment()
        told.CopyFrom(self._told)
        told.ClearField("renderers")  # that the renderer is another one is known, and has cost enough
        return told

    async def _retire(self, process: SlotProcess, *, grace: float = 10.0) -> None:
        self._process = None
        await process.end(grace=grace)

    def _receive(self, message: pb.WorkerMessage) -> None:
        self._heard = time.monotonic()
        self._is_preparing = False
        kind = message.WhichOneof("message")
        if kind == "activity":
            self.activity = message.activity
            return
        if kind in ("piece", "frame"):
            self._send(message)
            return
        if kind == "result" and message.result.outcome == pb.OUTCOME_ERROR and self._could_not_draw():
            self._trying = asyncio.create_task(self._try_device(message))
            return
        self._end(message)

    def _end(self, message: pb.WorkerMessage) -> None:
        self._lease = None
        self._stalled = self._stopped = ""  # said of an episode that has come to its end after all
        self.activity = pb.SlotActivity(slot=self._number, total_steps=self.activity.total_steps)
        self._finish(message)

    def _could_not_draw(self) -> bool:
        raised = self._mark is not None and self._mark.value == RAISED
        return raised and self._devices.has_another(self._device)

    async def _try_device(self, message: pb.WorkerMessage) -> None:
        """Tries the device that an episode could not be drawn on: if it is broken, the error is not the episode's."""
        device = self._device
        assert device is not None
        tried: Drawn | NotDrawn | None = None
        try:
            tried = await asyncio.to_thread(try_device, Path(sys.executable), device)
        except Exception:  # the boundary: nobody waits for this task, and the lease must come to an end
            log.exception("slot %d: %s could not be tried", self._number, device)
        if self._lease is None or self._lease.lease != message.result.lease:
            return  # the process has died meanwhile, or somebody else has the episode
        if isinstance(tried, NotDrawn):
            self._devices.leave(device, f"it {tried}")
        if self._devices.is_left(device):  # by whomever
            message = pb.WorkerMessage(lost=pb.Lost(lease=message.result.lease, reason=message.result.error))
        self._end(message)

    def _finish(self, message: pb.WorkerMessage) -> None:
        if message.WhichOneof("message") == "result":
            message.result.warnings.extend(self._devices.warnings)
        self.unconfirmed = message
        self._send(message)
        self._ready()

    def _ready(self) -> None:
        self._is_free = True
        if not self.is_leaving:
            self._send(pb.WorkerMessage(ready=pb.Ready(slot=self._number)))

    def _drew(self, exit_code: int | None, *, stalled: bool) -> bool:
        """Returns whether the process has crashed, or hung, in the middle of drawing."""
        drawing = self._mark is not None and self._mark.value == DRAWING
        return drawing and (stalled or (exit_code is not None and exit_code < 0 and exit_code not in _KILLED))

    def _died(self, exit_code: int | None) -> None:
        lease, self._lease, self._process = self._lease, None, None
        stalled, stopped, self._stalled, self._stopped = self._stalled, self._stopped, "", ""
        log.warning("slot %d ended with exit code %s", self._number, exit_code)
        drew = self._drew(exit_code, stalled=bool(stalled))
        if lease is None:  # idle, or getting ready; the next lease forks a new one
            if drew:
                self._devices.died_on(self._device, _while_drawing(_verdict(exit_code)))
            return
        blame = stalled or (self._oom.blame() if exit_code == -signal.SIGKILL and not stopped else "")
        verdict = blame or stopped or _verdict(exit_code)
        if drew and self._devices.died_on(self._device, _while_drawing(verdict)):
            reason = f"{verdict} It was drawing on {self._device}."
            self._finish(pb.WorkerMessage(lost=pb.Lost(lease=lease.lease, reason=reason)))
        elif exit_code in _KILLED and not blame:
            self._finish(pb.WorkerMessage(lost=pb.Lost(lease=lease.lease, reason=verdict)))
        else:
            failed = EpisodeRecord.failed("limit" if blame else "simulator", verdict)
            self._finish(pb.WorkerMessage(result=failed.to_message(lease.lease)))


def _while_drawing(verdict: str) -> str:
    """Returns what became of a process that drew, in words for a longer sentence."""
    return f"while it drew, {verdict.partition(';')[0].removesuffix('.')}"


def _verdict(exit_code: int | None) -> str:
    if exit_code is None:
        return "the slot's process ended, and its fork server does not say how; its log says more."
    if exit_code < 0:
        return f"the slot's process was ended by {signal_name(-exit_code)}; its log says more."
    return f"the slot's process ended with exit code {exit_code}; its log says more."

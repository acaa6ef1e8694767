"""A tiny run that a launcher is tried with: its first worker is killed, and all of them are watched."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sparring.orchestrator.coordination.coordinator import Coordinator
from sparring.orchestrator.execution.execution import Execution, RunLocation, RunningWorkers
from sparring.orchestrator.execution.run_files import output_folder
from sparring.orchestrator.launchers.base import WorkerOrder
from sparring.orchestrator.machine.processes import Process, all_processes, can_be_seen, with_descendants
from sparring.orchestrator.results.results import Results
from sparring.orchestrator.results.row import EpisodeRow
from sparring.orchestrator.run.listeners import Listeners, RunListener
from sparring.orchestrator.run.make_plan import make_plan
from sparring.orchestrator.serving.policy_host import PolicyAccess
from sparring.orchestrator.settings import RunSettings
from sparring.protos.errors import SparringError

GONE_SECONDS: Final = 3.0
"""How long it may take until nothing is left of a worker that was ended."""


@dataclass
class Seen(RunListener):
    """What was seen of a run.

    Attributes:
        order: What the launcher was told to start.
        joined: Workers, in the order in which they came.
        processes: Of its workers, while it went on.
        left: Of these, when the launcher had ended them.
        results: Of the run; None if it did not finish.
        error: Why not.
        dismiss: Tells a worker to go, with a reason.
    """

    order: WorkerOrder | None = None
    joined: list[str] = field(default_factory=list)
    processes: set[Process] = field(default_factory=set)
    left: list[Process] = field(default_factory=list)
    results: Results | None = None
    error: SparringError | None = None
    dismiss: Callable[[str, str], None] = lambda worker, reason: None

    def on_worker(self, worker: str, slots: int) -> None:
        if not slots:
            return
        self.joined.append(worker)
        if len(self.joined) == 1 and not (self.order is not None and _kill(self.order, worker)):
            # It is elsewhere: told to go, it ends, too. Not now, when it is only joining.
            asyncio.get_running_loop().call_soon(self.dismiss, worker, "this is a check of who comes after you.")

    def on_result(self, row: EpisodeRow) -> None:
        if self.order is not None:
            self.processes |= processes_of(self.order)


async def play(run: RunSettings, seen: Seen) -> None:
    """Plays a run in a folder that is thrown away, and kills the first worker that joins it."""
    with tempfile.TemporaryDirectory(prefix="sparring-check-") as folder, output_folder(Path(folder, "run")) as journal:
        execution = _CheckedExecution(run, make_plan(run), Path(folder, "run"), journal, Listeners([seen]))
        execution.seen = seen
        try:
            seen.results = await execution.run(asyncio.get_running_loop().create_future())
        except SparringError as error:
            seen.error = error


class _CheckedExecution(Execution):
    """A run that tells what its launcher is told."""

    seen: Seen

    async def _start_workers(
        self, stack: AsyncExitStack, place: RunLocation, coordinator: Coordinator, access: PolicyAccess | None
    ) -> RunningWorkers:
        self.seen.dismiss = coordinator.workers.dismiss
        return await super()._start_workers(stack, place, coordinator, access)

    async def _launch(self, order: WorkerOrder) -> None:
        self.seen.order = order
        try:
            await self._settings.launcher.run(order)
        finally:  # while workers could still work: later they are told that the run has ended, and go by themselves
            self.seen.left = await asyncio.to_thread(left_of, order, self.seen.processes)


def processes_of(order: WorkerOrder) -> set[Process]:
    """Returns the workers of an order that run on this machine, and their slots."""
    return with_descendants(workers_of(order)) if can_be_seen() else set()


def workers_of(order: WorkerOrder) -> list[Process]:
    """Returns every process here that was told to dial the order's address, also by another name of this machine."""
    local, port = f"--orchestrator={order.orchestrator}", f":{order.public.port}"
    elsewhere = not order.public.is_unix

    def is_one(command: Iterable[str]) -> bool:
        dialled = [word for word in command if word.startswith("--orchestrator=")]
        return any(word == local or (elsewhere and word.endswith(port)) for word in dialled)

    return [process for process in all_processes() if is_one(process.command)]


def left_of(order: WorkerOrder, seen: Iterable[Process]) -> list[Process]:
    """Returns what is still there of workers that were ended, after a moment to go in."""
    deadline = time.monotonic() + GONE_SECONDS
    while left := [process for process in {*seen, *workers_of(order)} if process.alive]:
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
    return left


def _kill(order: WorkerOrder, name: str) -> bool:
    """Kills a worker, and says whether it was found on this machine."""
    # By the very address: the same port may be another machine's, whose run has a worker here of the same name.
    dialled = {f"--orchestrator={address}" for address in (order.orchestrator, order.public)}
    found = [p for p in workers_of(order) if f"--name={name}" in p.command and dialled & set(p.command)]
    killed = False
    for process in found:
        with suppress(OSError):  # it is somebody else's, or has just gone
            os.kill(process.number, signal.SIGKILL)
            killed = True
    return killed

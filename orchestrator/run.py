"""A run from plan to results: brings everything up, waits, and takes everything down again on every way out."""

from __future__ import annotations

import asyncio
import logging
import shutil
import signal
import time
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from env_worker.registry import get_benchmark
from env_worker.worker import installed_versions
from orchestrator.coordinator import Coordinator, RunStopped, Watcher
from orchestrator.environments import interpreter
from orchestrator.journal import Journal
from orchestrator.launchers.base import Launcher, LaunchFailed, NoLauncher, WorkerOrder, share_slots
from orchestrator.launchers.process import ProcessLauncher
from orchestrator.plan import Plan, benchmark_settings, identity
from orchestrator.policy_host import PolicyHost, PolicyHostFailed, describe, policy_identity
from orchestrator.results import Results, write_results, write_run
from orchestrator.settings import RunSettings
from orchestrator.sockets import socket_folder
from orchestrator.work_service import WorkService
from policy_server.client import Description
from protos.errors import SparringError

log = logging.getLogger(__name__)

T = TypeVar("T")


class Interrupted(SparringError):
    """The user asked the run to end; what was recorded is whole."""


def prepare(settings: RunSettings) -> None:
    """Tells, or fetches, what a benchmark lacks, before anything starts.

    Raises:
        SparringError: If it cannot be had.
    """
    if settings.launcher == "process":
        for part in settings.parts:
            benchmark = get_benchmark(part.benchmark)
            interpreter(benchmark)
            benchmark.fetch(benchmark.read_settings(benchmark_settings(settings, part)))


async def run(settings: RunSettings, plan: Plan, folder: Path, watcher: Watcher) -> Results:
    """Runs what is left of a plan and returns all its results.

    Raises:
        UsageError: If the folder belongs to another plan, or the policy cannot be made.
        Interrupted, RunStopped, and other SparringErrors: If the run could not be finished.
    """
    new = not folder.exists()
    journal = Journal(folder)
    session = Session(settings, plan, folder, journal, watcher)
    try:
        return await session.run(_on_signals())
    finally:
        journal.close()
        if new and not session.claimed:  # it never came to a run; leave no debris of a mistyped command
            shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class Employed:
    """The workers of a run: the service they dial, and the launcher that keeps them alive, which fails if it cannot."""

    service: WorkService
    launcher: asyncio.Future[None]


class Session:
    """One go at a run: from start, or resume, to its end or interruption."""

    def __init__(self, settings: RunSettings, plan: Plan, folder: Path, journal: Journal, watcher: Watcher) -> None:
        self._settings = settings
        self._plan = plan
        self._folder = folder
        self._journal = journal
        self._watcher = watcher
        self._began = time.monotonic()
        self._seconds_before = float(journal.meta("seconds") or 0.0)
        self._policy: Description | None = None
        self._versions = {"orchestrator": installed_versions(), **(journal.meta("versions") or {})}

    async def run(self, interrupted: asyncio.Future[None]) -> Results:
        """Runs what is left, unless `interrupted` fails first; saves what there is on every way out."""
        self._journal.check(identity(self._settings, self._plan))
        try:
            async with AsyncExitStack() as stack:
                await self._play(stack, interrupted)
        except BaseException:
            if self.claimed:
                try:
                    self._save("unfinished")
                except SparringError as error:  # the first failure is the one to report
                    log.error("%s", error)
            raise
        return self._save("finished")

    def _save(self, status: str) -> Results:
        self._journal.set_meta("seconds", self._seconds)
        self._journal.set_meta("versions", self._versions)
        self._write_run(status)
        results = Results(self._plan, self._journal.rows(), self._seconds, self._folder)
        write_results(results)
        return results

    @property
    def claimed(self) -> bool:
        """Whether the folder is known to be this plan's."""
        return self._policy is not None

    @property
    def _seconds(self) -> float:
        return self._seconds_before + time.monotonic() - self._began

    async def _play(self, stack: AsyncExitStack, interrupted: asyncio.Future[None]) -> None:
        settings = self._settings
        sockets = Path(stack.enter_context(socket_folder()))
        watched: list[asyncio.Future[None]] = [interrupted]
        addresses = await self._host(stack, sockets, watched)
        policy = await _first(asyncio.ensure_future(self._describe(addresses)), watched)
        self._journal.claim({**identity(settings, self._plan), "policy": policy_identity(policy)})
        self._policy = policy
        self._write_run("running")

        coordinator = Coordinator(self._plan, settings, self._journal, self._folder, self._watcher)
        if coordinator.ended.done():
            return
        stack.callback(lambda: self._versions.update(coordinator.versions))
        employed = await self._employ(stack, sockets, self._folder / "logs", coordinator, addresses)
        watched.append(employed.launcher)
        try:
            await _first(coordinator.ended, watched)
        except (LaunchFailed, PolicyHostFailed) as error:
            raise RunStopped(str(error)) from error

    async def _host(self, stack: AsyncExitStack, sockets: Path, watched: list[asyncio.Future[None]]) -> Sequence[str]:
        """Brings the policy up, if it is ours to host, and says where it is; adds what must not fail to `watched`."""
        settings = self._settings
        if settings.policy is None:
            return [settings.policy_server] if settings.policy_server else []
        host_name = (settings.listen or "127.0.0.1:0").rpartition(":")[0]
        host = PolicyHost(settings, host=host_name, sockets=sockets, logs=self._folder / "logs")
        watched.append(await stack.enter_async_context(_hosted(host, watched)))
        return host.addresses

    async def _describe(self, addresses: Sequence[str]) -> Description:
        return await describe(addresses, self._settings.policy_timeout)

    async def _employ(
        self, stack: AsyncExitStack, sockets: Path, logs: Path, coordinator: Coordinator, addresses: Sequence[str]
    ) -> Employed:
        """Has workers for the coordinator, for as long as the stack lasts."""
        settings = self._settings
        slots = settings.slot_count(coordinator.unfinished)
        service = WorkService(coordinator, settings, addresses, slots)
        local, public = await service.start(sockets)
        stack.push_async_callback(service.stop, "the run has ended.")
        log.info("more workers may join: sparring worker --orchestrator %s", public)

        waiting = {name: n for name in self._plan.tasks if (n := coordinator.pending(name))}
        order = WorkerOrder(share_slots(slots, waiting), local, logs)
        launcher = self._launcher(coordinator)
        return Employed(service, await stack.enter_async_context(_background(launcher.run(order))))

    def _launcher(self, coordinator: Coordinator) -> Launcher:
        if self._settings.launcher == "none":
            return NoLauncher()
        return ProcessLauncher(lambda worker: coordinator.results_of.get(worker, 0))

    def _write_run(self, status: str) -> None:
        write_run(
            self._folder,
            self._settings,
            self._plan,
            self._policy,
            versions=self._versions,
            status=status,
            seconds=self._seconds,
        )


def _on_signals() -> asyncio.Future[None]:
    """Fails with Interrupted on the first Ctrl-C or SIGTERM."""
    loop = asyncio.get_running_loop()
    interrupted: asyncio.Future[None] = loop.create_future()

    def stop(number: signal.Signals) -> None:
        if not interrupted.done():
            interrupted.set_exception(Interrupted(f"interrupted by {number.name}."))

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop, number)
    interrupted.add_done_callback(lambda future: future.exception())  # seen, even if nobody waits for it any more
    return interrupted


@asynccontextmanager
async def _background(coroutine: Coroutine[Any, Any, None]) -> AsyncIterator[asyncio.Future[None]]:
    task: asyncio.Future[None] = asyncio.ensure_future(coroutine)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def _hosted(host: PolicyHost, watched: Sequence[asyncio.Future[None]]) -> AsyncIterator[asyncio.Future[None]]:
    ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    async with _background(host.run(ready)) as task:
        await _first(ready, [task, *watched])
        yield task


async def _first(wanted: asyncio.Future[T], others: Sequence[asyncio.Future[None]]) -> T:
    """Waits for one thing, unless another fails first."""
    pending: set[asyncio.Future[Any]] = {wanted, *others}
    while True:
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        for future in done:
            future.result()
        if wanted in done:
            return wanted.result()

"""A run from plan to results: brings everything up, waits, and takes everything down again on every way out."""

from __future__ import annotations

import asyncio
import logging
import shutil
import signal
import time
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from env_worker.worker import installed_versions
from orchestrator.containers import connect
from orchestrator.coordinator import Coordinator, RunStopped, Watcher
from orchestrator.journal import Journal
from orchestrator.launchers.base import Launcher, LaunchFailed, NoLauncher, WorkerOrder, share_slots
from orchestrator.launchers.docker import DockerLauncher
from orchestrator.launchers.process import ProcessLauncher
from orchestrator.launchers.reach import find_reach
from orchestrator.plan import Plan, identity
from orchestrator.policy_host import PolicyAccess, PolicyHost, PolicyHostFailed, describe, policy_identity
from orchestrator.results import Results, write_results, write_run
from orchestrator.serving import HOSTED, ServingWatch
from orchestrator.settings import RunSettings
from orchestrator.work_service import WorkService, socket_folder
from policy_server.client import Description
from protos.errors import SparringError

log = logging.getLogger(__name__)

T = TypeVar("T")


class Interrupted(SparringError):
    """The user asked the run to end; what was recorded is whole."""


async def run(settings: RunSettings, plan: Plan, folder: Path, watcher: Watcher) -> Results:
    """Runs what is left of a plan and returns all its results.

    Raises:
        UsageError: If the folder belongs to another plan, or the policy cannot be made.
        Interrupted, RunStopped, and other SparringErrors: If the run could not be finished.
    """
    new = not folder.exists()
    journal = Journal(folder)
    session = _Session(settings, plan, folder, journal, watcher)
    try:
        return await session.run()
    finally:
        journal.close()
        if new and not session.claimed:  # it never came to a run; leave no debris of a mistyped command
            shutil.rmtree(folder, ignore_errors=True)


class _Session:
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
        self._serving: ServingWatch | None = None
        self._versions = {"orchestrator": installed_versions(), **(journal.meta("versions") or {})}

    async def run(self) -> Results:
        self._journal.check(identity(self._settings, self._plan))
        interrupted = _on_signals()
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
        if self._serving is not None:
            self._journal.set_meta("serving", self._serving.to_json())
            self._journal.set_meta("serving_summary", self._serving.summary())
        self._write_run(status)
        results = Results(
            self._plan, self._journal.rows(), self._seconds, self._folder, self._journal.meta("serving_summary")
        )
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
        sockets = stack.enter_context(socket_folder())
        listen = await _first(asyncio.ensure_future(self._listen()), [interrupted])
        watched: list[asyncio.Future[None]] = [interrupted]
        if settings.policy is None:
            access = PolicyAccess.elsewhere(settings)
        else:
            host_name = (listen or "127.0.0.1:0").rpartition(":")[0]
            host = PolicyHost(settings, host=host_name, sockets=sockets, logs=self._folder / "logs")
            watched.append(await stack.enter_async_context(_hosted(host, interrupted)))
            access = PolicyAccess(host.addresses)
        watch = ServingWatch(
            dict(zip(access.servers if settings.policy is None else [HOSTED], access.servers, strict=True)),
            earlier=self._journal.meta("serving"),
            token=access.token,
            ca=access.ca,
        )
        policy = await _first(asyncio.ensure_future(describe(access, settings.policy_timeout)), watched)
        self._journal.claim({**identity(settings, self._plan), "policy": policy_identity(policy)})
        self._policy = policy
        self._write_run("running")

        coordinator = Coordinator(self._plan, settings, self._journal, self._folder, self._watcher)
        if coordinator.ended.done():
            return
        await watch.begin()
        self._serving = watch
        stack.push_async_callback(watch.end)  # before the server that we host ends, after all workers have
        await stack.enter_async_context(_background(watch.run()))
        slots = settings.slot_count(coordinator.unfinished)
        service = WorkService(coordinator, settings, access, slots)
        local, public = await service.start(sockets, listen)
        stack.push_async_callback(service.stop, "the run has ended.")
        log.info("more workers may join: sparring worker --orchestrator %s", public)

        waiting = {name: n for name in self._plan.tasks if (n := coordinator.pending(name))}
        order = WorkerOrder(share_slots(slots, waiting), local, public, sockets, self._folder / "logs")
        launcher = self._launcher(coordinator)
        watched.append(await stack.enter_async_context(_background(launcher.run(order))))
        watched.append(await stack.enter_async_context(_background(_attended(coordinator, settings, public))))
        stack.callback(lambda: self._versions.update(coordinator.versions))
        try:
            await _first(coordinator.ended, watched)
        except (LaunchFailed, PolicyHostFailed) as error:
            raise RunStopped(str(error)) from error

    def _launcher(self, coordinator: Coordinator) -> Launcher:
        def results_of(worker: str) -> int:
            return coordinator.results_of.get(worker, 0)

        if self._settings.launcher == "none":
            return NoLauncher()
        if self._settings.launcher == "docker":
            return DockerLauncher(self._settings, self._folder, results_of, coordinator.explain)
        return ProcessLauncher(results_of)

    async def _listen(self) -> str | None:
        """Where workers that are not on this machine dial in, if that is settled."""
        if self._settings.launcher != "docker":
            return self._settings.listen
        return await asyncio.to_thread(lambda: find_reach(self._settings, connect()).listen) or self._settings.listen

    def _write_run(self, status: str) -> None:
        write_run(
            self._folder,
            self._settings,
            self._plan,
            self._policy,
            versions=self._versions,
            status=status,
            seconds=self._seconds,
            serving=self._journal.meta("serving_summary"),
            out_of_range=sum(row.out_of_range for row in self._journal.rows()),
        )


async def _attended(coordinator: Coordinator, settings: RunSettings, address: str) -> None:
    """Gives a run up when nobody has come to work on a benchmark of it for too long."""
    loop = asyncio.get_running_loop()
    since: dict[str, float] = {}
    while True:
        since = {name: since.get(name, loop.time()) for name in coordinator.unattended()}
        for name, began in since.items():
            if loop.time() - began >= settings.worker_timeout:
                raise RunStopped(
                    f"no worker of {name} has been here for {settings.worker_timeout:g} s. Start one with "
                    f"`sparring worker --benchmark {name} --orchestrator {address}` (in containers: the service "
                    f"worker-{name}), or raise --worker-timeout."
                )
        await asyncio.sleep(min(1.0, settings.worker_timeout / 4))


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
async def _hosted(host: PolicyHost, interrupted: asyncio.Future[None]) -> AsyncIterator[asyncio.Future[None]]:
    ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    async with _background(host.run(ready)) as task:
        await _first(ready, [task, interrupted])
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

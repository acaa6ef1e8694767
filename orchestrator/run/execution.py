"""A run from plan to results: brings everything up, waits, and takes everything down again on every way out."""

from __future__ import annotations

import asyncio
import logging
import signal
import tempfile
from collections.abc import AsyncIterator, Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from sparring.env_worker.worker.addresses import to_dial
from sparring.orchestrator.coordination.admission import Admission, check_admission
from sparring.orchestrator.coordination.coordinator import Coordinator
from sparring.orchestrator.coordination.work_service import WorkService
from sparring.orchestrator.launchers.base import DEFAULT_LISTEN, LaunchFailed, WorkerOrder, share_slots
from sparring.orchestrator.machine.sockets import socket_folder
from sparring.orchestrator.results.journal import Journal, JournalError
from sparring.orchestrator.results.results import Results
from sparring.orchestrator.run.errors import Interrupted, RunStopped
from sparring.orchestrator.run.invocation import Invocation
from sparring.orchestrator.run.listeners import Listeners, RunListener
from sparring.orchestrator.run.plan import EpisodeId, Plan
from sparring.orchestrator.run.program_check import ProgramCheck, changed_while_running
from sparring.orchestrator.run.run_files import RunFiles, check_output, output_folder
from sparring.orchestrator.serving.policy_host import (
    PolicyAccess,
    PolicyHost,
    PolicyHostFailed,
    describe,
)
from sparring.orchestrator.serving.stats import HOSTED, StatsWatch
from sparring.orchestrator.settings import RunSettings
from sparring.policy_server.client import Description
from sparring.protos import evaluation_pb2 as pb
from sparring.protos.advice import FLAGS, Dialect, Hint
from sparring.protos.errors import SparringError, UsageError
from sparring.protos.net.address import Address
from sparring.protos.net.rpc import ignore_poller_races

log = logging.getLogger(__name__)

T = TypeVar("T")


def prepare(settings: RunSettings) -> None:
    """Tells, or fetches, what a run lacks, before anything starts: a folder of its own, and what its workers need.

    Raises:
        SparringError: If it cannot be had.
    """
    if settings.output.folder is not None:
        check_output(settings.output.folder)
    if settings.output.record is not None:
        _check_record(settings.output.record)
    if settings.plan.in_process:
        from sparring.orchestrator.run import in_process  # imports what is a worker's otherwise

        in_process.check(settings)
    else:
        check_admission(settings)
        settings.launcher.check(settings)


def _check_record(folder: Path) -> None:
    """Checks that recordings can be written, now and not after the first episode."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UsageError(
            f"recordings cannot be written to {str(folder)!r}: {error.strerror}. Name another folder with "
            f"{Hint('record')}."
        ) from error


async def run(
    settings: RunSettings,
    plan: Plan,
    folder: Path,
    listeners: Iterable[RunListener] = (),
    *,
    dialect: Dialect = FLAGS,
    invocation: Invocation | None = None,
) -> Results:
    """Runs what is left of a plan and returns all its results.

    Args:
        settings: Of the run.
        plan: All of its episodes.
        folder: For what comes of it.
        listeners: Who watches.
        dialect: The words of those who read about it.
        invocation: How it was asked for.

    Raises:
        UsageError: If the folder belongs to another plan, or to other programs, or the policy cannot be made.
        Interrupted, RunStopped, and other SparringErrors: If the run could not be finished.
    """
    asyncio.get_running_loop().set_exception_handler(ignore_poller_races)
    with output_folder(folder) as journal:
        execution = Execution(settings, plan, folder, journal, Listeners(listeners), dialect, invocation)
        return await execution.run(until_signal())


@dataclass(frozen=True)
class RunLocation:
    """Where the workers of a run find it.

    Attributes:
        home: The folder they are known by; their logs are in there.
        sockets: Folder of the unix sockets.
        listen: The TCP address to listen at; None: none, the socket is enough.
    """

    home: Path
    sockets: Path
    listen: Address | None


@dataclass(frozen=True)
class RunningWorkers:
    """The workers of a run.

    Attributes:
        service: What they dial.
        to_join: The flags of `sparring worker` for those who want to join; empty: nothing listens for them.
        launcher: Keeps them alive, and fails if it cannot.
    """

    service: WorkService
    to_join: str
    launcher: asyncio.Future[None]


class Execution:
    """One go at a run: from start, or resume, to its end or interruption.

    Attributes:
        starts_early: Whether workers are started before the policy is there.
    """

    starts_early = True

    def __init__(
        self,
        settings: RunSettings,
        plan: Plan,
        folder: Path,
        journal: Journal,
        listener: Listeners,
        dialect: Dialect = FLAGS,
        invocation: Invocation | None = None,
    ) -> None:
        self._settings = settings
        self._plan = plan
        self._folder = folder
        self._journal = journal
        self._listener = listener
        self._dialect = dialect
        self._rules = settings.plan.retry_rules
        self._hosting: PolicyHost | None = None
        self._files = RunFiles(settings, plan, folder, journal, listener, dialect, invocation)

    async def run(self, interrupted: asyncio.Future[None]) -> Results:
        """Runs what is left, unless `interrupted` fails first; saves what there is on every way out."""
        with self._files.saved():
            async with AsyncExitStack() as stack:
                await self._play(stack, interrupted)
        return self._files.results

    @property
    def claimed(self) -> bool:
        """Whether the folder is known to be this plan's."""
        return self._files.claimed

    async def _play(self, stack: AsyncExitStack, interrupted: asyncio.Future[None]) -> None:
        settings = self._settings
        sockets = stack.enter_context(socket_folder())
        listen = await _first(asyncio.ensure_future(self._listen()), [interrupted])
        watched: list[asyncio.Future[None]] = [interrupted]
        location = RunLocation(self._folder, sockets, listen)
        coordinator = self._coordinator(self._files.programs)
        early, workers = await stack.enter_async_context(AsyncExitStack()), None
        if self.starts_early and not coordinator.ended.done():  # workers get ready while the policy is loaded
            workers = await self._start_workers(early, location, coordinator, None)
        access = await self._host(stack, sockets, listen, watched)
        policy = await _first(asyncio.ensure_future(self._describe(access)), watched)
        self._files.claim(policy)
        access = replace(access, program=policy.program_sha256)
        if coordinator.ended.done():
            return
        if self._hosting is not None:
            self._hosting.watch, coordinator.policy.restart = coordinator, self._hosting.restart
        watched.append(await self._watch_stats(stack, access))
        stack.callback(self._files.heard_of, coordinator.workers.versions, coordinator.workers.machines)
        await self._watch_program(stack, coordinator, access, policy)
        if workers is None:
            workers = await self._start_workers(stack, location, coordinator, access)
        else:
            await stack.enter_async_context(early.pop_all())  # from here on they end before the policy does
            workers.service.open(access)
        stack.callback(coordinator.abandon)  # who is interrupted tries no episode again
        watched.append(workers.launcher)  # not before: what is wrong with the policy is said first
        watched.append(await stack.enter_async_context(_background(_attended(coordinator, settings, workers.to_join))))
        try:
            await _first(coordinator.ended, watched)
        except (LaunchFailed, PolicyHostFailed, JournalError) as error:
            raise RunStopped(error.sentence) from error

    def _coordinator(self, programs: ProgramCheck) -> Coordinator:
        """Makes the heart of this run."""
        return Coordinator(
            self._plan,
            self._settings,
            self._journal,
            self._folder,
            self._listener,
            self._rules,
            self._dialect,
            programs,
            self._order,
        )

    def _order(self, episode: EpisodeId, lease: pb.Lease) -> None:
        """Adds to a lease what this execution wants of it, beside what its settings say."""

    async def _host(
        self, stack: AsyncExitStack, sockets: Path, listen: Address | None, watched: list[asyncio.Future[None]]
    ) -> PolicyAccess:
        """Brings the policy up, if it is ours to host, and says where it is; adds what must not fail to `watched`."""
        settings = self._settings
        if settings.policy.name is None:
            return PolicyAccess.elsewhere(settings)
        host_name = (DEFAULT_LISTEN if listen is None or listen.is_unix else listen).host
        host = PolicyHost(settings, host=host_name, sockets=sockets, folder=self._folder, rules=self._rules)
        watched.append(await stack.enter_async_context(_hosted(host, watched)))
        self._hosting = host
        return PolicyAccess(host.addresses, token=host.token)

    async def _watch_stats(self, stack: AsyncExitStack, access: PolicyAccess) -> asyncio.Future[None]:
        """Has an eye on what the policy servers do, from here to the end of the stack; fails if it cannot be kept."""
        hosted = self._settings.policy.name is not None
        names = [HOSTED] if hosted else [str(server) for server in access.servers]
        watch = self._files.stats_watch = StatsWatch(
            dict(zip(names, access.servers, strict=True)),
            earlier=self._journal.meta("server_counts"),
            token=access.token,
            ca=access.ca,
            identity=access.identity,
            on_warning=self._files.warn,
        )
        await watch.begin()
        stack.push_async_callback(watch.end)  # before the server that we host ends, after all workers have
        return await stack.enter_async_context(_background(watch.run(self._files.keep)))

    async def _describe(self, access: PolicyAccess) -> Description:
        return await describe(access, self._settings.policy.policy_timeout)

    async def _watch_program(
        self, stack: AsyncExitStack, coordinator: Coordinator, access: PolicyAccess, began_with: Description
    ) -> None:
        """Lets the policy server be asked what it hosts, when a worker says that it is something else now, or gone."""
        doubts: asyncio.Queue[tuple[str, str]] = asyncio.Queue()

        async def ask() -> None:
            while True:
                worker, reason = await doubts.get()
                try:
                    now = await self._describe(access)
                except SparringError as error:  # it is gone again, or its replicas are not alike
                    coordinator.stop(RunStopped(error.sentence))
                    return
                if now.program_sha256 != began_with.program_sha256:
                    coordinator.stop(RunStopped(changed_while_running(began_with, now)))
                    return
                coordinator.workers.send_away(worker, f"it says what is not so: {reason}")

        coordinator.policy_reports.on_doubt = lambda worker, reason: doubts.put_nowait((worker, reason))
        await stack.enter_async_context(_background(ask()))

    async def _start_workers(
        self, stack: AsyncExitStack, location: RunLocation, coordinator: Coordinator, access: PolicyAccess | None
    ) -> RunningWorkers:
        """Has workers for the coordinator, for as long as the stack lasts; without a policy, they only get ready."""
        settings = self._settings
        slots = settings.slot_count(coordinator.unfinished)
        if why := settings.slot_reason(coordinator.unfinished):
            log.info("slots: %d: %s", slots, why)
        admission = Admission.of(settings, location.listen)
        service = WorkService(coordinator, settings, access, slots, admission)
        local, public = await service.start(location.sockets, location.listen)
        stack.push_async_callback(service.stop, "the run has ended.")
        to_join = ""
        if public != local:
            to_join = f"--orchestrator {to_dial(public)}{stack.enter_context(admission.written_to(location.home))}"
            if settings.launcher.starts_workers:
                log.info("more workers may join: sparring worker %s", to_join)
            else:
                for part in settings.plan.parts:
                    log.info(
                        "this run starts no workers. Start them here or elsewhere: sparring worker %s %s",
                        settings.plan.worker_flags(part.label),
                        to_join,
                    )

        waiting = {name: n for name in self._plan.tasks if (n := coordinator.pending(name))}
        order = WorkerOrder(
            run=settings,
            folder=location.home,
            slots=share_slots(slots, waiting),
            orchestrator=local,
            public=public,
            sockets=location.sockets,
            logs=location.home / "logs",
            rules=self._rules,
            # Not the coordinator's own: in the next run of the same workers it is another.
            results_of=lambda worker: service.coordinator.workers.results_of[worker],
            explain=lambda worker, reason: service.coordinator.explain(worker, reason),
            given_up=service.attendance.given_up,
            join_token=admission.launched,
        )
        keeping = _background(self._launch(order))
        return RunningWorkers(service, to_join, await stack.enter_async_context(keeping))

    def _launch(self, order: WorkerOrder) -> Coroutine[Any, Any, None]:
        """Keeps workers alive until it is cancelled; holds nothing of this object, which workers may outlive."""
        return self._settings.launcher.run(order)

    async def _listen(self) -> Address | None:
        """Returns where workers that are not on this machine dial in, if that is settled."""
        return await asyncio.to_thread(self._settings.launcher.listen, self._settings)


async def _attended(coordinator: Coordinator, settings: RunSettings, to_join: str) -> None:
    """Gives a run up when nobody has come to work on a benchmark of it for too long."""
    loop = asyncio.get_running_loop()
    since: dict[str, float] = {}
    while True:
        since = {name: since.get(name, loop.time()) for name in coordinator.unattended()}
        for name, began in since.items():
            if loop.time() - began >= settings.plan.worker_timeout:
                part = settings.plan.part(name)
                advice = (
                    f"Start one with `sparring worker {settings.plan.worker_flags(name)} {to_join}`"
                    if to_join
                    else f"Let others in with {Hint('listen')}"
                )
                last = coordinator.workers.turned_away.get(name, "")
                why = f" The last one was turned away: {last}" if last else ""
                raise RunStopped(
                    f"no worker of {name} has been here for {settings.plan.worker_timeout:g} s.{why} {advice} "
                    f"(in containers: the service worker-{part.benchmark}), or raise {Hint('worker_timeout')}."
                )
        await asyncio.sleep(min(1.0, settings.plan.worker_timeout / 4))


def until_signal() -> asyncio.Future[None]:
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

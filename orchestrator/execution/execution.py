"""A run from plan to results: brings everything up, waits, and takes everything down again on every way out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sparring.env_worker.worker.addresses import to_dial
from sparring.orchestrator.coordination.admission import Admission
from sparring.orchestrator.coordination.coordinator import Coordinator
from sparring.orchestrator.coordination.program_check import ProgramCheck, changed_while_running
from sparring.orchestrator.coordination.work_service import WorkService
from sparring.orchestrator.execution.attended import attended
from sparring.orchestrator.execution.invocation import Invocation
from sparring.orchestrator.execution.more_slots import grow_when_waiting
from sparring.orchestrator.execution.run_files import RunFiles, output_folder
from sparring.orchestrator.execution.tasks import background, first, until_signal
from sparring.orchestrator.launchers.base import DEFAULT_LISTEN, LaunchFailed, WorkerOrder, share_slots
from sparring.orchestrator.launchers.registry import hosting_of
from sparring.orchestrator.machine.self_signed import self_signed
from sparring.orchestrator.machine.sockets import socket_folder
from sparring.orchestrator.plan import EpisodeId, Plan
from sparring.orchestrator.results.journal import Journal, JournalError
from sparring.orchestrator.results.results import Results
from sparring.orchestrator.run.early_stopping import early_stopping
from sparring.orchestrator.run.errors import RunStopped
from sparring.orchestrator.run.listeners import Listeners, RunListener
from sparring.orchestrator.serving.foreign_layouts import foreign_layouts
from sparring.orchestrator.serving.hosting import Hosting
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
from sparring.protos.advice import FLAGS, Dialect
from sparring.protos.errors import SparringError
from sparring.protos.net.access import Identity
from sparring.protos.net.address import Address
from sparring.protos.net.rpc import ignore_poller_races

log = logging.getLogger(__name__)


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
    """Says where the workers of a run find it.

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
        slots: That they began with.
    """

    service: WorkService
    to_join: str
    launcher: asyncio.Future[None]
    slots: int


class Execution:
    """One go at a run: from start, or resume, to its end or interruption.

    Attributes:
        starts_early: Whether workers are started before the policy is there.
        drains: Whether a run that stops early lets episodes come to their end that are of no more use to it: workers
            that stay must not be in the middle of something.
    """

    starts_early = True
    drains = False

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
        self._hosting: Hosting | None = None
        self._access = PolicyAccess([])
        self._stopping = early_stopping(settings, plan, journal.rows() if settings.stop.is_asked else ())
        self._files = RunFiles(settings, plan, folder, journal, listener, dialect, invocation, self._stopping)

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
        listen = await first(asyncio.ensure_future(self._listen()), [interrupted])
        watched: list[asyncio.Future[None]] = [interrupted]
        location = RunLocation(self._folder, sockets, listen)
        coordinator = self._coordinator(self._files.programs)
        early, workers = await stack.enter_async_context(AsyncExitStack()), None
        on_cluster = hosting_of(settings)  # where it may be hours until the policy is there
        if self.starts_early and on_cluster is None and not coordinator.ended.done():
            # Workers get ready while the policy is loaded.
            workers = await self._start_workers(early, location, coordinator, None)
        access = await self._host(stack, sockets, listen, watched)
        policy = await first(asyncio.ensure_future(self._describe(access)), watched)
        self._files.claim(policy)
        for sentence in foreign_layouts(settings, waits=settings.policy.policy_timeout):
            self._files.warn(sentence)
        access = self._access = replace(access, program=policy.program_sha256)
        if coordinator.ended.done():
            return
        if self._hosting is not None:
            self._hosting.watch = coordinator
            coordinator.policy.restart, coordinator.policy.session_broke = (
                self._hosting.restart,
                self._hosting.session_broke,
            )
        watched.append(await self._watch_stats(stack, access))
        stack.callback(self._files.heard_of, coordinator.workers.versions, coordinator.workers.machines)
        await self._watch_program(stack, coordinator, policy)
        if workers is None:
            workers = await self._start_workers(stack, location, coordinator, self._access)
        else:
            await stack.enter_async_context(early.pop_all())  # from here on they end before the policy does
            workers.service.open(access)
        self._follow(workers.service)
        await self._find_slots(stack, workers, policy)
        stack.callback(coordinator.abandon)  # who is interrupted tries no episode again
        watched.append(workers.launcher)  # not before: what is wrong with the policy is said first
        if not settings.launcher.may_queue:
            attending = attended(coordinator, settings, workers.to_join)
            watched.append(await stack.enter_async_context(background(attending)))
        try:
            await first(coordinator.ended, watched)
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
            self._stopping,
            drain=self.drains,
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
        if (on_cluster := hosting_of(settings)) is not None:
            self._hosting = await asyncio.to_thread(on_cluster.host, self._folder, self._rules)
            watched.append(await stack.enter_async_context(_hosted(self._hosting, watched)))
            return self._hosting.access
        host_name = (DEFAULT_LISTEN if listen is None or listen.is_unix else listen).host
        identity = await self._policy_identity(listen)
        host = PolicyHost(
            settings, host=host_name, sockets=sockets, folder=self._folder, rules=self._rules, identity=identity
        )
        watched.append(await stack.enter_async_context(_hosted(host, watched)))
        self._hosting = host
        return await self._as_workers_reach(host.access, listen, identity)

    def _follow(self, service: WorkService) -> None:
        """Tells everybody where the policy is, whenever it is somewhere else; from now on, and what came before."""
        hosting = self._hosting
        if hosting is None or hosting_of(self._settings) is None:
            return

        def moved(access: PolicyAccess) -> None:
            self._access = access = replace(access, program=self._access.program)
            service.move(access)
            if self._files.stats_watch is not None:
                self._files.stats_watch.move(*self._watched_servers(access))

        hosting.on_moved = moved
        if hosting.access.addresses != self._access.addresses:
            moved(hosting.access)

    def _watched_servers(self, access: PolicyAccess) -> tuple[dict[str, Address], bytes]:
        """Returns the policy servers by the names that they have in stats, and what to trust there."""
        hosted = self._settings.policy.name is not None and not access.replicas
        names = [HOSTED] if hosted else [str(server) for server in access.servers]
        return dict(zip(names, access.servers, strict=True)), access.ca_at(access.servers[0])

    async def _watch_stats(self, stack: AsyncExitStack, access: PolicyAccess) -> asyncio.Future[None]:
        """Has an eye on what the policy servers do, from here to the end of the stack; fails if it cannot be kept."""
        servers, ca = self._watched_servers(access)
        watch = self._files.stats_watch = StatsWatch(
            servers,
            earlier=self._journal.meta("server_counts"),
            token=access.token,
            ca=ca,
            identity=access.identity,
            on_warning=self._files.warn,
        )
        await watch.begin()
        stack.push_async_callback(watch.end)  # before the server that we host ends, after all workers have
        return await stack.enter_async_context(background(watch.run(self._files.keep)))

    async def _describe(self, access: PolicyAccess) -> Description:
        return await describe(access, self._settings.policy.policy_timeout)

    async def _watch_program(self, stack: AsyncExitStack, coordinator: Coordinator, began_with: Description) -> None:
        """Lets the policy server be asked what it hosts, when a worker says that it is something else now, or gone."""
        reports: asyncio.Queue[tuple[str, str]] = asyncio.Queue()

        async def ask() -> None:
            while True:
                worker, reason = await reports.get()
                try:
                    now = await self._describe(self._access)
                except SparringError as error:  # it is gone again, or its replicas are not alike
                    coordinator.stop(RunStopped(error.sentence))
                    return
                if now.program_sha256 != began_with.program_sha256:
                    coordinator.stop(RunStopped(changed_while_running(began_with, now)))
                    return
                coordinator.workers.send_away(worker, f"it says what is not so: {reason}")

        coordinator.policy_reports.on_report = lambda worker, reason: reports.put_nowait((worker, reason))
        await stack.enter_async_context(background(ask()))

    async def _find_slots(self, stack: AsyncExitStack, workers: RunningWorkers, policy: Description) -> None:
        host, most = self._hosting, policy.max_sessions
        if 0 < most < workers.slots:
            log.info("slots: %d, of which %d play at once: the policy takes no more", workers.slots, most)
        if isinstance(host, PolicyHost) and self._settings.may_grow:
            on_gpu = policy.program is not None and "device" in policy.program.machine
            growing = grow_when_waiting(
                self._settings, workers.service, host, workers.slots, on_gpu=on_gpu, sessions=most
            )
            await stack.enter_async_context(background(growing))

    async def _start_workers(
        self, stack: AsyncExitStack, location: RunLocation, coordinator: Coordinator, access: PolicyAccess | None
    ) -> RunningWorkers:
        """Has workers for the coordinator, for as long as the stack lasts; without a policy, they only get ready."""
        settings = self._settings
        slots = settings.slot_count(coordinator.unfinished)
        if why := settings.slot_reason(coordinator.unfinished):
            log.info("slots: %d: %s", slots, why)
        host = await self._advertised(location.listen)
        admission = Admission.of(settings, location.listen, made_for=host)
        service = WorkService(coordinator, settings, access, slots, admission)
        local, public = await service.start(location.sockets, location.listen)
        public = public.with_host(host) if host else public
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
            ca=admission.ca if public != local else b"",
            left=lambda benchmark: service.coordinator.left(benchmark),
        )
        keeping = background(self._launch(order))
        return RunningWorkers(service, to_join, await stack.enter_async_context(keeping), slots)

    def _launch(self, order: WorkerOrder) -> Coroutine[Any, Any, None]:
        """Keeps workers alive until it is cancelled; holds nothing of this object, which workers may outlive."""
        return self._settings.launcher.run(order)

    async def _listen(self) -> Address | None:
        """Returns where workers that are not on this machine dial in, if that is settled."""
        return await asyncio.to_thread(self._settings.launcher.listen, self._settings)

    async def _advertised(self, listen: Address | None) -> str:
        """Returns by which name the launcher's workers dial this machine, if that is another than where it listens."""
        if listen is None or listen.is_unix:
            return ""
        return await asyncio.to_thread(self._settings.launcher.advertise, self._settings, listen)

    async def _policy_identity(self, listen: Address | None) -> Identity | None:
        """Returns what encrypts the way to a policy of ours, where the launcher's workers come from elsewhere."""
        host = await self._advertised(listen)
        return await asyncio.to_thread(self_signed, host) if host else None

    async def _as_workers_reach(
        self, access: PolicyAccess, listen: Address | None, identity: Identity | None
    ) -> PolicyAccess:
        """Returns the way to a policy of ours by the name of this machine that its certificate is for."""
        if identity is None:
            return access
        host = await self._advertised(listen)
        named = [address if address.is_unix else address.with_host(host) for address in access.addresses]
        return replace(access, addresses=named, ca=identity.cert)


@asynccontextmanager
async def _hosted(host: Hosting, watched: Sequence[asyncio.Future[None]]) -> AsyncIterator[asyncio.Future[None]]:
    ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    async with background(host.run(ready)) as task:
        await first(ready, [task, *watched])
        yield task

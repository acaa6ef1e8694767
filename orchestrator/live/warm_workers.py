"""Workers that stay: one evaluation after the other, each of a policy that lives in this process."""

from __future__ import annotations

import asyncio
import itertools
import shutil
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sparring.orchestrator.coordination.coordinator import Coordinator
from sparring.orchestrator.execution.execution import Execution, RunLocation, RunningWorkers
from sparring.orchestrator.live.keywords import KEYWORDS
from sparring.orchestrator.machine.child import open_socket
from sparring.orchestrator.machine.sockets import socket_folder
from sparring.orchestrator.plan import Plan
from sparring.orchestrator.results.journal import Journal
from sparring.orchestrator.results.results import Results
from sparring.orchestrator.run.listeners import Listeners
from sparring.orchestrator.serving.policy_host import PolicyAccess, tls_files
from sparring.orchestrator.settings import RunSettings
from sparring.policy_server.client import Description
from sparring.protos.net.access import new_token
from sparring.protos.net.address import Address
from sparring.protos.tracebacks import Tracebacks

if TYPE_CHECKING:
    from sparring.policy_server.policies.base import Policy

_REST_SECONDS: Final = 10.0


class WarmWorkers:
    """The workers of one or more evaluations, one after the other, and the folder of their sockets and logs."""

    def __init__(self, settings: RunSettings, plan: Plan) -> None:
        self._made_of = _made_of(settings)
        self._slots = settings.slot_count(len(plan.ids()))
        self._stack = AsyncExitStack()
        self._numbers = itertools.count(1)
        self._given_up = False
        self._running: RunningWorkers | None = None
        self.sockets = self._stack.enter_context(socket_folder())
        self.folder = self.sockets.parent

    def fits(self, settings: RunSettings, plan: Plan) -> bool:
        """Returns whether these are the workers that settings ask for."""
        wanted = settings.slot_count(len(plan.ids()))
        enough = self._slots >= wanted if settings.fixed_slots is None else self._slots == wanted
        return enough and self._made_of == _made_of(settings)

    @property
    def broken(self) -> bool:
        """Whether it is of no more use: a call ended while episodes were running, or nobody keeps workers alive."""
        return self._given_up or (self._running is not None and self._running.launcher.done())

    async def evaluate(self, policy: Policy, settings: RunSettings, plan: Plan, listener: Listeners) -> Results:
        """Plays a plan."""
        number = next(self._numbers)
        folder = settings.output.folder or self.folder / f"run-{number}"
        new = not folder.exists()
        journal = Journal(folder)
        execution = _LiveExecution(settings, plan, folder, journal, listener, policy, self, number)
        try:
            results = await execution.run(asyncio.get_running_loop().create_future())
        except BaseException:
            self._given_up = True  # slots may be in the middle of something
            raise
        finally:
            journal.close()
            if settings.output.folder is None or (new and not execution.claimed):
                shutil.rmtree(folder, ignore_errors=True)
            elif not execution.claimed:  # nothing was played: the folder is as free for the next call as it was
                journal.path.unlink(missing_ok=True)
            elif (self.folder / "logs").is_dir():
                shutil.copytree(self.folder / "logs", folder / "logs", dirs_exist_ok=True)
        return results

    async def workers_for(
        self, execution: _LiveExecution, listen: Address | None, coordinator: Coordinator, access: PolicyAccess
    ) -> RunningWorkers:
        """Returns the workers, new or as the evaluation before left them."""
        if self._running is None:
            location = RunLocation(self.folder, self.sockets, listen)
            self._running = await execution.start_new_workers(self._stack, location, coordinator, access)
        else:
            self._running.service.hand_over(coordinator, execution.settings, access)
        return self._running

    async def close(self) -> None:
        """Ends the workers."""
        await self._stack.aclose()


class _LiveExecution(Execution):
    """A run whose policy is an object in this process and whose workers are there before it and after it."""

    starts_early = False
    drains = True

    def __init__(
        self,
        settings: RunSettings,
        plan: Plan,
        folder: Path,
        journal: Journal,
        listener: Listeners,
        policy: Policy,
        workers: WarmWorkers,
        number: int,
    ) -> None:
        super().__init__(settings, plan, folder, journal, listener, KEYWORDS)
        self.settings = settings
        self._live = policy
        self._workers = workers
        self._number = number
        self._description: Description | None = None

    async def _host(
        self, stack: AsyncExitStack, sockets: Path, listen: Address | None, watched: list[asyncio.Future[None]]
    ) -> PolicyAccess:
        from sparring.policy_server.server import PolicyServer

        # The hash of a file that a policy was loaded from says nothing about weights that are being trained.
        options = self._settings.policy.server_options(insecure=self._settings.worker.insecure)
        token = new_token()
        tracebacks = Tracebacks(self._settings.output.folder)
        identity = await self._policy_identity(listen)
        with tls_files(identity) as (tls, _):
            options = replace(options, **tls)
            server = PolicyServer(self._live, options, checkpoint_sha256="", token=token, tracebacks=tracebacks)
        # A socket of this call's own: what is left of a connection to the policy before cannot reach this one. Beside
        # the workers' own, which containers have been shown.
        local = Address.unix(self._workers.sockets / f"policy-{self._number}.sock")
        addresses = await server.listen([local] if listen is None or listen.is_unix else [local, listen.with_port(0)])
        # The policy is the caller's again when this is over: nobody may still be in the middle of it.
        stack.push_async_callback(server.drain, grace=0.0, rest=_REST_SECONDS)
        await server.load()
        self._description = Description.from_message(server.description)
        open_socket(local)
        return await self._as_workers_reach(PolicyAccess(addresses, token=token), listen, identity)

    async def _describe(self, access: PolicyAccess) -> Description:
        assert self._description is not None
        return self._description

    async def _start_workers(
        self, stack: AsyncExitStack, location: RunLocation, coordinator: Coordinator, access: PolicyAccess | None
    ) -> RunningWorkers:
        assert access is not None
        stack.callback(coordinator.abandon)  # whatever workers say after this call must not reach its journal
        return await self._workers.workers_for(self, location.listen, coordinator, access)

    async def start_new_workers(
        self, stack: AsyncExitStack, location: RunLocation, coordinator: Coordinator, access: PolicyAccess
    ) -> RunningWorkers:
        """Starts workers that stay for as long as the stack."""
        return await super()._start_workers(stack, location, coordinator, access)


def _made_of(settings: RunSettings) -> tuple[object, ...]:
    """Returns what makes workers what they are: their group of settings, and the benchmarks that they hold."""
    return settings.worker, [(part.label, part.benchmark, part.benchmark_arg) for part in settings.plan.parts]

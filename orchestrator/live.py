"""Evaluation while training: a policy that lives in this process, and workers that stay between calls.

The one file of this room that imports the policy server itself: the policy is an object here, so here it is served.
"""

from __future__ import annotations

import asyncio
import atexit
import itertools
import logging
import os
import shutil
import sys
import threading
from collections.abc import Coroutine, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from orchestrator.coordinator import Coordinator
from orchestrator.display import Display, Tally
from orchestrator.journal import FILE_NAME, Journal
from orchestrator.plan import Plan, make_plan
from orchestrator.results import Results
from orchestrator.run import Employed, Interrupted, Session, prepare
from orchestrator.settings import RunSettings, read_settings
from orchestrator.sockets import socket_folder
from policy_server.client import Description
from protos.errors import UsageError, unknown

if TYPE_CHECKING:
    from policy_server.policies.base import Policy

log = logging.getLogger(__name__)

T = TypeVar("T")

_KEPT: Final = 4
"""So many sets of workers are kept; the one that was not used for longest makes room for another."""
_CLOSING_SECONDS: Final = 30.0

# What may differ from call to call with the same workers. Everything else makes workers what they are.
_PER_CALL: Final = frozenset(
    {
        "task",
        "episodes",
        "seed",
        "max_steps",
        "policy",
        "policy_timeout",
        "max_batch",
        "slots",  # compared as the number that it comes to
        "max_parallel_tasks",
        "retries",
        "stall_timeout",
        "observe",
        "video",
        "video_fps",
        "record",
        "output",
    }
)
_NOT_HERE: Final = {
    "task": "it is called `tasks` here",
    "policy_arg": "the policy is made already",
    "policy_server": "the policy is served from this process",
}


class Evaluator:
    """Evaluates policies that live in this process; workers and their simulators stay between calls, until closed.

    Use it as a context, or call `close`. Everything it starts also ends with this process, however that ends.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._background: _Background | None = None
        self._fleets: list[_Fleet] = []

    def evaluate(
        self,
        policy: Policy,
        *,
        benchmark: str | None = None,
        tasks: str | Sequence[str] | None = None,
        episodes: int = 10,
        slots: int | str = "auto",
        output: str | Path | None = None,
        **settings: Any,
    ) -> Results:
        """Evaluates a policy as it is now; calls with the same arguments play the same episodes.

        Blocks until all episodes have ended, also where an event loop is running (a notebook). Torch modules of the
        policy are in evaluation mode meanwhile, and back in the mode they were in afterwards.

        Args:
            policy: Has the members of `policy_server.policies.base.Policy`; its class need not be importable.
            benchmark: As for `sparring run --benchmark`.
            tasks: Groups and tasks, comma-separated or a list.
            episodes: Per task.
            slots: Episodes at once.
            output: A new folder for the files that `sparring run` writes; None writes none.
            settings: Any other setting of `sparring run`: `seed=0`, `benchmark_arg={"resolution": 64}`, …

        Returns:
            What `sparring run` comes to: the episodes, and success rates with intervals.

        Raises:
            UsageError: If the policy does not fit the benchmark, or a setting is wrong.
            SparringError: If the evaluation could not be finished.
        """
        from policy_server.policies import checked

        if self._pid != os.getpid():
            raise UsageError("an Evaluator cannot be used in a forked process; make a new one there.")
        name = f"live:{type(policy).__module__}.{type(policy).__qualname__}"
        checked(name, policy)
        values = {"benchmark": benchmark, "task": tasks, "episodes": episodes, "slots": slots, "output": output}
        resolved = _settings(name, values, settings)
        plan = make_plan(resolved)
        prepare(resolved)
        with self._lock, _evaluation_mode(policy):
            background = self._background = self._background or _Background()
            return background.run(self._evaluate(policy, resolved, plan))

    def close(self) -> None:
        """Ends the workers, and an evaluation that another thread is waiting for. Evaluating again starts others."""
        background = self._background
        if (
            background is None or self._pid != os.getpid()
        ):  # in a fork there is only a copy; the workers are the parent's
            return
        background.interrupt()
        with self._lock:
            if self._background is background:
                self._background = None
                background.run(self._close_all())
                background.close()

    def __enter__(self) -> Evaluator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def _evaluate(self, policy: Policy, settings: RunSettings, plan: Plan) -> Results:
        fleet = await self._fleet_for(settings, plan)
        try:
            return await fleet.evaluate(policy, settings, plan)
        finally:
            if fleet.broken:
                self._fleets.remove(fleet)
                await fleet.close()

    async def _fleet_for(self, settings: RunSettings, plan: Plan) -> _Fleet:
        found = next((fleet for fleet in self._fleets if fleet.fits(settings, plan)), None)
        if found is not None:
            self._fleets.remove(found)
            if found.broken:  # since the last call
                await found.close()
                found = None
        elif len(self._fleets) >= _KEPT:
            await self._fleets.pop(0).close()
        self._fleets.append(found or _Fleet(settings, plan))
        return self._fleets[-1]

    async def _close_all(self) -> None:
        while self._fleets:
            await self._fleets.pop().close()


class _Fleet:
    """The workers of one or more evaluations, one after the other, and the folder of their sockets and logs."""

    def __init__(self, settings: RunSettings, plan: Plan) -> None:
        self._made_of = _made_of(settings)
        self._slots = settings.slot_count(len(plan.ids()))
        self._stack = AsyncExitStack()
        self._numbers = itertools.count(1)
        self._given_up = False
        self._employed: Employed | None = None
        self.folder = Path(self._stack.enter_context(socket_folder()))

    def fits(self, settings: RunSettings, plan: Plan) -> bool:
        """Whether these are the workers that settings ask for."""
        wanted = settings.slot_count(len(plan.ids()))
        enough = self._slots >= wanted if settings.slots == "auto" else self._slots == wanted
        return enough and self._made_of == _made_of(settings)

    @property
    def broken(self) -> bool:
        """Whether it is of no more use: a call ended while episodes were running, or nobody keeps workers alive."""
        if self._employed is None or self._made_of["launcher"] == "none":
            return self._given_up
        return self._given_up or self._employed.launcher.done()

    async def evaluate(self, policy: Policy, settings: RunSettings, plan: Plan) -> Results:
        """Plays a plan."""
        folder = settings.output or self.folder / f"run-{next(self._numbers)}"
        journal = Journal(folder)
        session = _LiveSession(settings, plan, folder, journal, policy, self)
        try:
            results = await session.run(asyncio.get_running_loop().create_future())
        except BaseException:
            self._given_up = True  # slots may be in the middle of something
            raise
        finally:
            journal.close()
            if settings.output is None:
                shutil.rmtree(folder, ignore_errors=True)
            elif (self.folder / "logs").is_dir():
                shutil.copytree(self.folder / "logs", folder / "logs", dirs_exist_ok=True)
        return results if settings.output else replace(results, folder=None)

    async def employ(
        self, session: _LiveSession, coordinator: Coordinator, settings: RunSettings, addresses: Sequence[str]
    ) -> Employed:
        """The workers, new or as the evaluation before left them."""
        if self._employed is None:
            self._employed = await session.hire(self._stack, self.folder, coordinator, addresses)
        else:
            self._employed.service.hand_over(coordinator, settings, addresses)
        return self._employed

    async def close(self) -> None:
        """Ends the workers."""
        await self._stack.aclose()


class _LiveSession(Session):
    """A run whose policy is an object in this process and whose workers are there before it and after it."""

    def __init__(
        self,
        settings: RunSettings,
        plan: Plan,
        folder: Path,
        journal: Journal,
        policy: Policy,
        fleet: _Fleet,
    ) -> None:
        super().__init__(settings, plan, folder, journal, Display(Tally(len(plan.ids()), 0, 0)))
        self._live = policy
        self._fleet = fleet
        self._description: Description | None = None

    async def _host(self, stack: AsyncExitStack, sockets: Path, watched: list[asyncio.Future[None]]) -> Sequence[str]:
        from policy_server.server import PolicyServer

        settings = self._settings
        assert settings.policy is not None
        # The hash of a file that a policy was loaded from says nothing about weights that are being trained.
        server = PolicyServer(self._live, name=settings.policy, max_batch=settings.max_batch, checkpoint_sha256="")
        self._description = Description.from_message(server.description)
        assert settings.listen is not None
        host = settings.listen.rpartition(":")[0]
        # In a folder of this call's own: what is left of a connection to the policy before cannot reach this one.
        addresses = await server.start([f"unix://{sockets}/policy.sock", f"{host}:0"])
        stack.push_async_callback(server.drain, grace=0.0)
        return addresses

    async def _describe(self, addresses: Sequence[str]) -> Description:
        assert self._description is not None
        return self._description

    async def _employ(
        self, stack: AsyncExitStack, sockets: Path, logs: Path, coordinator: Coordinator, addresses: Sequence[str]
    ) -> Employed:
        stack.callback(coordinator.abandon)  # whatever workers say after this call must not reach its journal
        return await self._fleet.employ(self, coordinator, self._settings, addresses)

    async def hire(
        self, stack: AsyncExitStack, folder: Path, coordinator: Coordinator, addresses: Sequence[str]
    ) -> Employed:
        """Starts workers that stay for as long as the stack."""
        return await super()._employ(stack, folder, folder / "logs", coordinator, addresses)


class _Background:
    """An event loop in a thread of its own: the caller's thread may run one already, and signals stay the caller's."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        # A daemon, because Python waits for other threads before it calls what is registered with atexit.
        self._thread = threading.Thread(target=self._loop.run_forever, name="sparring", daemon=True)
        self._thread.start()
        self._running: Future[Any] | None = None

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine there and waits for it; an interruption here, such as Ctrl-C, ends it in good order.

        Raises:
            Interrupted: If `interrupt` was called meanwhile.
        """
        over = threading.Event()

        async def watched() -> T:
            try:
                return await coroutine
            finally:
                over.set()

        self._running = future = asyncio.run_coroutine_threadsafe(watched(), self._loop)
        try:
            return future.result()
        except CancelledError:
            raise Interrupted("closed while it was evaluating.") from None
        finally:
            future.cancel()
            over.wait(_CLOSING_SECONDS)

    def interrupt(self) -> None:
        """Ends what is running there, if anything is."""
        if self._running is not None:
            self._running.cancel()

    def close(self) -> None:
        """Ends the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CLOSING_SECONDS)
        if not self._thread.is_alive():
            self._loop.close()


def _made_of(settings: RunSettings) -> dict[str, Any]:
    made_of = settings.model_dump(exclude=set(_PER_CALL) | {"evaluations"})
    made_of["parts"] = [(part.benchmark, part.benchmark_arg) for part in settings.parts]
    return made_of


def _settings(name: str, values: dict[str, Any], others: dict[str, Any]) -> RunSettings:
    for key in others:
        if key in _NOT_HERE:
            raise UsageError(f"evaluate() takes no {key!r}: {_NOT_HERE[key]}.")
        if key not in RunSettings.model_fields:
            known = {"tasks", *RunSettings.model_fields} - {*_NOT_HERE, "policy"}
            raise unknown("setting of evaluate():", key, sorted(known))
    if values["task"] is not None and not isinstance(values["task"], str):
        values["task"] = ",".join(values["task"])
    # Any port will do: the usual one is for the command, and nobody dials a training program unless it says where.
    settings = read_settings({"listen": "127.0.0.1:0", **values, **others, "policy": name}, None)
    if settings.output is not None and (settings.output / FILE_NAME).exists():
        raise UsageError(
            f"{str(settings.output)!r} holds results already, of a policy that was another one then; "
            "give each call an output folder of its own."
        )
    if settings.output is None and settings.video != "none":
        raise UsageError("films are written to the output folder: give one with output=.")
    return settings


@contextmanager
def _evaluation_mode(policy: object) -> Iterator[None]:
    """Turns off what torch modules do in training only (dropout, batch statistics), and on again what was on."""
    torch: Any = sys.modules.get("torch")  # never imported here; who has a module has imported it
    if torch is None:
        yield
        return
    held = [policy, *getattr(policy, "__dict__", {}).values()]
    roots = [value for value in held if isinstance(value, torch.nn.Module)]
    training = [module for root in roots for module in root.modules() if module.training]
    for root in roots:
        root.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


_shared: Evaluator | None = None


def evaluate(
    policy: Policy,
    *,
    benchmark: str | None = None,
    tasks: str | Sequence[str] | None = None,
    episodes: int = 10,
    slots: int | str = "auto",
    output: str | Path | None = None,
    **settings: Any,
) -> Results:
    """Evaluates a policy with workers that stay until `close()` or the end of this process.

    See `Evaluator.evaluate`, which takes the same arguments.
    """
    global _shared
    if _shared is None or _shared._pid != os.getpid():
        _shared = Evaluator()
        atexit.register(_shared.close)
    return _shared.evaluate(
        policy, benchmark=benchmark, tasks=tasks, episodes=episodes, slots=slots, output=output, **settings
    )


def close() -> None:
    """Ends the workers that `evaluate` keeps. Evaluating again starts others."""
    if _shared is not None:
        _shared.close()

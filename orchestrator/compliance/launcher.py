"""What a launcher of your own can be held against: `check_launcher()`, `sparring check launcher`.

A tiny run is played with its workers. One of them is killed, others are called off while they start, others are
refused; after each, nothing of them may be left. What is left is looked for on this machine.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import grpc

from sparring.env_worker.compliance import default_task
from sparring.env_worker.registry import get_benchmark
from sparring.orchestrator.compliance.checked_run import GONE_SECONDS, Seen, left_of, play, processes_of
from sparring.orchestrator.launchers.base import LaunchFailed, WorkerOrder
from sparring.orchestrator.launchers.cluster import ClusterSettings
from sparring.orchestrator.launchers.registry import get_launcher
from sparring.orchestrator.machine.child import open_socket
from sparring.orchestrator.machine.processes import Process, can_be_seen
from sparring.orchestrator.machine.self_signed import self_signed
from sparring.orchestrator.machine.sockets import socket_folder
from sparring.orchestrator.retry import DEFAULT_RULES
from sparring.orchestrator.settings import RunSettings, read_settings
from sparring.protos import evaluation_pb2 as pb
from sparring.protos.evaluation_pb2_grpc import WorkServicer, add_WorkServicer_to_server
from sparring.protos.net.access import brought, new_token
from sparring.protos.net.address import Address
from sparring.protos.net.rpc import bind
from sparring.protos.rules import NotApplicable, RuleBroken, Verdict, broken, expect, judge, raise_failures

SECONDS: Final = 120.0
_EPISODES: Final = 2
_STEPS: Final = 20
_LAST_WORDS: Final = "there is no place for workers here: this is a check of how they are given up."
_MOMENTS: Final = (0.0, 0.4)
"""Seconds after which a start is called off."""


def check_launcher(
    name: str, *, benchmark: str, task: str = "", seconds: float = SECONDS, **settings: Any
) -> list[Verdict]:
    """Holds a launcher against everything that Sparring relies on; for the tests of your own.

    Args:
        name: That `--launcher` takes.
        benchmark: To try it with; its workers must be able to start.
        task: Of the benchmark; by default that of its smoke test, else the first.
        seconds: That each rule may take.
        settings: Others of `sparring run`: the launcher's own, `listen`, `benchmark_arg`, …

    Returns:
        A verdict for each rule; none of them failed.

    Raises:
        CheckFailed: If a rule does not hold, with every one that does not.
        SparringError: If it cannot be tried: there is no such launcher, or it finds that it cannot work here.
    """
    run = settings_of_check(name, {"benchmark": benchmark, "task": task, **settings})
    return raise_failures(f"the launcher {name!r}", verdicts_of(run, seconds=seconds))


def settings_of_check(name: str, settings: dict[str, Any]) -> RunSettings:
    """Returns the settings of the tiny run that a launcher is tried with."""
    task = settings.get("task") or default_task(get_benchmark(settings["benchmark"]))
    cluster = issubclass(get_launcher(name).settings, ClusterSettings)
    slots = {"workers": 1, "slots_per_worker": 1} if cluster else {"slots": 1}
    tiny = {"policy": "zero", "episodes": _EPISODES, **slots, "max_steps": _STEPS}
    return read_settings({**tiny, **settings, "task": task, "launcher": name})


def verdicts_of(run: RunSettings, *, seconds: float = SECONDS) -> Iterator[Verdict]:
    """Yields the verdict of each rule, as it is reached."""
    run.launcher.check(run)
    subject = _Subject(run, seconds)
    for rule in _RULES:
        yield judge(rule, subject)


class _Subject:
    """A launcher, and the run that it is tried with."""

    def __init__(self, run: RunSettings, seconds: float) -> None:
        self.run = run
        self.launcher = run.launcher
        self.seconds = seconds

    @cached_property
    def seen(self) -> Seen:
        """What is seen of a run whose first worker is killed."""
        seen = Seen()
        try:
            self.within(play(self.run, seen))
        except RuleBroken as late:  # what was seen until then is there for all rules
            seen.error = late
        return seen

    def within(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Runs something that must end in time."""

        async def limited() -> None:
            try:
                async with asyncio.timeout(self.seconds):
                    await coroutine
            except TimeoutError:
                broken(f"it takes more than {self.seconds:g} s.")

        asyncio.run(limited())


def _has_words_for_people(subject: _Subject) -> None:
    """It has a summary, and each of its settings has a description and a default."""
    expect(subject.launcher.summary, "its `summary` is empty.")
    for name, found in subject.launcher.settings.model_fields.items():
        expect(found.description, f"its setting {name!r} has no description, and so its flag no help.")
        expect(not found.is_required(), f"its setting {name!r} has no default: runs of other launchers do not have it.")


def _plays_every_episode(subject: _Subject) -> None:
    """Its workers play every episode of a run, although the first of them dies."""
    seen = subject.seen
    if seen.error is not None:
        raise seen.error
    assert seen.results is not None
    overall = seen.results.overall
    expect(overall.n == _EPISODES, f"of {_EPISODES} episodes {overall.n} have an outcome, {overall.errors} an error.")


def _replaces_a_worker(subject: _Subject) -> None:
    """A worker that dies is replaced by one of another name."""
    joined = subject.seen.joined
    expect(joined, "no worker came at all.")
    expect(len(joined) > 1, f"the worker {joined[0]!r} died, and nobody took its place.")
    expect(len(set(joined)) == len(joined), f"workers had the same name: {', '.join(joined)}.")


def _leaves_nothing_of_a_run(subject: _Subject) -> None:
    """When a run has ended, nothing of its workers is left."""
    _need_processes()
    expect(subject.seen.joined, "no worker came at all.")
    _expect_none(subject.seen.left)


def _can_be_called_off(subject: _Subject) -> None:
    """A start that is called off ends soon, and leaves nothing."""
    _need_processes()

    async def call_off(seconds: float) -> None:
        async with _dialled(subject.run, _Holds()) as order:
            starting = asyncio.ensure_future(subject.launcher.run(order))
            await asyncio.wait({starting}, timeout=seconds)
            seen = processes_of(order)
            starting.cancel()
            await asyncio.wait({starting}, timeout=GONE_SECONDS)
            expect(starting.done(), f"run() goes on for more than {GONE_SECONDS:g} s after it was cancelled.")
            with suppress(asyncio.CancelledError):
                starting.result()
            _expect_none(await asyncio.to_thread(left_of, order, seen))

    for moment in _MOMENTS:
        subject.within(call_off(moment))


def _keeps_the_secret(subject: _Subject) -> None:
    """Workers bring the run's join token, and it is nowhere where others can read it."""
    service = _Holds()

    async def start() -> None:
        async with _dialled(subject.run, service) as order:
            starting = asyncio.ensure_future(subject.launcher.run(order))
            asking = asyncio.ensure_future(service.asked.wait())
            try:
                await asyncio.wait({starting, asking}, return_when=asyncio.FIRST_COMPLETED)
                if starting.done():
                    starting.result()
                shown = [process.number for process in processes_of(order) if process.shows(order.join_token)]
            finally:
                for task in (starting, asking):
                    task.cancel()
                await asyncio.gather(starting, asking, return_exceptions=True)
            found = brought(service.metadata, order.join_token)
            expect(found == "right", f"the join token that a worker brought is {found}.")
            expect(not shown, f"arguments or environments of processes show the join token: {shown}.")
            logs = [path.name for path in order.logs.rglob("*") if order.join_token.encode() in path.read_bytes()]
            expect(not logs, f"logs hold the join token: {', '.join(logs)}.")

    subject.within(start())


def _gives_up_with_last_words(subject: _Subject) -> None:
    """Workers that cannot start end the run: LaunchFailed, with their last words."""

    async def start() -> None:
        async with _dialled(subject.run, _Refuses()) as order:
            try:
                await subject.launcher.run(order)
            except LaunchFailed as failure:
                expect(
                    _LAST_WORDS in failure.sentence, f"it does not say what its workers said last: {failure.sentence}"
                )
            else:
                broken("run() returned, with nobody to keep alive.")

    subject.within(start())


_RULES: Final[tuple[Callable[[_Subject], None], ...]] = (
    _has_words_for_people,
    _plays_every_episode,
    _replaces_a_worker,
    _leaves_nothing_of_a_run,
    _can_be_called_off,
    _keeps_the_secret,
    _gives_up_with_last_words,
)


class _Refuses(WorkServicer):
    """Takes no worker in."""

    async def Work(  # type: ignore[override]
        self, requests: AsyncIterator[pb.WorkerMessage], context: grpc.aio.ServicerContext[Any, Any]
    ) -> None:
        await context.read()
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, _LAST_WORDS)


class _Holds(WorkServicer):
    """Lets workers wait for what they are to do."""

    def __init__(self) -> None:
        self.metadata: Sequence[tuple[str, Any]] = ()
        self.asked = asyncio.Event()

    async def Work(  # type: ignore[override]
        self, requests: AsyncIterator[pb.WorkerMessage], context: grpc.aio.ServicerContext[Any, Any]
    ) -> None:
        self.metadata = tuple(context.invocation_metadata() or ())
        self.asked.set()
        while await context.read() is not grpc.aio.EOF:
            pass


@asynccontextmanager
async def _dialled(run: RunSettings, service: WorkServicer) -> AsyncIterator[WorkerOrder]:
    """An order for workers that dial a service."""
    server = grpc.aio.server()
    add_WorkServicer_to_server(service, server)
    with socket_folder() as sockets, tempfile.TemporaryDirectory(prefix="sparring-check-") as folder:
        local = bind(server, Address.unix(sockets / "work.sock"))
        listen = await asyncio.to_thread(run.launcher.listen, run)
        public, ca = (local, b"") if listen is None else await asyncio.to_thread(_bind_public, server, run, listen)
        await server.start()
        open_socket(local)
        try:
            yield WorkerOrder(
                run=run,
                folder=Path(folder),
                slots={part.label: 1 for part in run.plan.parts},
                orchestrator=local,
                public=public,
                sockets=sockets,
                logs=Path(folder, "logs"),
                rules=DEFAULT_RULES,
                results_of=lambda worker: 0,
                explain=lambda worker, reason: None,
                join_token=new_token(),
                ca=ca,
            )
        finally:
            await server.stop(None)


def _bind_public(server: grpc.aio.Server, run: RunSettings, listen: Address) -> tuple[Address, bytes]:
    """Listens as a run does, encrypted where workers are to be told a name of this machine."""
    host = "" if listen.is_unix else run.launcher.advertise(run, listen)
    if not host:
        return bind(server, listen), b""
    identity = self_signed(host)
    credentials = grpc.ssl_server_credentials([(identity.key, identity.cert)])
    return bind(server, listen, credentials).with_host(host), identity.cert


def _expect_none(left: Iterable[Process]) -> None:
    commands = "; ".join(f"{process.number}: {' '.join(process.command)}"[:200] for process in left)
    expect(not commands, f"processes are left: {commands}")


def _need_processes() -> None:
    if not can_be_seen():
        raise NotApplicable("this machine does not tell which processes run.")

"""A run in this very process: policy and simulator side by side, one episode after the other.

For pdb, whose `breakpoint()` needs the terminal, and for policies that are quicker than any way to another process. No
server, no worker, no socket; but the same episodes, rules, journal and files as in any other run. The only file of this
room that makes local sessions, and imports of the policy server what that takes, when it is called.
"""

from __future__ import annotations

import bdb
import contextlib
import json
import signal
import socket
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Final

from sparring.env_worker.benchmark import asking
from sparring.env_worker.conditions import assigned_conditions
from sparring.env_worker.episode.live_frames import FrameRequest
from sparring.env_worker.episode.progress import Progress
from sparring.env_worker.episode.session import Session
from sparring.env_worker.registry import experts_of, get_benchmark, installed_versions, source_files
from sparring.env_worker.rendering.choice import draw_here
from sparring.env_worker.worker.player import Player
from sparring.orchestrator.coordination.recorder import Recorder
from sparring.orchestrator.execution.broken_code import broken_code_kept
from sparring.orchestrator.execution.invocation import Invocation
from sparring.orchestrator.execution.run_files import RunFiles, output_folder
from sparring.orchestrator.machine.environments import state
from sparring.orchestrator.plan import Plan
from sparring.orchestrator.results.journal import Journal
from sparring.orchestrator.results.results import Results
from sparring.orchestrator.run.early_stopping import early_stopping
from sparring.orchestrator.run.errors import Interrupted, RunStopped
from sparring.orchestrator.run.listeners import Listeners, RunListener, SlotActivity, SlotFrame
from sparring.orchestrator.run.orders import LeaseOrder, assignment_message, lease_message, unchanged
from sparring.orchestrator.run.scheduler import Lease, Scheduler, SlotId
from sparring.orchestrator.serving.foreign_layouts import foreign_layouts
from sparring.orchestrator.serving.stats import HOSTED, StatsWatch
from sparring.orchestrator.settings import Evaluation, RunSettings
from sparring.orchestrator.settings.assets import fetch_assets
from sparring.protos import evaluation_pb2 as pb
from sparring.protos.advice import FLAGS, Dialect, Hint
from sparring.protos.errors import SparringError, UsageError
from sparring.protos.machine import machine
from sparring.protos.spec import Offer
from sparring.protos.tracebacks import Tracebacks

if TYPE_CHECKING:
    from sparring.policy_server.local import LocalPolicy
    from sparring.policy_server.policies.base import Policy

WORKER: Final = "in-process"
"""What stands where the name of a worker would."""
_KEEP_SECONDS: Final = 5.0


def check(settings: RunSettings) -> None:
    """Tells, or fetches, what benchmarks lack in this Python.

    Raises:
        UsageError: If one of them is not installed here.
        SparringError: If its assets cannot be had.
    """
    for part in settings.plan.parts:
        benchmark = get_benchmark(part.benchmark)
        found = state(benchmark)
        if found.kind != "here":
            other = f" It has another: {str(found.python)!r}." if found.python else ""
            lacking = ", ".join(benchmark.missing() or found.packages)
            raise UsageError(
                f"the benchmark {benchmark.name!r} cannot be played in this process: this Python lacks {lacking}."
                f"{other} Leave out {Hint('in_process')}."
            )
        fetch_assets(settings, part)


def run_in_process(
    settings: RunSettings,
    plan: Plan,
    folder: Path,
    listeners: Iterable[RunListener] = (),
    *,
    dialect: Dialect = FLAGS,
    invocation: Invocation | None = None,
    order: LeaseOrder = unchanged,
) -> Results:
    """Runs what is left of a plan and returns all its results; to be called in the main thread, for signals.

    Args:
        settings: Of the run.
        plan: All of its episodes.
        folder: For what comes of it.
        listeners: Who watches.
        dialect: The words of those who read about it.
        invocation: How it was asked for.
        order: Adds to each lease what is wanted of it, beside what settings say.

    Raises:
        UsageError: If the folder belongs to another plan, or to other programs, or the policy cannot be made.
        Interrupted, RunStopped, and other SparringErrors: If the run could not be finished.
    """
    try:
        with _Signals() as signals, output_folder(folder) as journal:
            listener = Listeners(listeners)
            execution = _InProcessExecution(settings, plan, folder, journal, listener, dialect, invocation, order)
            with broken_code_kept(folder, logged=True):
                return execution.run(lambda: load_local(settings, Tracebacks(folder)), signals.raised)
    except KeyboardInterrupt as interrupt:
        raise Interrupted(f"interrupted by {interrupt.args[0] if interrupt.args else 'SIGINT'}.") from None
    except bdb.BdbQuit:
        raise Interrupted("the debugger was left.") from None


def load_local(settings: RunSettings, tracebacks: Tracebacks) -> LocalPolicy:
    """Makes the policy that settings name, in this process.

    Args:
        settings: Of the run.
        tracebacks: Where what its code raises is kept.

    Raises:
        UsageError: If it cannot be made, or fails in its warm-up.
    """
    from sparring.policy_server.local import LocalPolicy
    from sparring.policy_server.policies import load_policy

    policy = settings.policy
    assert policy.name is not None
    experts = experts_of(part.benchmark for part in settings.plan.parts)
    name, arguments = policy.name, policy.arguments
    return LocalPolicy(
        lambda: load_policy(name, arguments, experts=experts),
        name=name,
        arguments=arguments,
        tracebacks=tracebacks,
        experts=experts,
    )


def evaluate_in_process(
    policy: Policy, settings: RunSettings, plan: Plan, listener: Listeners, dialect: Dialect
) -> Results:
    """Evaluates an object of the caller's, in the caller's thread; signals are the caller's, too.

    Raises:
        SparringError: As `run_in_process`.
    """
    from sparring.policy_server.local import LocalPolicy

    name = settings.policy.name
    assert name is not None

    def load() -> LocalPolicy:
        # The hash of a file that a policy was loaded from says nothing about weights that are being trained.
        return LocalPolicy(policy, name=name, checkpoint_sha256="", tracebacks=Tracebacks(settings.output.folder))

    with tempfile.TemporaryDirectory(prefix="sparring-") as temporary:
        folder = settings.output.folder or Path(temporary) / "run"
        with output_folder(folder) as journal, broken_code_kept(settings.output.folder):
            return _InProcessExecution(settings, plan, folder, journal, listener, dialect).run(load)


class _InProcessExecution:
    """One go at a run: from start, or resume, to its end or interruption."""

    def __init__(
        self,
        settings: RunSettings,
        plan: Plan,
        folder: Path,
        journal: Journal,
        listener: Listeners,
        dialect: Dialect,
        invocation: Invocation | None = None,
        order: LeaseOrder = unchanged,
    ) -> None:
        self._order = order
        self._settings = settings
        self._plan = plan
        self._journal = journal
        self._listener = listener
        stopping = early_stopping(settings, plan, journal.rows() if settings.stop.is_asked else ())
        self._may_stop = stopping.may_stop
        self._files = RunFiles(settings, plan, folder, journal, listener, dialect, invocation, stopping)
        self._scheduler = Scheduler(
            plan,
            done=journal.judged(),
            failed_before=journal.failed_attempts(),
            rules=settings.plan.retry_rules,
            by_rounds=stopping.may_stop,
        )
        self._recorder = Recorder(
            plan, settings, journal, folder, listener, self._scheduler, dialect, stopping=stopping
        )
        self._kept = time.monotonic()

    def run(
        self,
        load: Callable[[], LocalPolicy],
        interruptible: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
    ) -> Results:
        """Runs what is left; saves what there is on every way out.

        Args:
            load: Makes the policy.
            interruptible: In which signals are raised; they are not while results are saved.
        """
        with self._files.saved(), interruptible():
            self._play(load)
        return self._files.results

    def _play(self, load: Callable[[], LocalPolicy]) -> None:
        draw_here(self._settings.worker.render_device)  # before anybody imports a simulator, and a policy may
        watch = StatsWatch({}, earlier=self._journal.meta("server_counts"), on_warning=self._files.warn)
        policy = load()
        self._files.claim(policy.describe())
        for sentence in foreign_layouts(self._settings):
            self._files.warn(sentence)
        if not self._scheduler.unfinished and not self._recorder.films.unfinished:
            return
        self._files.stats_watch = watch
        host = socket.gethostname()
        versions = installed_versions(part.benchmark for part in self._settings.plan.parts)
        self._files.heard_of({WORKER: versions}, {host: machine()})
        made_of = {part.label: _files_of(part.benchmark) for part in self._settings.plan.parts}
        checked = {name: self._files.programs.benchmark(name, files, versions) for name, files in made_of.items()}
        self._recorder.joined(WORKER, host, versions, checked)
        self._listener.on_worker(WORKER, 1)
        try:
            parts = self._settings.plan.parts
            # One after the other; of a run that may stop early in turns, or the first would be played to its end.
            for together in [parts] if self._may_stop else [[part] for part in parts]:
                self._play_parts(together, policy, lambda: watch.heard(HOSTED, policy.stats()))
        finally:
            self._recorder.close()
            watch.heard(HOSTED, policy.stats())

    def _play_parts(self, parts: Sequence[Evaluation], policy: LocalPolicy, keep_stats: Callable[[], None]) -> None:
        """Plays parts of the run in turns: an episode of every task of one, then of the next."""
        tasks = Counter(benchmark for benchmark, _ in self._plan.labels().values())
        with contextlib.ExitStack() as stack:
            ready = {part.label: stack.enter_context(self._player(part, policy)) for part in parts}
            left = list(ready)
            while left:
                left = [label for label in left if self._play_some(label, *ready[label], tasks[label], keep_stats)]
            for label, (player, assignment) in ready.items():
                self._film(SlotId(label, WORKER, 0), player, assignment)

    @contextlib.contextmanager
    def _player(self, part: Evaluation, policy: LocalPolicy) -> Iterator[tuple[Player, pb.Assignment]]:
        assignment = assignment_message(self._settings, part)
        assignment.renderers.extend(self._files.programs.renderers(part.label))
        benchmark = get_benchmark(part.benchmark)
        own_settings = benchmark.read_settings(json.loads(assignment.benchmark_settings))
        with asking(part.benchmark, "prepare()"):
            benchmark.prepare(own_settings)
        frames = FrameRequest(self._show, looking=lambda: 0 in self._listener.watched(WORKER))
        player = Player(benchmark, own_settings, LocalSessions(policy, assignment), self._attach, frames=frames)
        try:
            yield player, assignment
        finally:
            player.close()

    def _play_some(
        self, label: str, player: Player, assignment: pb.Assignment, most: int, keep_stats: Callable[[], None]
    ) -> bool:
        """Plays episodes of a part of the run, so many at most; returns whether it has not ended by that."""
        for _ in range(most):
            lease = self._scheduler.lease(SlotId(label, WORKER, 0))
            if lease is None:
                return False
            message = lease_message(self._settings, self._plan, self._recorder.films, lease, self._order)
            self._record(player.play(message, assignment, [self._progress(lease)]))
            if time.monotonic() - self._kept >= _KEEP_SECONDS:
                self._kept = time.monotonic()
                keep_stats()
                self._files.keep()
        return True

    def _film(self, slot: SlotId, player: Player, assignment: pb.Assignment) -> None:
        """Plays again what is to be filmed."""
        films, replays = self._recorder.films, self._recorder.replays
        while (lease := replays.lease(slot)) is not None:
            ended = player.play(films.message(lease), assignment, [self._progress(lease, replay=True)])
            try:
                replays.ended(WORKER, lease, ended)
            except SparringError as error:  # it cannot be written
                raise RunStopped(error.sentence) from error

    def _progress(self, lease: Lease, *, replay: bool = False) -> Progress:
        def tell(steps: int) -> None:
            episode = lease.episode
            self._listener.on_activity(SlotActivity(WORKER, 0, episode.task, episode.index, steps, replay))

        tell(0)
        return Progress(tell)

    def _show(self, task: str, index: int, steps: int, image: bytes) -> None:
        self._listener.on_frame(SlotFrame(WORKER, 0, task, index, steps, image))

    def _attach(self, piece: pb.Piece) -> None:
        try:
            self._recorder.attachments.piece(piece)
        except SparringError as error:  # it cannot be written
            raise RunStopped(error.sentence) from error

    def _record(self, message: pb.WorkerMessage) -> None:
        kind = message.WhichOneof("message")
        if kind == "refused":
            raise UsageError(self._recorder.with_traceback(message.refused.reason, message.refused.traceback))
        if kind == "lost":  # not by the policy, which is here: by what a simulator or a policy asks in its turn
            raise RunStopped(message.lost.reason)
        try:
            self._recorder.result(WORKER, message.result)
        except SparringError as error:  # it cannot be written
            raise RunStopped(error.sentence) from error


def _files_of(benchmark: str) -> dict[str, str]:
    return {name.removeprefix(f"{benchmark}:"): sha256 for name, sha256 in source_files([benchmark]).items()}


class LocalSessions:
    """A session of the policy in this process, a new one when the last failed or offered something else.

    Args:
        policy: Whose.
        assignment: Says of which benchmark.
    """

    def __init__(self, policy: LocalPolicy, assignment: pb.Assignment) -> None:
        self._policy = policy
        self._benchmark, self._conditions = assignment.benchmark, assigned_conditions(assignment)
        self._session: Session | None = None
        self._offered: Offer | None = None

    def session_for(self, offer: Offer) -> Session:
        """Returns the session there is, if it still will do, or another."""
        if self._session is None or self._offered != offer:
            self._session = self._policy.open(offer, benchmark=self._benchmark, conditions=self._conditions)
            self._offered = offer
        return self._session

    def end(self) -> None:
        """Ends the session."""
        self._session = None


class _Signals:
    """Turns signals that ask for an end into a KeyboardInterrupt, which no `except Exception` takes for its own.

    Only while `raised` lasts: afterwards results are saved, and whoever is impatient must not break that.
    """

    def __init__(self) -> None:
        self._raising = False
        self._early = ""
        self._before: dict[int, Any] = {}

    def __enter__(self) -> _Signals:
        assert threading.current_thread() is threading.main_thread(), "signals come to the main thread"
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextlib.contextmanager
    def raised(self) -> Iterator[None]:
        """Raises them wherever the main thread is inside."""
        self._raising = True
        try:
            if self._early:  # it came while the journal was being opened
                raise KeyboardInterrupt(self._early)
            yield
        finally:
            self._raising = False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        if self._raising:
            raise KeyboardInterrupt(name)
        self._early = name

"""The heart of a run: leases out, results in, each written to the journal before anybody else hears of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from sparring.orchestrator.coordination.bounds import bounded, check_register
from sparring.orchestrator.coordination.departures import Departures
from sparring.orchestrator.coordination.dispatch import Dispatch
from sparring.orchestrator.coordination.policy_reports import PolicyReports
from sparring.orchestrator.coordination.policy_state import PolicyState
from sparring.orchestrator.coordination.program_check import ChangedProgram, ProgramCheck
from sparring.orchestrator.coordination.recorder import Recorder
from sparring.orchestrator.coordination.refusals import Refusals
from sparring.orchestrator.coordination.slot_news import SlotNews
from sparring.orchestrator.coordination.workers import Workers
from sparring.orchestrator.plan import EpisodeId, Plan
from sparring.orchestrator.results.journal import Journal, JournalError
from sparring.orchestrator.retry import RetryRules
from sparring.orchestrator.run.early_stopping import EarlyStopping
from sparring.orchestrator.run.errors import RunStopped
from sparring.orchestrator.run.listeners import RunListener
from sparring.orchestrator.run.orders import LeaseOrder, unchanged
from sparring.orchestrator.run.scheduler import Lease, Scheduler, SlotId
from sparring.orchestrator.serving.policy_host import ServerEnd
from sparring.orchestrator.settings import RunSettings
from sparring.protos import evaluation_pb2 as pb
from sparring.protos.advice import FLAGS, Dialect, render
from sparring.protos.errors import SparringError, UsageError
from sparring.protos.record import EpisodeRecord

log = logging.getLogger(__name__)


class Coordinator:
    """Knows the workers, the queue and the journal. All methods are called from the event loop.

    What workers and launchers say comes in with hints that are not rendered, and is from here on in the words of those
    who read about this run.
    """

    def __init__(
        self,
        plan: Plan,
        settings: RunSettings,
        journal: Journal,
        folder: Path,
        listener: RunListener,
        rules: RetryRules,
        dialect: Dialect = FLAGS,
        programs: ProgramCheck | None = None,
        order: LeaseOrder = unchanged,
        stopping: EarlyStopping | None = None,
        *,
        drain: bool = False,
    ) -> None:
        self._programs = programs or ProgramCheck(settings, plan, journal, accept=False, warn=listener.on_warning)
        self._plan = plan
        self._settings = settings
        self._journal = journal
        self._listener = listener
        self._rules = rules
        self._dialect = dialect
        self._scheduler = Scheduler(
            plan,
            done=journal.judged(),
            failed_before=journal.failed_attempts(),
            rules=rules,
            max_parallel_tasks=settings.plan.max_parallel_tasks,
            by_rounds=stopping is not None and stopping.may_stop,
        )
        played = {episode.benchmark for episode in journal.judged()}
        self.workers = Workers(dialect, plan.tasks, run_starts_own=settings.launcher.starts_workers, played=played)
        self._recorder = Recorder(
            plan, settings, journal, folder, listener, self._scheduler, dialect, self.workers, stopping, drain=drain
        )
        self._films, self._replays = self._recorder.films, self._recorder.replays
        self._refusals = Refusals(self.workers)
        self.policy = PolicyState(settings.policy.policy_timeout, rules, dialect)
        self.policy_reports = PolicyReports(self.policy, self.workers, self._scheduler, listener)
        self._dispatch = Dispatch(
            settings, plan, self._scheduler, self._recorder, self.workers, self.policy, listener, order
        )
        self._slot_news = SlotNews(self.workers, self._scheduler, self._films, self.policy, listener)
        self._departures = Departures()
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when nothing is left to run; fails with RunStopped when the run cannot go on."""
        self._end_if_finished()

    @property
    def unfinished(self) -> int:
        """Episodes without a final result, and films that are yet to be made."""
        return self._scheduler.unfinished + self._films.unfinished

    def pending(self, benchmark: str) -> int:
        """Returns how many episodes of a benchmark wait for a slot, to be played or to be filmed."""
        return self._scheduler.pending(benchmark) + self._films.pending(benchmark)

    def left(self, benchmark: str) -> int:
        """Returns how many episodes and films of a benchmark have not come to an end."""
        return self._scheduler.left(benchmark) + self._films.left(benchmark)

    def need(self, benchmark: str, *, coming: int = 0) -> float:
        """Returns how much a benchmark needs one more worker: the episodes that wait, for each slot that it has.

        Args:
            benchmark: Or a part of the run, by its label.
            coming: Slots that it has not yet, and will have.
        """
        return self.pending(benchmark) / (1 + self.workers.slots_for(benchmark) + coming)

    def expect(self, worker: str, part: str, slots: int) -> Sequence[str]:
        """Returns the tasks that the slots of a worker will begin with, which has not joined yet; empty: not known."""
        return [self._scheduler.expect(SlotId(part, worker, number)) for number in range(slots)]

    def expect_no_more(self, worker: str) -> None:
        """Hears that a worker which was expected has gone."""
        self._scheduler.forget_worker(worker)

    def renderers(self, benchmark: str) -> Sequence[str]:
        """Returns what may draw for a benchmark; empty: anything may."""
        return self._programs.renderers(benchmark)

    def unattended(self) -> set[str]:
        """Returns the benchmarks with episodes that wait, and no worker to run them."""
        attended = self.workers.benchmarks()
        return {name for name in self._plan.tasks if name not in attended and self.pending(name)}

    def join(
        self,
        register: pb.Register,
        assignment: pb.Assignment,
        send: Callable[[pb.OrchestratorMessage], None],
        *,
        part: str = "",
        launched: bool = False,
    ) -> str:
        """Takes in a worker that has dialled in and been assigned.

        Args:
            register: What it says of itself.
            assignment: What it is for.
            send: Says something to it.
            part: Of the run that it is for, by its label; the benchmark, if none is given.
            launched: Whether the run has started it itself.

        Returns:
            What it is called here: its name, with a number if another one has that already.

        Raises:
            OutOfBounds: If there are too many, or it says too much of itself.
            ChangedProgram: If it has another benchmark than the one that made the episodes of this run.
        """
        check_register(register)
        self.workers.check_room()
        part = part or assignment.benchmark
        program = self._program_of(register, assignment.benchmark, part, launched=launched)
        worker = self.workers.add(register, part, assignment.slots, send, launched=launched)
        self._recorder.joined(worker, register.host, register.versions, {part: program})
        self._listener.on_worker(worker, assignment.slots)
        return worker

    def grow(self, slots: Mapping[str, int]) -> Sequence[str]:
        """Hears how many slots the run's own workers hold from now on, by part; returns those that get more."""
        grown = self.workers.grow(slots)
        for worker in grown:
            self._listener.on_worker(worker, self.workers.slots_of(worker))
        return grown

    def _program_of(self, register: pb.Register, benchmark: str, part: str, *, launched: bool) -> str:
        """Returns the hash of a worker's benchmark; where nobody else can play that, a wrong one ends the run.

        So does a journal that cannot be written. What a worker from elsewhere has is no reason, where a run starts its
        own.
        """
        prefix = f"{benchmark}:"
        files = {n.removeprefix(prefix): sha256 for n, sha256 in register.files.items() if n.startswith(prefix)}
        try:
            return self._programs.benchmark(part, files, register.versions, counted=not launched)
        except ChangedProgram as error:
            if self._refusals.newcomer_ends_run(part, error.sentence, launched=launched):
                self.stop(error)
            raise
        except JournalError as error:
            self.stop(RunStopped(error.sentence))
            raise

    def take_back(self, worker: str, held: Collection[int]) -> Sequence[int]:
        """Lends again what a worker that is back has gone on playing, and nobody else has got in the meantime.

        Args:
            worker: That has joined again.
            held: The numbers of the leases that it still plays, or owes a result of.

        Returns:
            Those of them that it may go on with.
        """
        left = self._departures.back(worker, held)
        if self.ended.done():
            return []
        return [lease.number for lease in left if self._scheduler.take_back(lease)]

    def take_over(self, previous: Coordinator, assignment: Callable[[str, int], pb.Assignment]) -> None:
        """Takes on the workers of a run that has ended.

        Args:
            previous: The coordinator of that run; it is of no more use.
            assignment: What a worker of a benchmark with so many slots is to be told.
        """
        self.workers.take_over(previous.workers)
        self._scheduler.take_over(previous._scheduler)
        self._recorder.take_over(previous._recorder)
        self._programs.take_over(previous._programs)
        for name in self.workers:
            slots = self.workers.slots_of(name)
            told = assignment(self.workers.benchmark_of(name), slots)
            self.workers.send(name, pb.OrchestratorMessage(assignment=told))
            self._listener.on_worker(name, slots)
        self._dispatch.serve()

    def abandon(self) -> None:
        """Ends the run for those who wait for it: whatever else comes in changes nothing."""
        self.ended.cancel()
        self._recorder.close()
        self._dispatch.forget_order()

    def leave(self, worker: str, reason: str) -> None:
        """Lets go a worker whose stream has ended: its leases go back in the queue at once."""
        self.workers.remove(worker)
        self._scheduler.forget_worker(worker)
        self.policy.left(worker)
        if not self.ended.done():
            with self._or_stop():
                for lease in self._scheduler.leases_of(worker):
                    self._departures.left(worker, lease)
                    self._lost(lease, reason, worker)
                for replay in self._films.leases_of(worker):
                    self._replays.lost(worker, replay, reason)
                self._listener.on_worker(worker, 0)
                self._end_if_finished()
                self._dispatch.serve()
        self._recorder.left(worker)

    def handle(self, worker: str, message: pb.WorkerMessage) -> None:
        """Deals with one message of a worker.

        Raises:
            OutOfBounds: If no worker may say that; it is to be sent away.
        """
        message = bounded(message, self.workers.slots_of(worker))
        if self.ended.done():
            if message.WhichOneof("message") == "ready":  # for the run that may come after this one
                self._dispatch.ready(worker, message.ready.slot)
            return
        with self._or_stop():
            self._handle(worker, message)

    def policy_ended(self, end: ServerEnd) -> bool:
        """Deals with the end of the hosted policy server: no lease goes out until it is back.

        Returns:
            Whether it is on the way to being explained by one episode, and no reason to give the run up.
        """
        verdict = self.policy.ended(end, self._scheduler.in_flight(), over=self.ended.done())
        with self._or_stop():
            self.stop(verdict.hopeless)
            if verdict.hopeless is None and verdict.convicted is not None:
                self._convict(verdict.convicted, end)
        return verdict.explained

    def policy_ready(self) -> None:
        """Goes on, with a policy server that is back."""
        self.policy.is_up = True
        with self._or_stop():
            self._dispatch.serve()

    def _convict(self, episode: EpisodeId, end: ServerEnd) -> None:
        sentence = f"the policy server {end.sentence} each time this episode was played, the last time by itself."
        log.warning("%s #%d: %s", episode.task, episode.index, sentence)
        self._recorder.convicted(episode, EpisodeRecord.failed("limit" if end.kind == "hung" else "policy", sentence))
        self._end_if_finished()

    def explain(self, worker: str, reason: str) -> None:
        """Notes why a worker died, as its launcher found out after it had left, for the episodes that it lost."""
        reason = render(reason, self._dialect)
        with self._or_stop():
            for episode in self._departures.explain(worker, reason):
                self._journal.note("lost", reason, episode=episode, worker=worker)

    def stop(self, reason: SparringError | None) -> None:
        """Ends the run with an error, if there is one."""
        if reason is not None and not self.ended.done():
            self.ended.set_exception(reason)

    @contextmanager
    def _or_stop(self) -> Iterator[None]:
        """Ends the run when what is done inside fails, whatever with: an episode could go missing otherwise."""
        try:
            yield
        except SparringError as error:  # the journal cannot be written
            self.stop(RunStopped(error.sentence))
        except Exception as error:  # the boundary: a mistake of ours, and nobody else would hear of it
            log.exception("the run stops, because of a mistake in Sparring:")
            self.stop(RunStopped(f"a mistake in Sparring, please tell us: {type(error).__name__}: {error}."))

    def _handle(self, worker: str, message: pb.WorkerMessage) -> None:
        kind = message.WhichOneof("message")
        if kind == "ready":
            self._dispatch.ready(worker, message.ready.slot)
            self._dispatch.serve()
        elif kind == "piece":
            if self._dispatch.held(worker, message.piece.lease, "piece of a film or a recording") is not None:
                self._recorder.attachments.piece(message.piece)
        elif (replay := self._replays.ended_by(message)) is not None:
            if replay.slot.worker == worker:
                self._replay_ended(worker, replay, message)
        elif kind == "result":
            self._result(worker, message.result)
        elif kind == "lost":
            if (lease := self._dispatch.held(worker, message.lost.lease, "loss")) is None:
                return
            reason = message.lost.reason
            if message.lost.policy_changed:
                if self.policy_reports.changed(worker, lease, reason):
                    return
            elif message.lost.policy_full:
                self.stop(self.policy_reports.full(worker, lease, reason))
            else:
                self.policy.lost(lease, message.lost, believed=self.workers.may_be_right(worker))
                if not (message.lost.interrupted and self._recorder.interrupted(worker, lease, reason)):
                    self._lost(lease, reason, worker)
                if message.lost.policy_unreachable:
                    self.stop(self.policy_reports.unreachable(worker, lease, reason))
            if not self._scheduler.is_open(lease.episode):  # its round was cut meanwhile
                self.policy.closed(lease.episode)
            self._end_if_finished()
            self._dispatch.serve()
        elif kind == "refused":
            self._refused(worker, message.refused)
        elif kind == "heartbeat":
            self._slot_news.heartbeat(worker, message.heartbeat)
        elif kind == "frame":
            self._slot_news.frame(worker, message.frame)

    def _result(self, worker: str, result: pb.Result) -> None:
        lease = self._dispatch.held(worker, result.lease, "result")
        if lease is None:
            return
        if not self._recorder.attachments.is_whole(result):
            self._lost(lease, f"of the film or the recording that worker {worker!r} sent, a part is missing.", worker)
            self._dispatch.serve()
            return
        if not self._recorder.result(worker, result):
            return
        self._refusals.played(lease.slot.benchmark, result)
        self.policy.has_result(worker, lease.episode, answered=result.round_trips > 0)
        self.workers.results_of[worker] += 1
        self._end_if_finished()
        self._dispatch.serve()

    def _replay_ended(self, worker: str, replay: Lease, message: pb.WorkerMessage) -> None:
        """Deals with what came of an episode that was played again to be filmed; its outcome stays what it was."""
        if self._replays.ended(worker, replay, message):
            self.workers.results_of[worker] += 1
        self._end_if_finished()
        self._dispatch.serve()

    def _lost(self, lease: Lease, reason: str, worker: str) -> None:
        before = self._departures.reason_before(lease.episode)
        why = f"{reason} An earlier time: {before}." if before else reason
        given_up = f"lost {self._rules.losses} times, the last time because: {why}"
        self._recorder.lost(worker, lease, reason, given_up=given_up)
        if not self._scheduler.is_open(lease.episode):
            self.policy.closed(lease.episode)
        self._end_if_finished()

    def _refused(self, worker: str, refused: pb.Refused) -> None:
        """Deals with a worker that cannot play an episode; or any, as its benchmark's code raised before."""
        lease = self._dispatch.held(worker, refused.lease, "refusal") if refused.lease else None
        if lease is None and (refused.lease or self.workers.is_leaving(worker)):
            return
        whose = "benchmark" if lease is None else "simulator"
        reason = self._recorder.with_traceback(refused.reason, refused.traceback, whose=whose)
        if self._refusals.ends_run(worker, began=lease is not None):
            self.stop(UsageError(reason))
            return
        if lease is not None:
            self._lost(lease, reason, worker)
        self.workers.send_away(worker, f"it says that it cannot play: {reason}")
        self._dispatch.serve()

    def _end_if_finished(self) -> None:
        while self._recorder.cut_off:
            self.policy.closed(self._recorder.cut_off.pop())
        if not self.unfinished and not self.ended.done():
            self.ended.set_result(None)

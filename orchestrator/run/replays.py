"""Episodes that are played again to be filmed: handed out, checked against their rows, kept. Their outcomes stay."""

from __future__ import annotations

from dataclasses import replace

from sparring.orchestrator.results.journal import Journal
from sparring.orchestrator.run.attachments import Attachments
from sparring.orchestrator.run.films import EVENT, Films, difference
from sparring.orchestrator.run.listeners import RunListener, SlotActivity
from sparring.orchestrator.run.scheduler import Lease, Scheduler, SlotId
from sparring.protos import evaluation_pb2 as pb
from sparring.protos.advice import Dialect, Hint, render
from sparring.protos.pieces import AttachmentMissing
from sparring.protos.record import EpisodeRecord
from sparring.protos.tracebacks import Tracebacks


class Replays:
    """Has finished episodes played again, whoever plays them.

    Args:
        films: Says which.
        scheduler: Says which simulator a slot has.
        journal: To write to.
        attachments: Where films come in.
        listener: Hears of it.
        tracebacks: Of benchmarks' code.
        dialect: The words of those who read about the run.
    """

    def __init__(
        self,
        films: Films,
        scheduler: Scheduler,
        journal: Journal,
        attachments: Attachments,
        listener: RunListener,
        tracebacks: Tracebacks,
        dialect: Dialect,
    ) -> None:
        self._films = films
        self._scheduler = scheduler
        self._journal = journal
        self._attachments = attachments
        self._listener = listener
        self._tracebacks = tracebacks
        self._dialect = dialect

    def lease(self, slot: SlotId) -> Lease | None:
        """Lends an episode to a slot that has no outcome to play for; None if no film waits."""
        lease = self._films.lease(slot, at=self._scheduler.task_at(slot))
        if lease is not None:
            self._scheduler.moved(slot, lease.episode)
        return lease

    def ended_by(self, message: pb.WorkerMessage) -> Lease | None:
        """Returns the replay that a message of a worker ends, if it does."""
        return self._films.holder(message.result.lease or message.lost.lease or message.refused.lease)

    def ended(self, worker: str, lease: Lease, message: pb.WorkerMessage) -> bool:
        """Deals with what came of a replay; returns whether it was played to its end.

        Raises:
            SparringError: If it cannot be written.
        """
        if message.WhichOneof("message") != "result":
            refused = self._tracebacks.told("simulator", message.refused.reason, message.refused.traceback)
            self.lost(worker, lease, message.lost.reason or refused)
        elif not self._attachments.is_whole(message.result):
            self.lost(worker, lease, "a part of the film is missing.")
        else:
            self._played(worker, lease, message.result)
            return True
        return False

    def lost(self, worker: str, lease: Lease, reason: str) -> None:
        """Deals with a replay that ended without a result.

        Raises:
            SparringError: If it cannot be written.
        """
        self._attachments.drop(lease.number)
        if not self._films.lose(lease.number):
            self._no_film(worker, lease, f"nobody could play it again, the last time because: {reason}")
            self._end(worker, lease, made=False)
        else:
            self._listener.on_activity(SlotActivity(worker, lease.slot.number))

    def _played(self, worker: str, lease: Lease, result: pb.Result) -> None:
        """Keeps the film of a replay, if it is one of what was recorded."""
        row = self._journal.row(lease.episode)
        again = EpisodeRecord.from_message(result)
        problem = difference(row, again)
        if again.outcome == "error":
            problem = self._tracebacks.told("simulator", problem, result.traceback)
        elif problem:
            problem += (
                f" A simulator that does not repeat its episodes is filmed with {Hint('video_live', value=True)}."
            )
        else:
            problem = result.missing
        if not problem:
            try:
                filmed = replace(row, video=self._attachments.save_replay(lease, result, row.outcome))
                self._journal.filmed(filmed)
                self._listener.on_film(filmed)
            except AttachmentMissing as error:
                problem = error.sentence
        if problem:
            self._no_film(worker, lease, problem)
        self._end(worker, lease, made=not problem)

    def _end(self, worker: str, lease: Lease, *, made: bool) -> None:
        self._attachments.drop(lease.number)
        self._films.finish(lease.number, made=made)
        self._listener.on_activity(SlotActivity(worker, lease.slot.number))
        self._listener.on_films(self._films.count)

    def _no_film(self, worker: str, lease: Lease, reason: str) -> None:
        """Says that there is no film of an episode, and why. It counts as it was recorded."""
        told = render(f"{lease.episode}: there is no film of it: {reason}", self._dialect)
        self._journal.note(EVENT, told, episode=lease.episode, worker=worker)
        self._listener.on_warning(told)

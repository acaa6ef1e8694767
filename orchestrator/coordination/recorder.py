"""What becomes of a lease that has ended: in the journal, with its film and recording, or back in the queue."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from sparring.orchestrator.coordination.error_limits import ErrorLimits
from sparring.orchestrator.coordination.workers import Workers
from sparring.orchestrator.plan import EpisodeId, Plan
from sparring.orchestrator.results.journal import Journal
from sparring.orchestrator.results.makers import BENCHMARK, POLICY, Maker
from sparring.orchestrator.results.row import EpisodeRow
from sparring.orchestrator.run.attachments import Attachments
from sparring.orchestrator.run.early_stopping import EarlyStopping
from sparring.orchestrator.run.films import Films
from sparring.orchestrator.run.listeners import RunListener, SlotActivity
from sparring.orchestrator.run.replays import Replays
from sparring.orchestrator.run.scheduler import Lease, Scheduler
from sparring.orchestrator.settings import RunSettings
from sparring.protos import evaluation_pb2 as pb
from sparring.protos.advice import FLAGS, Dialect, render
from sparring.protos.record import EpisodeRecord
from sparring.protos.tracebacks import Tracebacks

log = logging.getLogger(__name__)

_MOST_WARNINGS: Final = 100
"""Of benchmarks, in one go at a run."""


@dataclass(frozen=True)
class _Player:
    """What a worker says of itself."""

    host: str
    versions: Mapping[str, str]
    programs: Mapping[str, str] = field(default_factory=dict)
    """Hash of the program of each benchmark that it plays."""


class Recorder:
    """Writes results down before anybody else hears of them, whoever has played the episodes.

    Args:
        plan: Of the run.
        settings: Of the run.
        journal: To write to.
        folder: For films.
        listener: Hears of it.
        scheduler: Says which results are final, and takes back episodes that are to be tried again.
        dialect: The words of those who read about the run: in the journal, advice is in these.
        workers: Who is there; None: nobody, the run is played in its own process.
        stopping: Says when the run may stop early; None: it plays its whole plan.
        drain: Whether episodes that are of no more use when it stops are played to their end.
    """

    def __init__(
        self,
        plan: Plan,
        settings: RunSettings,
        journal: Journal,
        folder: Path,
        listener: RunListener,
        scheduler: Scheduler,
        dialect: Dialect = FLAGS,
        workers: Workers | None = None,
        stopping: EarlyStopping | None = None,
        *,
        drain: bool = False,
    ) -> None:
        self._plan = plan
        self._settings = settings
        self._journal = journal
        self._listener = listener
        self._scheduler = scheduler
        self._dialect = dialect
        self.films = Films(plan, settings, journal)
        self.attachments = Attachments(plan, settings, folder, scheduler, self.films)
        self._limits = ErrorLimits(settings.plan.max_errors, workers)
        # Who keeps no files has a folder that nobody will look into.
        kept_in = None if settings.output.folder is None else folder
        self._tracebacks = Tracebacks(kept_in, logged=settings.plan.in_process)
        self.replays = Replays(self.films, scheduler, journal, self.attachments, listener, self._tracebacks, dialect)
        self._players: dict[str, _Player] = {}
        self._makers: dict[tuple[str, str], int] = {}
        self._warned: set[str] = set()
        self._stopping = stopping or EarlyStopping(plan)
        self._drain = drain
        self.cut_off: list[EpisodeId] = []
        """Episodes that waited or were being played when the run stopped early, and are not played any more."""
        if self._stopping.rounds is not None:  # an earlier execution was killed before it could say so
            self._stop_early(self._stopping.rounds)

    def joined(
        self, worker: str, host: str, versions: Mapping[str, str], programs: Mapping[str, str] | None = None
    ) -> None:
        """Hears who a worker is: the rows of its episodes will say so.

        Args:
            worker: Its name.
            host: Its machine.
            versions: Of its packages.
            programs: Hash of the program of each benchmark that it plays.
        """
        self._players[worker] = _Player(host, dict(versions), dict(programs or {}))
        self._makers = {known: number for known, number in self._makers.items() if known[0] != worker}

    def take_over(self, previous: Recorder) -> None:
        """Goes on with the workers of a run that has ended."""
        self._players = dict(previous._players)

    def left(self, worker: str) -> None:
        """Hears that a worker is gone, and nothing more comes of it; if it comes back, it says again who it is."""
        self._players.pop(worker, None)
        self._makers = {known: number for known, number in self._makers.items() if known[0] != worker}
        self._limits.left(worker)

    def result(self, worker: str, result: pb.Result) -> bool:
        """Deals with the result of a lease; returns False if it comes too late and changes nothing.

        Args:
            worker: Who had it.
            result: What came of it.

        Raises:
            SparringError: If it cannot be written, or nothing but this error has come of the run so far.
        """
        lease = self._scheduler.holder(result.lease)
        record = EpisodeRecord.from_message(result)
        record = replace(record, error=render(record.error, self._dialect))
        verdict = self._scheduler.judge(result.lease, record)
        if lease is None or verdict == "stale":
            return False
        if record.outcome == "error":
            record = replace(record, error=self.with_traceback(record.error, result.traceback))
        in_flight = self._scheduler.in_flight() if record.outcome == "error" else []
        # The lease ends when all is written: what cannot be written is not played, and the run has not finished.
        row: EpisodeRow | None = None
        if record.outcome == "error":
            self._journal.note("error", record.error, episode=lease.episode, worker=worker)
        if verdict == "record":
            if result.missing:
                self._missing(worker, lease, result.missing)
            self._warn(worker, lease, result.warnings)
            film, missing = self.attachments.save(lease, result, record.outcome)
            for sentence in missing:
                self._missing(worker, lease, sentence)
            kept = result if self._settings.output.actions else pb.Result()
            actions = kept.actions if record.outcome != "error" else b""
            row = self._record(worker, lease.episode, record, tries=1, film=film, actions=actions, trace=kept.trace)
        self.attachments.drop(lease.number)
        self._scheduler.finish(result.lease, record)
        if verdict == "retry":
            self._listener.on_retry(lease.episode, record.error)
            self._limits.heard(worker, lease, record, in_flight)
            return True
        # Before its steps are those of a recorded episode: they count once.
        self._listener.on_activity(SlotActivity(worker, lease.slot.number))
        self._tell(row)
        if row is not None and self._settings.output.video != "none":
            self.films.ended(row)
            self._listener.on_films(self.films.count)
        self._limits.heard(worker, lease, record, in_flight)
        return True

    def with_traceback(self, sentence: str, traceback: str, *, whose: str = "simulator") -> str:
        """Keeps the traceback of a benchmark's code, and returns a sentence that says where it is.

        Args:
            sentence: What happened.
            traceback: Empty if there is none.
            whose: Code raised, a word.
        """
        return self._tracebacks.told(whose, sentence, traceback)

    def close(self) -> None:
        """Throws away what has come of films and recordings whose result has not."""
        self.attachments.close()

    def lost(self, worker: str, lease: Lease, reason: str, *, given_up: str) -> None:
        """Deals with a lease that ended without a result.

        Args:
            worker: Who had it.
            lease: Which ended.
            reason: Why, in a sentence.
            given_up: The sentence to record if the episode has now been lost too often to be tried again.

        Raises:
            SparringError: If it cannot be written.
        """
        reason, given_up = render(reason, self._dialect), render(given_up, self._dialect)
        self._journal.note("lost", reason, episode=lease.episode, worker=worker)
        row: EpisodeRow | None = None
        if self._scheduler.judge_loss(lease.number) == "record":
            row = self._record(worker, lease.episode, EpisodeRecord.failed("lost", given_up), tries=0)
        self.attachments.drop(lease.number)
        if self._scheduler.lose(lease.number) == "retry":
            self._listener.on_retry(lease.episode, reason)
        self._tell(row)

    def interrupted(self, worker: str, lease: Lease, reason: str) -> bool:
        """Takes back a lease that ended because the policy failed on another one: it counts as nothing.

        Args:
            worker: Who had it.
            lease: Which ended.
            reason: Why, in a sentence.

        Returns:
            False if it is to be lost instead: this explains it no more.

        Raises:
            SparringError: If it cannot be written.
        """
        if not self._scheduler.interrupt(lease.number):
            return False
        reason = render(reason, self._dialect)
        self._journal.note("lost", reason, episode=lease.episode, worker=worker)
        self.attachments.drop(lease.number)
        self._listener.on_retry(lease.episode, reason)
        return True

    def convicted(self, episode: EpisodeId, record: EpisodeRecord) -> None:
        """Records an episode that was found to take the policy server down, and that nobody plays any more.

        Raises:
            SparringError: If it cannot be written.
        """
        record = replace(record, error=render(record.error, self._dialect))
        self._journal.note("error", record.error, episode=episode)
        row = self._record("", episode, record, tries=1)
        for lease in self._scheduler.in_flight():
            if lease.episode == episode:
                self.attachments.drop(lease.number)
        self._scheduler.drop(episode)
        self._tell(row)

    def _record(
        self,
        worker: str,
        episode: EpisodeId,
        record: EpisodeRecord,
        *,
        tries: int,
        film: str = "",
        actions: bytes = b"",
        trace: bytes = b"",
    ) -> EpisodeRow | None:
        """Writes a row; returns it, unless there is one of this episode already.

        Args:
            worker: Who had it.
            episode: Of which it is.
            record: What came of it.
            tries: 1 if this was an attempt of the episode; 0 if it was lost, which is none.
            film: Where one is, if one was made.
            actions: That were executed, packed, if they are kept.
            trace: What came of them, packed, likewise; of a replay that ended in an error, up to there.
        """
        row = EpisodeRow(
            benchmark=episode.benchmark,
            task=episode.task,
            index=episode.index,
            seed=self._plan.seed_of(episode),
            attempts=self._scheduler.failed_attempts(episode) + tries,
            video=film,
            worker=worker,
            host=self._player(worker).host,
            maker=self._maker(worker, episode.benchmark),
            **vars(record),
        )
        if not self._journal.record(row, actions, trace):
            return None
        if self._stopping.heard(row) and self._stopping.rounds is not None:
            self._stop_early(self._stopping.rounds)
        return row

    def _stop_early(self, rounds: int) -> None:
        """Lets go of all later rounds. What was played of them stays in the journal, for a run that goes on."""
        ended, dropped = self._scheduler.cut(rounds, drain=self._drain)
        for lease in ended:
            self.cut_off.append(lease.episode)
            self.attachments.drop(lease.number)
        self.cut_off += dropped  # who waits for one of them, as a suspect of a crash, waits for nothing
        self.films.cut(rounds)
        log.info("%s", "" if (state := self._stopping.state()) is None else state.sentence)

    def _player(self, worker: str) -> _Player:
        return self._players.get(worker) or _Player("", {})

    def _maker(self, worker: str, benchmark: str) -> int:
        if (worker, benchmark) not in self._makers:
            player = self._player(worker)
            beside = self._journal.meta("programs") or {}
            programs = {
                POLICY: self._journal.meta("policy_program") or "",
                BENCHMARK: player.programs.get(benchmark, ""),
            }
            maker = Maker.of(worker, player.host, player.versions, beside, programs)
            self._makers[worker, benchmark] = self._journal.maker(maker)
        return self._makers[worker, benchmark]

    def _tell(self, row: EpisodeRow | None) -> None:
        if row is not None:
            self._listener.on_result(row)

    def _warn(self, worker: str, lease: Lease, sentences: Iterable[str]) -> None:
        """Tells what a benchmark has to say, each sentence once, and no end of them."""
        for sentence in sentences:
            told = render(sentence, self._dialect)
            if told not in self._warned and len(self._warned) < _MOST_WARNINGS:
                self._warned.add(told)
                self._journal.note("warning", told, episode=lease.episode, worker=worker)
                self._listener.on_warning(told)

    def _missing(self, worker: str, lease: Lease, sentence: str) -> None:
        """Says that an episode counts, without its film or recording."""
        told = render(f"{lease.episode}: {sentence}", self._dialect)
        self._journal.note("missing", told, episode=lease.episode, worker=worker)
        self._listener.on_warning(told)

"""What becomes of a lease that has ended: in the journal, with its film and recording, or back in the queue."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sparring.orchestrator.results.journal import Journal
from sparring.orchestrator.results.row import EpisodeRow
from sparring.orchestrator.run.listeners import RunListener, SlotActivity
from sparring.orchestrator.run.plan import EpisodeId, Plan
from sparring.orchestrator.run.scheduler import Lease, Scheduler
from sparring.orchestrator.settings import RunSettings
from sparring.protos import evaluation_pb2 as pb
from sparring.protos.advice import FLAGS, Dialect, render
from sparring.protos.errors import SparringError
from sparring.protos.record import EpisodeRecord, Outcome


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
    ) -> None:
        self._plan = plan
        self._settings = settings
        self._journal = journal
        self._folder = folder
        self._listener = listener
        self._scheduler = scheduler
        self._dialect = dialect
        self._tasks = {(name, task.name): task for name, tasks in plan.tasks.items() for task in tasks}

    def result(self, worker: str, result: pb.Result) -> bool:
        """Deals with the result of a lease; returns False if it comes too late and changes nothing.

        Raises:
            SparringError: If it cannot be written.
        """
        lease = self._scheduler.holder(result.lease)
        record = EpisodeRecord.from_message(result)
        record = replace(record, error=render(record.error, self._dialect))
        verdict = self._scheduler.judge(result.lease, record)
        if lease is None or verdict == "stale":
            return False
        # The lease ends when all is written: what cannot be written is not played, and the run has not finished.
        row: EpisodeRow | None = None
        if record.outcome == "error":
            self._journal.note("error", record.error, episode=lease.episode, worker=worker)
        if verdict == "record":
            self._save_recording(lease.episode, result.recording)
            row = self._record(lease.episode, record, tries=1, film=result.video)
        self._scheduler.finish(result.lease, record)
        if verdict == "retry":
            self._listener.on_retry(lease.episode, record.error)
            return True
        # Before its steps are those of a recorded episode: they count once.
        self._listener.on_activity(SlotActivity(worker, lease.slot.number))
        self._tell(row)
        return True

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
            row = self._record(lease.episode, EpisodeRecord.failed("lost", given_up), tries=0)
        if self._scheduler.lose(lease.number) == "retry":
            self._listener.on_retry(lease.episode, reason)
        self._tell(row)

    def _record(self, episode: EpisodeId, record: EpisodeRecord, *, tries: int, film: bytes = b"") -> EpisodeRow | None:
        """Writes a row; returns it, unless there is one of this episode already.

        Args:
            episode: Of which it is.
            record: What came of it.
            tries: 1 if this was an attempt of the episode; 0 if it was lost, which is none.
            film: Of it, if one was made.
        """
        row = EpisodeRow(
            benchmark=episode.benchmark,
            task=episode.task,
            index=episode.index,
            seed=self._plan.seed_of(episode),
            attempts=self._scheduler.failed_attempts(episode) + tries,
            video=self._save_film(episode, record.outcome, film),
            **vars(record),
        )
        return row if self._journal.record(row) else None

    def _tell(self, row: EpisodeRow | None) -> None:
        if row is not None:
            self._listener.on_result(row)

    def _save_film(self, episode: EpisodeId, outcome: Outcome, film: bytes) -> str:
        if not film or (self._settings.output.video == "failures" and outcome != "failure"):
            return ""
        if self._settings.output.video_names == "lerobot":
            task = self._tasks[episode.benchmark, episode.task]
            name = f"{_file_name(task.group)}_{task.number}/eval_episode_{episode.index}.mp4"
        else:
            name = f"{_file_name(episode.task)}_{episode.index:04d}_{outcome}.mp4"
        _write(self._folder / "videos" / name, film)
        return f"videos/{name}"

    def _save_recording(self, episode: EpisodeId, recording: bytes) -> None:
        if recording and self._settings.output.record is not None:
            folder = self._settings.output.record / episode.benchmark / _file_name(episode.task)
            _write(folder / f"{episode.index:04d}.npz", recording)


def _file_name(task: str) -> str:
    return task.replace("/", "_").replace(":", "_")


def _write(path: Path, content: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as error:
        raise SparringError(f"{str(path)!r} cannot be written: {error.strerror}.") from error

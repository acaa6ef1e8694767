"""Whose errors end a run: those of workers that it has started; of others, those that nobody's results contradict."""

from __future__ import annotations

from collections.abc import Sequence

from sparring.orchestrator.coordination.workers import Workers
from sparring.orchestrator.run.error_limit import ErrorLimit
from sparring.orchestrator.run.errors import RunStopped
from sparring.orchestrator.run.scheduler import Lease
from sparring.protos.record import EpisodeRecord


class ErrorLimits:
    """Counts the errors of a run, and those of each worker that came by itself.

    Such a worker, if nothing but errors comes of what it plays, and one of them again and again, is sent away: it may
    be its own fault. It ends the run only where its word is believed and everybody else who is there for the benchmark
    has errors, too.

    Args:
        most: So many attempts that end in the same error are enough, while all end in errors; 0: no number is.
        workers: Who is there; None: nobody, the run is played in its own process.
    """

    def __init__(self, most: int, workers: Workers | None) -> None:
        self._most = most
        self._workers = workers
        self._run = ErrorLimit(most)
        self._let_in = ErrorLimit(most)
        """The same of all who came by themselves, together."""
        self._own: dict[str, ErrorLimit] = {}
        self._failing: set[str] = set()
        """Workers that came by themselves, and whose last attempts were errors."""

    def heard(self, worker: str, lease: Lease, record: EpisodeRecord, in_flight: Sequence[Lease]) -> None:
        """Hears what came of an attempt.

        Args:
            worker: Who has made it.
            lease: That has ended with it.
            record: What came of it.
            in_flight: All leases that had not ended, this one among them, in the order of lending.

        Raises:
            RunStopped: If nothing but errors comes of the run.
        """
        numbers = [other.number for other in in_flight]
        if self._workers is None or self._workers.is_launched(worker):
            self._run.heard(lease.episode, record, lease=lease.number, in_flight=numbers)
            return
        if record.outcome != "error":
            self._run.heard(lease.episode, record)
        self._heard_of_let_in(self._workers, worker, lease, record, in_flight)

    def left(self, worker: str) -> None:
        """Forgets a worker that is gone."""
        self._own.pop(worker, None)
        self._failing.discard(worker)

    def _heard_of_let_in(
        self, workers: Workers, worker: str, lease: Lease, record: EpisodeRecord, in_flight: Sequence[Lease]
    ) -> None:
        own = self._own.setdefault(worker, ErrorLimit(self._most))
        if record.outcome == "error":
            self._failing.add(worker)
        else:
            self._failing.discard(worker)
        numbers = [other.number for other in in_flight]
        of_all = _reached(self._let_in, lease, record, numbers)
        of_own = _reached(own, lease, record, [other.number for other in in_flight if other.slot.worker == worker])
        if of_all is not None and workers.is_believed(worker):
            others = set(workers.playing(lease.slot.benchmark)) - self._failing
            if not others:
                raise of_all
        if of_own is not None:
            workers.send_away(worker, f"nothing but errors comes of what it plays: {record.error}")


def _reached(limit: ErrorLimit, lease: Lease, record: EpisodeRecord, in_flight: Sequence[int]) -> RunStopped | None:
    """Tells a limit of an attempt, and returns what it says if that was too much."""
    try:
        limit.heard(lease.episode, record, lease=lease.number, in_flight=in_flight)
    except RunStopped as reached:
        return reached
    return None

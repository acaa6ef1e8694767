"""Whether a worker's word that a benchmark cannot be played ends the run, or is that worker's own affair."""

from __future__ import annotations

from sparring.orchestrator.coordination.workers import Workers
from sparring.protos import evaluation_pb2 as pb


class Refusals:
    """Weighs what workers cannot play against what others can.

    Args:
        workers: Who is there.
    """

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._refusers: dict[str, set[str]] = {}
        self._played: set[str] = set()
        """Benchmarks that somebody could play, in this execution."""

    def played(self, benchmark: str, result: pb.Result) -> None:
        """Hears that somebody could play a benchmark, and what came of it."""
        self._played.add(benchmark)
        if result.outcome not in (pb.OUTCOME_UNSPECIFIED, pb.OUTCOME_ERROR):
            self._workers.has_played(benchmark)

    def ends_run(self, worker: str, *, began: bool) -> bool:
        """Hears that a worker cannot play; returns whether that is the user's mistake, and the run to end with it.

        Its word is enough where nobody else is there to play that benchmark. Where others are, two must say so, and
        none may have played it. It never is with one that came by itself to a run that starts workers of its own: those
        will say so, too, if it is true; nor with one that came by itself after somebody has played. Where one could not
        even begin and others have played, it may be its machine's own affair, or for now.

        Args:
            worker: That says so.
            began: Whether it had slots to play with.
        """
        benchmark = self._workers.benchmark_of(worker)
        if not self._workers.is_believed(worker):
            return False
        refusers = self._refusers.setdefault(benchmark, set())
        refusers.add(worker)
        believed = {name for name in self._workers.playing(benchmark) if self._workers.is_believed(name)}
        if benchmark not in self._played:
            return not believed - refusers or len(refusers) > 1
        return began and not believed - refusers

    def newcomer_ends_run(self, benchmark: str, reason: str, *, launched: bool) -> bool:
        """Hears of one that may not join, because it has another program; returns the same of it.

        Args:
            benchmark: That it would play.
            reason: Why it may not.
            launched: Whether the run has started it itself.
        """
        self._workers.turned_away[benchmark] = reason
        others = self._workers.playing(benchmark)
        return self._workers.believes(benchmark, launched=launched) and not others and benchmark not in self._played

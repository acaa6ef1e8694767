"""Whether a worker's word that a benchmark cannot be played ends the run, or is that worker's own affair."""

from __future__ import annotations

from sparring.orchestrator.run.workers import Workers


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

    def played(self, benchmark: str) -> None:
        """Hears that somebody could play a benchmark."""
        self._played.add(benchmark)

    def ends_run(self, worker: str, benchmark: str) -> bool:
        """Hears that a worker cannot play; returns whether that is the user's mistake, and the run to end with it.

        Its word is enough where nobody else is there to play that benchmark. Where others are, two must say so, and
        none may have played it. It never is with one that came by itself to a run that starts workers of its own: those
        will say so, too, if it is true.
        """
        if not self._workers.is_believed(worker):
            return False
        refusers = self._refusers.setdefault(benchmark, set())
        refusers.add(worker)
        believed = {name for name in self._workers.playing(benchmark) if self._workers.is_believed(name)}
        return not believed - refusers or (len(refusers) > 1 and benchmark not in self._played)

    def newcomer_ends_run(self, benchmark: str, *, launched: bool) -> bool:
        """Returns the same of one that may not join, because it has another program, and has not played anything.

        Args:
            benchmark: That it would play.
            launched: Whether the run has started it itself.
        """
        others = self._workers.playing(benchmark)
        return self._workers.believes(launched=launched) and not others and benchmark not in self._played

"""The trackers of a run: each hears what comes of it, and deals with that in a thread of its own."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from sparring.orchestrator.display.title import title
from sparring.orchestrator.results.results import Results
from sparring.orchestrator.results.row import EpisodeRow
from sparring.orchestrator.results.several_protocols import planned_side_by_side
from sparring.orchestrator.run.listeners import RunEnd, RunListener, RunStart, SlotActivity
from sparring.orchestrator.settings import RunSettings
from sparring.orchestrator.trackers.base import TrackedRun, Tracker, check_library
from sparring.orchestrator.trackers.kept_ids import keep_id, kept_id
from sparring.orchestrator.trackers.numbers import TABLE, RunNumbers, closing_facts, final_numbers, table_rows
from sparring.orchestrator.trackers.quiet import quiet_thread
from sparring.orchestrator.trackers.registry import get_tracker
from sparring.orchestrator.trackers.secrets import without_secrets
from sparring.protos.advice import Hint
from sparring.protos.errors import SparringError, UsageError, unknown
from sparring.protos.tracebacks import Tracebacks, located, traceback_of

log = logging.getLogger(__name__)

CLOSING_SECONDS: Final = 120.0
"""For what a tracker has not dealt with when its run has ended: films are on their way."""
_MOST_WAITING: Final = 5_000
"""Beyond so many numbers that wait, those on the way are left out: a tracker may be slower than a run."""


@contextmanager
def tracking(settings: RunSettings) -> Iterator[Sequence[RunListener]]:
    """Makes the listeners of the trackers that settings name, and waits for them at the end, though not for ever.

    Raises:
        UsageError: If one is not known, its library is not installed, it has no such setting, or it cannot be used.
    """
    step = settings.tracking.track_step
    trackers = make_trackers(settings)
    for tracker in trackers:
        tracker.check(settings.output.folder)
    listeners = [TrackerListener(tracker, step) for tracker in trackers]
    try:
        yield listeners
    finally:
        for listener in listeners:
            listener.close()


def make_trackers(settings: RunSettings) -> list[Tracker[Any]]:
    """Makes the trackers that settings name, in the thread of whoever evaluates. Nothing is opened.

    Raises:
        UsageError: If one is not known, its library is not installed, or it has no such setting.
    """
    kinds = {name: get_tracker(name) for name in settings.tracking.trackers}
    for kind in kinds.values():
        check_library(kind)
    given = settings.tracking.track_arg
    known = {name for kind in kinds.values() for name in kind.settings.model_fields}
    for name in given if kinds else ():
        if name not in known:
            raise unknown(f"setting in {Hint('track_arg')}:", str(name), known)
    own = {name: [key for key in kind.settings.model_fields if key in given] for name, kind in kinds.items()}
    return [_make(kind, {key: given[key] for key in own[name]}) for name, kind in kinds.items()]


def _make(kind: type[Tracker[Any]], given: dict[str, Any]) -> Tracker[Any]:
    try:
        return kind(kind.settings(**given))
    except ValidationError as error:
        first = error.errors()[0]
        where = Hint("track_arg", str(first["loc"][0])) if first["loc"] else Hint("track_arg")
        raise UsageError(f"{where}: {first['msg']}, not {first['input']!r}.") from error


class TrackerListener(RunListener):
    """Tells a tracker what comes of a run. A run that comes to nothing is not opened there.

    Args:
        tracker: Who is told.
        step: Of the training that the policy is of; None: the run is no part of one.
    """

    def __init__(self, tracker: Tracker[Any], step: int | None) -> None:
        self._tracker = tracker
        self._step = step
        self._run: RunStart | None = None
        self._progress: RunNumbers | None = None
        self._opened = False
        self._is_open = False  # of the sender's thread
        self._sender = _Sender(tracker.name, self._give_up)

    def on_start(self, start: RunStart) -> None:
        self._run = start
        protocols = planned_side_by_side(start.plan, start.protocols)
        self._progress = RunNumbers(start.plan, start.recorded, protocols)
        self._sender.folder = start.folder

    def on_activity(self, activity: SlotActivity) -> None:
        if activity.steps:  # the policy is there, and fits
            self._open()

    def on_result(self, row: EpisodeRow) -> None:
        self._open()
        progress, tracker = self._progress, self._tracker
        assert progress is not None, "the run has begun"
        whole = progress.add(row)
        if self._step is None:  # of one training there are many runs, and their beginnings would all be in one place
            numbers, so_far = progress.numbers(row), progress.episodes
            self._sender.put(lambda: tracker.log(numbers, so_far), may_be_left_out=True)
        if whole:
            of_task, at = progress.task(row), self._at
            self._sender.put(lambda: tracker.log(of_task, at))

    def on_end(self, end: RunEnd) -> None:
        if not self._opened and not (end.results and end.results.rows):
            return
        self._open()
        results = end.results
        finished = end.error is None
        if finished and results is not None:
            at = self._at
            self._sender.put(lambda: self._tell(results, at))
        self._sender.put(lambda: self._finish(finished=finished))

    def close(self) -> None:
        """Waits until the tracker has dealt with everything, or its time is up; what is then left is told."""
        self._sender.close(CLOSING_SECONDS)

    @property
    def _at(self) -> int:
        assert self._progress is not None, "the run has begun"
        return self._progress.episodes if self._step is None else self._step

    def _open(self) -> None:
        if self._opened or self._run is None:
            return
        self._opened = True
        tracker, folder = self._tracker, self._run.folder
        settings = without_secrets(self._run.settings)
        policy = settings.get("policy") or f"policy at {settings.get('policy_server')}"
        run = TrackedRun(
            title=title(str(policy), self._run.plan),
            config={**settings, "tasks": list(self._run.plan.labels())},
            id=kept_id(folder, tracker.name),
            folder=folder,
            axis="episodes" if self._step is None else "step",
        )
        self._sender.start()
        self._sender.put(lambda: self._begin(run))

    def _begin(self, run: TrackedRun) -> None:
        known_as = self._tracker.open(run)
        self._is_open = True
        keep_id(run.folder, self._tracker.name, known_as)

    def _finish(self, *, finished: bool) -> None:
        self._is_open = False  # whatever comes of it, it is tried once
        self._tracker.close(finished=finished)

    def _give_up(self) -> None:
        """Closes a tracker that has raised, and has heard nothing since: its run would seem to go on for ever."""
        if self._is_open:
            with suppress(Exception, SystemExit):  # what it raised first has been told
                self._finish(finished=False)

    def _tell(self, results: Results, at: int) -> None:
        """Hands over what a finished run comes to."""
        tracker = self._tracker
        tracker.facts(closing_facts(results), at)
        tracker.log(final_numbers(results), at)
        tracker.table("eval/tasks", TABLE, table_rows(results), at)
        labels = {(benchmark, task.name): label for label, (benchmark, task) in results.plan.labels().items()}
        for row in _filmed_failures(results)[: tracker.own.films]:
            assert results.folder is not None
            name = f"{labels[row.benchmark, row.task]}/{row.index:04d}"
            caption = f"{row.id}: {row.outcome}, {row.steps} steps, return {row.reward_sum:.4g}, seed {row.seed}"
            tracker.film(f"failures/{name}", results.folder / row.video, caption, at)


def _filmed_failures(results: Results) -> list[EpisodeRow]:
    """Returns the failures that have films, the first of each task before the second of any."""
    if results.folder is None:
        return []
    folder = results.folder
    found = [row for row in results.rows if row.outcome == "failure" and row.video and (folder / row.video).is_file()]
    seen: dict[tuple[str, str], int] = {}
    rounds = []
    for row in found:
        seen[row.benchmark, row.task] = seen.get((row.benchmark, row.task), 0) + 1
        rounds.append(seen[row.benchmark, row.task])
    return [row for _, row in sorted(zip(rounds, found, strict=True), key=lambda pair: pair[0])]


class _Sender:
    """Calls a tracker from one thread; after the first that it raises, no more.

    Args:
        name: The tracker's.
        at_the_end: Called in that thread after everything else.
    """

    def __init__(self, name: str, at_the_end: Callable[[], None]) -> None:
        self._name = name
        self._at_the_end = at_the_end
        self._waiting: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._broken = False
        # A daemon: a tracker that hangs must not keep the program from ending.
        self._thread = threading.Thread(target=self._run, name=f"sparring-{name}", daemon=True)
        self.folder: Path | None = None
        """Where its tracebacks are kept."""

    def start(self) -> None:
        self._thread.start()

    def put(self, call: Callable[[], None], *, may_be_left_out: bool = False) -> None:
        if not may_be_left_out or self._waiting.qsize() < _MOST_WAITING:
            self._waiting.put(call)

    def close(self, seconds: float) -> None:
        if not self._thread.is_alive():
            return
        self._waiting.put(None)
        deadline = time.monotonic() + seconds
        try:
            self._thread.join(min(2.0, seconds))
            if self._thread.is_alive():
                log.info("waiting for the tracker %s, for at most %.0f s", self._name, seconds)
            self._thread.join(max(0.0, deadline - time.monotonic()))
        except KeyboardInterrupt:  # who is impatient has their results already
            seconds = 0.0
        if self._thread.is_alive():
            self._broken = True
            log.warning(
                "the tracker %s has not taken everything%s and is left alone; the results are whole without it",
                self._name,
                f" within {seconds:.0f} s" if seconds else "",
            )

    def _run(self) -> None:
        with quiet_thread():
            self._call_all()
            self._at_the_end()

    def _call_all(self) -> None:
        while (call := self._waiting.get()) is not None:
            if self._broken:
                continue
            try:
                call()
            except (Exception, SystemExit) as error:  # noqa: BLE001  # whoever only watches takes no run down
                self._broken = True
                log.warning("%s", self._told(error))

    def _told(self, error: BaseException) -> str:
        what = error.sentence if isinstance(error, SparringError) else f"{type(error).__name__}: {error}"
        sentence = f"the tracker {self._name} hears nothing more of this run, which goes on: {what}"
        if isinstance(error, SparringError):
            return sentence
        kept = ""
        if self.folder is not None:
            kept = Tracebacks(self.folder, logged=False).keep("tracker", sentence, traceback_of(error))
            kept = located(kept, self.folder)
        return f"{sentence} ({kept})" if kept else sentence

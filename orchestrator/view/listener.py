"""Tells a live page what happens in a run of this process, as it happens."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from sparring.orchestrator.display.title import status, title
from sparring.orchestrator.plan import EpisodeId, Plan
from sparring.orchestrator.results.row import EpisodeRow
from sparring.orchestrator.results.several_protocols import planned_side_by_side
from sparring.orchestrator.run.listeners import FilmCount, RunEnd, RunListener, RunStart, SlotActivity, SlotFrame
from sparring.orchestrator.serving.stats import ServerLoad
from sparring.orchestrator.view.model import RunFacts, RunModel

_LOOK_SECONDS: Final = 4.0
"""How long somebody is taken to look at a slot after the page has asked for what it sees."""


class LatestFrames:
    """The newest frame of each slot that somebody looks at."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._looked: dict[tuple[str, int], float] = {}
        self._newest: dict[tuple[str, int], SlotFrame] = {}

    def look(self, worker: str, slot: int) -> SlotFrame | None:
        """Hears that somebody looks at a slot, and returns the newest that is known of it."""
        with self._lock:
            self._looked[worker, slot] = time.monotonic()
            return self._newest.get((worker, slot))

    def watched(self, worker: str) -> Collection[int]:
        """Returns the slots of a worker that somebody looks at."""
        with self._lock:
            late = time.monotonic() - _LOOK_SECONDS
            for key in [key for key, at in self._looked.items() if at < late]:
                del self._looked[key]
                self._newest.pop(key, None)  # whoever looks again shall not see what is long over
            return [slot for name, slot in self._looked if name == worker]

    def add(self, frame: SlotFrame) -> None:
        """Keeps a frame, if somebody still looks."""
        with self._lock:
            if (frame.worker, frame.slot) in self._looked:
                self._newest[frame.worker, frame.slot] = frame

    def drop(self, activity: SlotActivity) -> None:
        """Forgets what a slot has shown of an episode that it does not play any more."""
        with self._lock:
            key = activity.worker, activity.slot
            found = self._newest.get(key)
            if found is not None and (found.task, found.index) != (activity.task, activity.index):
                del self._newest[key]


class LiveListener(RunListener):
    """Keeps a model up to date.

    Args:
        model: What the page shows.
        folder: The run's.
    """

    def __init__(self, model: RunModel, folder: Path) -> None:
        self._model = model
        self._folder = folder
        self._policy, self._metric = "", "success"
        self._protocols: Sequence[str] = ()
        self.frames = LatestFrames()

    def on_start(self, start: RunStart) -> None:
        self._policy = start.settings.get("policy") or f"policy at {start.settings.get('policy_server')}"
        self._metric = str(start.settings.get("metric", "success"))
        self._protocols = planned_side_by_side(start.plan, start.protocols)
        self._model.begin(self._facts(start.plan), start.recorded)
        self._model.status("running", "running now")

    def on_worker(self, worker: str, slots: int) -> None:
        self._model.worker(worker, slots)
        noun = "slot" if slots == 1 else "slots"
        self._model.note("worker", f"worker {worker} joined with {slots} {noun}" if slots else f"worker {worker} left")

    def on_activity(self, activity: SlotActivity) -> None:
        self._model.activity(activity)
        self.frames.drop(activity)

    def on_retry(self, episode: EpisodeId, reason: str) -> None:
        self._model.note("retry", reason, episode)

    def on_result(self, row: EpisodeRow) -> None:
        self._model.add(row)
        if row.outcome == "error":
            self._model.note("error", row.error, row.id)

    def on_film(self, row: EpisodeRow) -> None:
        self._model.add(row)

    def on_films(self, films: FilmCount) -> None:
        self._model.films(films)

    def on_stats(self, load: ServerLoad) -> None:
        self._model.server(load)

    def watched(self, worker: str) -> Collection[int]:
        return self.frames.watched(worker)

    def on_frame(self, frame: SlotFrame) -> None:
        self.frames.add(frame)

    def on_warning(self, sentence: str) -> None:
        self._model.note("warning", sentence)

    def on_end(self, end: RunEnd) -> None:
        if end.error is None:
            told = "finished"
            if end.results is not None and end.results.early_stop is not None and end.results.early_stop.stopped:
                # Episodes that were ahead of the last round are not in the results: the page has the same numbers.
                self._model.settle(self._facts(end.results.plan), end.results.rows)
                told = status(end.results)
            self._model.status("finished", told)
        else:
            self._model.note("error", f"the run has ended: {end.error}")
            self._model.status("unfinished", "unfinished: the same command goes on with it")

    def _facts(self, plan: Plan) -> RunFacts:
        return RunFacts(title(self._policy, plan), self._folder, plan, self._metric, True, self._protocols)

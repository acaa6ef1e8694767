"""Follows a run that another process makes, by what its folder says, and changes nothing there."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from sparring.orchestrator.display.title import results_title, status
from sparring.orchestrator.plan import EpisodeId
from sparring.orchestrator.results.document import RUN_FILE
from sparring.orchestrator.results.reading import FILE_NAME, JournalEvent, is_running, read_course
from sparring.orchestrator.results.row import EpisodeRow
from sparring.orchestrator.results.several_protocols import protocols_side_by_side
from sparring.orchestrator.serving.stats import ServerLoad
from sparring.orchestrator.view.model import RunFacts, RunModel
from sparring.orchestrator.view.shown_folder import load_shown
from sparring.protos.advice import FLAGS
from sparring.protos.errors import SparringError

_LEAST_SECONDS: Final = 1.0
_SHARE: Final = 10.0
"""A large journal takes long to read: so many times as long nothing is read after that."""
_KINDS: Final = {"error": "error", "lost": "retry", "warning": "warning", "missing": "warning", "film": "warning"}
"""What notes are called that the journal knows as events."""


class FolderWatch:
    """Keeps a model up to date with a folder, for as long as somebody asks.

    Args:
        model: What the page shows.
        folder: The run's.
        root: The folder that was named, if it is not that one.
    """

    def __init__(self, model: RunModel, folder: Path, root: Path | None = None) -> None:
        self.folder = folder
        self._root = root or folder
        self._model = model
        self._lock = threading.Lock()
        self._next = 0.0
        self._stamp: object = None
        self._events = 0

    def refresh(self) -> None:
        """Reads what is new, if anything is and it was not read a moment ago. It may take a while."""
        if time.monotonic() < self._next or not self._lock.acquire(blocking=False):
            return
        try:
            began = time.monotonic()
            stamp = self._looks_like()
            if stamp != self._stamp:
                self._read()
                self._stamp = stamp
            now = time.monotonic()
            self._next = now + max(_LEAST_SECONDS, _SHARE * (now - began))
        finally:
            self._lock.release()

    def _looks_like(self) -> object:
        """Returns something that is another if the folder has changed."""
        found = []
        for name in (RUN_FILE, FILE_NAME, f"{FILE_NAME}-wal"):
            try:
                stat = os.stat(self.folder / name)
                found.append((stat.st_mtime_ns, stat.st_size, stat.st_ino))
            except OSError:
                found.append((0, 0, 0))
        return tuple(found), is_running(self.folder)

    def _read(self) -> None:
        try:
            results = load_shown(self.folder, self._root)
            rules = protocols_side_by_side(results)
            about = RunFacts(results_title(results), self.folder, results.plan, results.metric, False, rules)
            course = read_course(self.folder)
        except SparringError as error:  # it is just starting, damaged, gone, or of a newer release
            self._model.status("unreadable", error.told(FLAGS))
            return
        rows = _in_order(results.rows, course.order)
        if self._model.shows(about):
            for row in rows:
                self._model.add(row)
        else:
            self._events = 0
            self._model.begin(about, rows)
        self._model.server(ServerLoad.noted(course.server_counts))
        self._tell(results.events)
        self._model.status(results.status, status(results))

    def _tell(self, events: Sequence[JournalEvent]) -> None:
        for event in events[self._events :]:
            self._model.note(_KINDS.get(event.kind, "warning"), event.message, event.episode, event.at)
        self._events = len(events)


def _in_order(rows: Sequence[EpisodeRow], order: Sequence[EpisodeId]) -> list[EpisodeRow]:
    """Returns rows in the order in which they were recorded; those that came while it was read are the last."""
    place = {episode: number for number, episode in enumerate(order)}
    return sorted(rows, key=lambda row: place.get(row.id, len(place)))

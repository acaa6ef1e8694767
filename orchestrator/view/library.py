"""The runs in some folders: found without following a link, known by a name that says nothing of where they are."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sparring.orchestrator.display.title import title
from sparring.orchestrator.results.document import RUN_FILE, RunDocument, read_document
from sparring.orchestrator.results.finite import finite
from sparring.orchestrator.results.reading import FILE_NAME, is_running, read_course
from sparring.orchestrator.view.shown_folder import is_linked
from sparring.protos.advice import FLAGS
from sparring.protos.errors import SparringError, UsageError

_DEPTH: Final = 4
"""Of folders in folders that are looked through."""
_MOST_FOLDERS: Final = 20_000
_MOST_RUNS: Final = 2_000
_AGAIN_SECONDS: Final = 3.0
"""A folder is not looked through more often."""
_FILES: Final = (RUN_FILE, FILE_NAME)


@dataclass(frozen=True)
class Entry:
    """A run in a list.

    Attributes:
        id: What it is known by in addresses.
        folder: Where it is.
        name: Its folder, seen from the one that was named.
        root: That one.
    """

    id: str
    folder: Path
    name: str
    root: Path


class Library:
    """The runs in folders, of which each is a run itself, or has runs in it.

    Args:
        folders: As they were named.

    Raises:
        UsageError: If one of them is none.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        for folder in folders:
            if not folder.is_dir():
                raise UsageError(
                    f"{str(folder)!r} is not a folder." if folder.exists() else f"there is no folder {str(folder)!r}."
                )
        self._folders = folders
        self._lock = threading.Lock()
        self._next = 0.0
        self._found: dict[str, Entry] = {}
        self._documents: dict[str, tuple[object, dict[str, Any]]] = {}
        self.cut = False
        """Whether there are more folders than are looked through."""

    @property
    def only(self) -> Entry | None:
        """The one run that was named, if it is one run that was named."""
        if len(self._folders) == 1 and _is_run(self._folders[0]):
            return next(iter(self.entries().values()), None)
        return None

    def entries(self) -> dict[str, Entry]:
        """Returns the runs that there are, by what they are known by."""
        with self._lock:
            if time.monotonic() >= self._next:
                began = time.monotonic()
                self._found = {entry.id: entry for entry in self._look()}
                now = time.monotonic()
                self._next = now + max(_AGAIN_SECONDS, 10 * (now - began))
            return self._found

    def get(self, id: str) -> Entry | None:
        """Returns a run by what it is known by; also one whose folder has gone since, but no link."""
        known = self._found.get(id) or self.entries().get(id)
        return None if known is None or is_linked(known.folder, known.root) else known

    def listed(self) -> list[dict[str, Any]]:
        """Returns what a list of runs says of each, ready for JSON."""
        return [self._line(entry) for entry in self.entries().values() if not is_linked(entry.folder, entry.root)]

    def _look(self) -> Iterator[Entry]:
        self.cut = False
        looked = runs = 0
        several = len(self._folders) > 1
        waiting = [(folder, folder, 0) for folder in reversed(self._folders)]
        while waiting:
            folder, root, depth = waiting.pop()
            looked += 1
            if looked > _MOST_FOLDERS or runs >= _MOST_RUNS:
                self.cut = True
                return
            if _is_run(folder) and not is_linked(folder, root):
                runs += 1
                inside = folder.relative_to(root)
                name = str(root / inside) if several or folder == root else str(inside)
                yield Entry(hashlib.sha256(os.fsencode(folder.absolute())).hexdigest()[:12], folder, name, root)
            elif depth < _DEPTH:
                waiting += [(inner, root, depth + 1) for inner in reversed(_folders_in(folder))]

    def _line(self, entry: Entry) -> dict[str, Any]:
        """Returns what run.json says of a run; it is read again when it has changed."""
        try:
            stat = os.stat(entry.folder / RUN_FILE)
            stamp: object = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        except OSError:
            stamp = None
        known = self._documents.get(entry.id)
        if known is None or known[0] != stamp:
            known = self._documents[entry.id] = (stamp, _told(entry))
        told = known[1]
        if told["status"] != "finished" and is_running(entry.folder):
            told = {**told, "status": "running", "problem": "", "recorded": _recorded(entry, told), "overall": None}
        elif told["status"] == "running":  # who was killed could not write that it is not
            told = {**told, "status": "unfinished"}
        return told


def _folders_in(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as found:
            names = sorted(
                entry.name for entry in found if entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".")
            )
    except OSError:  # it may not be read, or is gone
        return []
    return [folder / name for name in names]


def _is_run(folder: Path) -> bool:
    return any(os.path.isfile(folder / name) and not os.path.islink(folder / name) for name in _FILES)


def _told(entry: Entry) -> dict[str, Any]:
    about: dict[str, Any] = {"id": entry.id, "name": entry.name, "status": "unreadable", "title": "", "problem": ""}
    try:
        document = read_document(entry.folder)
        plan = document.plan()
    except SparringError as error:
        return {**about, "problem": error.told(FLAGS)}
    rate = document.overall
    policy = "a policy" if document.policy is None else document.policy.name
    about |= {"status": document.status, "title": title(policy, plan), "metric": document.metric}
    about |= {"planned": plan.count, "recorded": document.recorded, "began": _began(document)}
    about["errors"] = sum(found.errors for found in document.task_rates.values())
    about |= {"overall": None if rate is None else rate.model_dump(by_alias=True), "tasks": list(plan.labels())[:200]}
    return finite(about)  # type: ignore[no-any-return]


def _recorded(entry: Entry, told: dict[str, Any]) -> int | None:
    """Returns how many episodes a run has by now that goes on: run.json is written when it begins and when it ends."""
    try:
        return len(read_course(entry.folder).order)
    except SparringError:  # it is just starting, or ending
        return told.get("recorded")


def _began(document: RunDocument) -> str | None:
    return document.executions[-1].began if document.executions else None

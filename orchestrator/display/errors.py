"""What went wrong in a run, in full: errors by kind, attempts that were tried again, leases that were lost."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from sparring.orchestrator.display.notes import Notes
from sparring.orchestrator.display.screen import count
from sparring.orchestrator.plan import EpisodeId
from sparring.orchestrator.results.reading import JournalEvent
from sparring.orchestrator.results.results import Results
from sparring.orchestrator.results.row import EpisodeRow
from sparring.orchestrator.results.statistics import kind_of
from sparring.orchestrator.run.error_limit import same_for_all
from sparring.protos.tracebacks import located


def errors_list(results: Results) -> RenderableType:
    """Returns everything that went wrong, each with its sentence; what is the same for several is said once."""
    parts: list[tuple[str, str, Sequence[_Entry]]] = [
        (
            f"episodes that ended in an error of the kind {kind}",
            "red",
            [_Entry(f"{row.task} #{row.index} ({count(row.attempts, 'attempt')})", row.error, row.id) for row in rows],
        )
        for kind, rows in _by_kind(results).items()
    ]
    parts.append(("attempts that failed and were tried again", "yellow", _told(_retried(results))))
    parts.append(("leases that were lost", "yellow", _told(_lost(results))))
    lines: list[RenderableType] = []
    for title, style, entries in parts:
        if entries:
            lines += [Text()] if lines else []
            lines.append(Text(f"{title}: {len(entries)}", style=style))
            lines += [Text(f"  {line}") for line in _collapsed(entries, results.folder)]
    return Group(*lines) if lines else Text("no errors, and no lost leases")


@dataclass(frozen=True)
class _Entry:
    who: str
    sentence: str
    episode: EpisodeId | None


def _collapsed(entries: Sequence[_Entry], folder: Path | None) -> Iterator[str]:
    """Returns a line for each error, and a line more for all that had the same one."""
    same: defaultdict[str, list[_Entry]] = defaultdict(list)
    for entry in entries:
        same[same_for_all(entry.sentence, entry.episode)].append(entry)
    for alike in same.values():
        first = alike[0]
        said = _indented(first.sentence if folder is None else located(first.sentence, folder))
        if len(alike) == 1:
            yield f"{first.who}: {said}"
        else:
            yield f"the same error, {len(alike)} times: {said}"
            yield f"  {', '.join(entry.who for entry in alike)}"


def rows_in_short(results: Results, most: int) -> list[str]:
    """Returns a line for each of the errors that episodes ended in, the most frequent first; no more than so many."""
    notes = Notes()
    for row in results.rows:
        if row.outcome == "error":
            notes.add(row.id, row.error, attempts=row.attempts)
    return _in_short(notes, results.folder, most)


def attempts_in_short(results: Results, most: int) -> list[str]:
    """Returns a line for each error that attempts have ended in, the most frequent first; no more than so many."""
    notes = Notes()
    for event in results.events:
        if event.kind == "error" and event.episode is not None:
            notes.add(event.episode, event.message)
    return _in_short(notes, results.folder, most)


def _in_short(notes: Notes, folder: Path | None, most: int) -> list[str]:
    found = sorted(notes.latest(sys.maxsize), key=lambda note: -len(note.episodes))
    lines = []
    for note in found[:most]:
        said = note.sentence.splitlines()[0] if note.sentence else ""
        lines.append(f"{said if folder is None else located(said, folder)} - {note.who}")
    return lines


def errors_json(results: Results) -> dict[str, Any]:
    """Returns everything that went wrong, for a program."""
    return {
        "errors": {
            kind: [
                {
                    "benchmark": row.benchmark,
                    "task": row.task,
                    "index": row.index,
                    "attempts": row.attempts,
                    "error": row.error,
                }
                for row in rows
            ]
            for kind, rows in _by_kind(results).items()
        },
        "retried": [_json(event) for event in _retried(results)],
        "lost": [_json(event) for event in _lost(results)],
    }


def _by_kind(results: Results) -> dict[str, list[EpisodeRow]]:
    kinds: defaultdict[str, list[EpisodeRow]] = defaultdict(list)
    for row in results.rows:
        if row.outcome == "error":
            kinds[kind_of(row)].append(row)
    return dict(sorted(kinds.items()))


def _lost(results: Results) -> list[JournalEvent]:
    return [event for event in results.events if event.kind == "lost"]


def _retried(results: Results) -> list[JournalEvent]:
    """Returns failed attempts, but for those that an episode ended with."""
    failed = [event for event in results.events if event.kind == "error"]
    ended = {row.id for row in results.rows if row.outcome == "error" and row.error_kind != "lost"}
    last: dict[EpisodeId | None, JournalEvent] = {event.episode: event for event in failed}
    return [event for event in failed if not (event.episode in ended and last[event.episode] is event)]


def _told(events: Sequence[JournalEvent]) -> list[_Entry]:
    told = []
    for event in events:
        episode = "" if event.episode is None else f" {event.episode.task} #{event.episode.index}"
        worker = f" on {event.worker}" if event.worker else ""
        who = f"{datetime.fromtimestamp(event.at):%Y-%m-%d %H:%M:%S}{episode}{worker}"
        told.append(_Entry(who, event.message, event.episode))
    return told


def _json(event: JournalEvent) -> dict[str, Any]:
    episode = event.episode
    return {
        "at": event.at,
        "benchmark": None if episode is None else episode.benchmark,
        "task": None if episode is None else episode.task,
        "index": None if episode is None else episode.index,
        "worker": event.worker,
        "message": event.message,
    }


def _indented(sentence: str) -> str:
    return sentence.replace("\n", "\n    ")

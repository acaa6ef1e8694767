"""Salvage: what can be read of a damaged journal, in a new one. The damaged file is kept."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any, Final

from sparring.orchestrator.plan import EpisodeId
from sparring.orchestrator.results.damage import COMPUTED, FILE_NAME, DamagedJournal
from sparring.orchestrator.results.document import RunDocument, read_document
from sparring.orchestrator.results.files import open_inside
from sparring.orchestrator.results.journal import locked, write_actions, write_row
from sparring.orchestrator.results.migrations import RENAMED_NOTES, SCHEMA_VERSION, prepare
from sparring.orchestrator.results.pages import StoredRow, Value, stored_rows
from sparring.orchestrator.results.reading import read_journal
from sparring.orchestrator.results.row import CHECKSUM, COLUMNS, EpisodeRow, is_sound
from sparring.protos.action_list import UnreadableActions, unpack
from sparring.protos.errors import SparringError, UsageError
from sparring.protos.trace import Trace

_NEW: Final = "journal-salvaged.sqlite"
_FEWEST_COLUMNS: Final = 19
"""Of an episode, in the journals of release 0.1.0."""


@dataclass(frozen=True)
class Salvage:
    """What came of it.

    Attributes:
        saved: Episodes that the new journal has.
        again: Episodes that a resumed run plays, because they have no outcome of the policy's own.
        planned: Episodes of the plan.
        kept: Where the damaged journal is now; None if it was whole, and nothing was done.
    """

    saved: int
    again: int
    planned: int
    kept: Path | None


@dataclass
class _Found:
    """What could be read."""

    rows: dict[EpisodeId, EpisodeRow] = field(default_factory=dict)
    events: dict[int, tuple[Value, ...]] = field(default_factory=dict)
    makers: dict[int, tuple[Value, ...]] = field(default_factory=dict)
    meta: dict[str, str] = field(default_factory=dict)
    actions: dict[EpisodeId, tuple[bytes, bytes]] = field(default_factory=dict)
    """With their traces; journals before version 8 have none of these."""


def salvage(folder: Path) -> Salvage:
    """Makes a new journal of what can be read of a damaged one.

    Raises:
        UsageError: If the folder is not that of a run, a run is writing there, or there is no journal.
        SparringError: If the new journal cannot be written.
    """
    document = read_document(folder)
    path = folder / FILE_NAME
    try:
        with closing(locked(folder)):
            whole = _whole(folder)
            if whole is not None:
                return _report(whole, document, None)
            found = _read(path, document)
            _write(folder / _NEW, found, document)
            kept = _exchange(path, folder / _NEW)
            return _report(list(found.rows.values()), document, kept)
    except (OSError, sqlite3.Error) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise SparringError(f"what was read of {str(path)!r} cannot be written beside it: {reason}.") from error


def _whole(folder: Path) -> Sequence[EpisodeRow] | None:
    """Returns the rows of a journal that is not damaged; None if it is."""
    path = folder / FILE_NAME
    log = path.with_name(f"{FILE_NAME}-wal")
    sizes = [file.stat().st_size for file in (path, log) if file.exists()]
    if not any(sizes):
        gone = "is empty" if sizes else "is not there"
        raise UsageError(f"there is nothing to save: {str(path)!r} {gone}. Put it back from a copy.")
    if path.exists() and path.stat().st_size:
        try:
            return read_journal(folder, locked_by_us=True).rows
        except DamagedJournal:
            return None
    return None


def _read(path: Path, document: RunDocument) -> _Found:
    stored = list(stored_rows(path))
    plan = document.plan()
    seeds = {episode: plan.seed_of(episode) for episode in plan.ids()}
    layouts = [*_layouts(stored), (*COLUMNS, CHECKSUM)]
    found = _Found()
    for row in stored:
        if len(row.values) >= _FEWEST_COLUMNS:
            episode = _episode(row, layouts)
            before = None if episode is None else found.rows.get(episode.id)
            if episode is None or seeds.get(episode.id) != episode.seed:
                continue
            if before is None or before.outcome == "error":  # an outcome is final, wherever else an older row lies
                found.rows[episode.id] = episode
        elif _are(row, (float, str, None, None, None, None, str)):
            found.events[row.number] = row.values
        elif _are(row, (None, str, str, str)) and _is_json(row.values[3]):
            found.makers[row.number] = row.values[1:]
        elif _are(row, (str, str, int, bytes)) or _are(row, (str, str, int, bytes, bytes)):
            benchmark, task, index, content, *trace = row.values
            found.actions[EpisodeId(str(benchmark), str(task), int(index))] = (content, trace[0] if trace else b"")  # type: ignore[arg-type, assignment]
        elif _are(row, (str, str)) and _is_json(row.values[1]):
            key, value = map(str, row.values)
            found.meta[RENAMED_NOTES.get(key, key)] = value
    found.actions = {episode: kept for episode, kept in found.actions.items() if _fits(found, episode, *kept)}
    return found


def _fits(found: _Found, episode: EpisodeId, content: bytes, trace: bytes) -> bool:
    """Returns whether actions and their trace are whole, and as many as their episode had steps."""
    row = found.rows.get(episode)
    try:
        if row is None or row.outcome == "error" or len(unpack(content)) != row.steps:
            return False
        return not trace or Trace.unpack(trace).steps == row.steps
    except UnreadableActions:
        return False


def _episode(row: StoredRow, layouts: Sequence[Sequence[str]]) -> EpisodeRow | None:
    """Makes an episode of a stored row, if it is whole."""
    for layout in layouts:
        cells: dict[str, Any] = dict(zip(layout, row.values, strict=False))  # it may be older than the last columns
        if len(row.values) <= len(layout) and is_sound(cells):
            return EpisodeRow.from_cells(cells)
    return None


def _layouts(stored: Sequence[StoredRow]) -> Iterator[tuple[str, ...]]:
    """Yields the columns of episodes, as the file itself says them."""
    for row in stored:
        if len(row.values) != 5 or row.values[1] != "episodes":
            continue
        sql = str(row.values[4])
        if sql.startswith("CREATE TABLE episodes") and not COMPUTED.search(sql):
            try:
                with closing(sqlite3.connect(":memory:")) as connection:
                    connection.execute(sql)
                    yield tuple(name for _, name, *_ in connection.execute("PRAGMA table_info(episodes)"))
            except sqlite3.Error:
                continue


def _are(row: StoredRow, types: Sequence[type | None]) -> bool:
    if len(row.values) != len(types):
        return False
    return all(
        kind is None or isinstance(value, (int, float) if kind is float else kind)
        for kind, value in zip(types, row.values, strict=True)
    )


def _is_json(text: Value) -> bool:
    try:
        json.loads(str(text))
    except ValueError:
        return False
    return True


def _write(path: Path, found: _Found, document: RunDocument) -> None:
    _remove(path)
    meta: Mapping[str, str] = {
        **found.meta,
        # The journal is this run's, whether or not that could be read: run.json lies beside it.
        **({} if document.id is None else {"run": json.dumps(document.id)}),
    }
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        prepare(connection, str(path.parent))
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", [*meta.items(), _SCHEMA])
        connection.executemany("INSERT OR IGNORE INTO makers VALUES (?, ?, ?, ?)", _numbered(found.makers))
        events = [event for _, event in sorted(found.events.items())]
        connection.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?)", events)
        for row in found.rows.values():
            write_row(connection, row)
            write_actions(connection, row.id, *found.actions.get(row.id, (b"", b"")))
        connection.execute("COMMIT")


_SCHEMA: Final = ("schema", json.dumps(SCHEMA_VERSION))


def _numbered(values: Mapping[int, tuple[Value, ...]]) -> list[tuple[Value, ...]]:
    return [(number, *rest) for number, rest in values.items()]


def _exchange(path: Path, new: Path) -> Path:
    """Puts the new journal in the place of the damaged one, which is kept; returns where that is."""
    kept = _free_name(path)
    for suffix in ("", "-wal"):
        if path.with_name(path.name + suffix).exists():
            _copy(path.with_name(path.name + suffix), kept.with_name(kept.name + suffix))
    for file in (new, kept):
        if file.exists():
            with file.open("rb") as content:
                os.fsync(content.fileno())
    # Before the new journal is there: SQLite would take it for that one's.
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    new.replace(path)
    return kept


def _free_name(path: Path) -> Path:
    number = 1
    while True:
        name = path.with_name(f"journal-damaged{'' if number == 1 else f'-{number}'}.sqlite")
        if not os.path.lexists(name) and not os.path.lexists(name.with_name(f"{name.name}-wal")):
            return name
        number += 1


def _copy(source: Path, target: Path) -> None:
    """Copies a file to where nothing lies yet, not even a link that leads nowhere."""
    with open_inside(source.parent, PurePath(source.name)) as content, target.open("xb") as copy:
        shutil.copyfileobj(content, copy)
    shutil.copystat(source, target, follow_symlinks=False)


def _remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm", "-journal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _report(rows: Sequence[EpisodeRow], document: RunDocument, kept: Path | None) -> Salvage:
    planned = len(document.plan().ids())
    return Salvage(len(rows), planned - sum(row.outcome != "error" for row in rows), planned, kept)

"""The journal: the only truth about a run. One writer, one row per finished episode, whole after any exit."""

from __future__ import annotations

import fcntl
import json
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import IO, Any, Final

from sparring.orchestrator.machine.shared_storage import shared_storage
from sparring.orchestrator.plan import EpisodeId
from sparring.orchestrator.results.damage import (
    FILE_NAME,
    LOCK_NAME,
    DamagedJournal,
    check_files,
    check_there,
    check_whole,
    is_damage,
)
from sparring.orchestrator.results.files import open_to_lock
from sparring.orchestrator.results.finite import finite
from sparring.orchestrator.results.makers import Maker, NewMakers, makers_of
from sparring.orchestrator.results.migrations import prepare
from sparring.orchestrator.results.reading import JournalEvent, actions_of, events_of, row_of, rows_of, trace_of
from sparring.orchestrator.results.row import CHECKSUM, EpisodeRow, checksum
from sparring.protos.advice import Hint
from sparring.protos.episode_rules import EpisodeRules, meaning
from sparring.protos.errors import SparringError, UsageError

_BUSY_SECONDS: Final = 10.0
_LOCK_SECONDS: Final = 0.5
_EPISODES: Final = "episodes"
"""The one part of a plan's identity that may grow: an episode's seed follows from its own number alone."""


class JournalError(SparringError):
    """The journal cannot be written. What it holds is whole."""


class Journal:
    """The journal of one output folder; holds a lock on it until closed.

    Args:
        folder: The output folder; made if it is not there.

    Raises:
        UsageError: If another run is writing there, or it holds a journal that is damaged, that this release cannot
            read, or that was there and is not any more.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE_NAME
        self._new_makers = NewMakers()
        with _explained(self.path):
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = locked(folder)
            try:
                check_there(folder)
            except BaseException:
                self._lock.close()
                raise
            self._connection = sqlite3.connect(self.path, timeout=_BUSY_SECONDS, isolation_level=None)
            try:
                self._prepare(folder)
            except BaseException:
                self.close()
                raise

    def _prepare(self, folder: Path) -> None:
        # Readers beside a write-ahead log share memory with the writer, which machines do not.
        mode = "DELETE" if shared_storage(folder) else "WAL"
        self._connection.execute(f"PRAGMA journal_mode={mode}")
        self._connection.execute("PRAGMA synchronous=FULL")  # a row that was reported survives a power cut
        check_whole(self._connection)
        prepare(self._connection, str(folder))

    def meta(self, key: str) -> Any:
        """Returns a remembered value, or None."""
        with _reading(self.path):
            found = self._connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
            return None if found is None else json.loads(found[0])

    def set_meta(self, key: str, value: Any) -> None:
        """Remembers a value."""
        with _explained(self.path):
            self._connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, _json(value)))

    def claim(self, identity: Mapping[str, Any], *, accept_changes: bool = False) -> None:
        """Ties the folder to a plan the first time, and checks that it is the same plan every other time.

        More episodes of the same plan are the same plan: those that there are stay what they are.

        Args:
            identity: Of the plan.
            accept_changes: Whether the policy's arguments and weights and the benchmarks' settings may be others now.

        Raises:
            UsageError: If it is another plan's, with the difference.
        """
        self.check(identity, accept_changes=accept_changes)
        recorded = self.meta("identity") or {}
        if {**recorded, **identity} != recorded:  # new, or with more episodes, or changed as was accepted
            self.set_meta("identity", {**recorded, **identity})

    def check(self, identity: Mapping[str, Any], *, accept_changes: bool = False) -> None:
        """Checks what is known of a plan against the plan that the folder is tied to, if it is.

        Args:
            identity: Of the plan, or a part of it.
            accept_changes: As for `claim`.

        Raises:
            UsageError: If it is another plan's, with the difference.
        """
        check_identity(self.path.parent, self.meta("identity"), identity, accept_changes=accept_changes)

    def record(self, row: EpisodeRow, actions: bytes = b"", trace: bytes = b"") -> bool:
        """Writes a finished episode. False if it was recorded before: a late duplicate changes nothing.

        An error is not an outcome of the policy; a later attempt may replace it.

        Args:
            row: What came of it.
            actions: That were executed, packed, if they are kept: written with the row, or neither is.
            trace: What came of every step, packed, if it is kept with the actions.

        Raises:
            JournalError: If it cannot be written.
        """
        with _explained(self.path):
            with _at_once(self._connection):
                self._new_makers.write(self._connection)
                recorded = write_row(self._connection, row)
                if recorded:
                    write_actions(self._connection, row.id, actions, trace)
            self._new_makers.forget()
            return recorded

    def filmed(self, row: EpisodeRow) -> None:
        """Writes down where the film of an episode is, which is recorded already.

        Raises:
            JournalError: If it cannot be written.
        """
        where = (row.video, checksum(row.cells()), row.benchmark, row.task, row.index)
        with _explained(self.path):
            self._connection.execute(
                'UPDATE episodes SET video = ?, checksum = ? WHERE benchmark = ? AND task = ? AND "index" = ?', where
            )

    def row(self, episode: EpisodeId) -> EpisodeRow:
        """Returns the row of an episode that is recorded."""
        with _reading(self.path):
            return row_of(self._connection, episode)

    def actions(self, episode: EpisodeId) -> bytes:
        """Returns the packed actions of an episode; nothing, if none are kept."""
        with _reading(self.path):
            return actions_of(self._connection, episode)

    def trace(self, episode: EpisodeId) -> bytes:
        """Returns the packed trace of an episode; nothing, if none is kept."""
        with _reading(self.path):
            return trace_of(self._connection, episode)

    def note(self, kind: str, message: str, *, episode: EpisodeId | None = None, worker: str = "") -> None:
        """Writes down something that happened on the way: a lost lease, a failed attempt, a respawned worker.

        Raises:
            JournalError: If it cannot be written.
        """
        who = (episode.benchmark, episode.task, episode.index) if episode else (None, None, None)
        with _explained(self.path):
            self._connection.execute(
                "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?)", (time.time(), kind, *who, worker, message)
            )

    def maker(self, maker: Maker) -> int:
        """Returns the number that rows refer to a maker by; a new one is written with the next row.

        Raises:
            JournalError: If it cannot be read.
        """
        with _explained(self.path):
            return self._new_makers.number_of(self._connection, maker)

    def makers(self) -> dict[int, Maker]:
        """Returns who has made the rows, by the numbers that rows refer to them by."""
        with _reading(self.path):
            return makers_of(self._connection)

    def rows(self) -> list[EpisodeRow]:
        """Returns all finished episodes, sorted by task and index."""
        with _reading(self.path):
            return rows_of(self._connection)

    def judged(self) -> set[EpisodeId]:
        """Returns the episodes with an outcome of the policy's own: they are not played again."""
        with _explained(self.path):
            found = self._connection.execute(
                "SELECT benchmark, task, \"index\" FROM episodes WHERE outcome != 'error'"
            ).fetchall()
        return {EpisodeId(*episode) for episode in found}

    def failed_attempts(self) -> dict[EpisodeId, int]:
        """Returns how many attempts have failed, of each episode that has any."""
        with _explained(self.path):
            found = self._connection.execute(
                "SELECT benchmark, task, \"index\", count(*) FROM events WHERE kind = 'error' AND task IS NOT NULL "
                'GROUP BY benchmark, task, "index"'
            ).fetchall()
        return {EpisodeId(*episode): count for *episode, count in found}

    def events(self) -> list[JournalEvent]:
        """Returns what happened on the way, in its order."""
        with _reading(self.path):
            return events_of(self._connection)

    def close(self) -> None:
        """Lets go of the folder."""
        self._connection.close()
        self._lock.close()


def check_identity(
    folder: Path, recorded: Mapping[str, Any] | None, identity: Mapping[str, Any], *, accept_changes: bool = False
) -> None:
    """Checks what is known of a plan against the plan that a folder is tied to.

    Args:
        folder: The output folder.
        recorded: The identity that its journal has; None: it is tied to none.
        identity: Of the plan, or a part of it.
        accept_changes: As for `Journal.claim`.

    Raises:
        UsageError: If it is another plan's, with the difference.
    """
    if recorded is None:
        return
    # What the release that wrote this did not know yet was as it is by default.
    recorded = {
        "policy_seeds": 1,
        "protocols": {},
        **{rule.name: rule.default for rule in fields(EpisodeRules)},
        **recorded,
    }
    recorded, given = finite(recorded), json.loads(_json(identity))
    _check_episodes(folder, recorded.get(_EPISODES), given.pop(_EPISODES, None))
    fixed, changeable = _without_changeable(recorded, given)
    if any(recorded.get(key) != fixed[key] for key in fixed) or (changeable and not accept_changes):
        different = [key for key in given if recorded.get(key) != given[key]]
        lines = "\n".join(f"  {line}" for key in different for line in _told(key, recorded.get(key), given[key]))
        only = all(recorded.get(key) == fixed[key] for key in fixed)
        accept = f", or go on with {Hint('accept_changes')} (the results will say so)" if only else ""
        raise UsageError(
            f"{str(folder)!r} holds the results of another plan:\n{lines}\nGive another {Hint('output')}{accept}."
        )


def _check_episodes(folder: Path, there: int | None, now: int | None) -> None:
    if there is not None and now is not None and now < there:
        raise UsageError(
            f"{str(folder)!r} is a run of {there} episodes per task, and {now} are asked for now: episodes can be "
            f"added, not taken away. Give {Hint(_EPISODES, value=there)} or more, or another {Hint('output')}."
        )


def write_row(connection: sqlite3.Connection, row: EpisodeRow) -> bool:
    """Writes a row with its checksum; returns False if there is one of its episode already that is not an error."""
    cells = row.cells()
    cells[CHECKSUM] = checksum(cells)
    names, marks = ", ".join(f'"{c}"' for c in cells), ", ".join("?" for _ in cells)
    updates = ", ".join(f'"{c}" = excluded."{c}"' for c in cells)
    cursor = connection.execute(
        f'INSERT INTO episodes ({names}) VALUES ({marks}) ON CONFLICT (benchmark, task, "index") '
        f"DO UPDATE SET {updates} WHERE episodes.outcome = 'error'",
        tuple(cells.values()),
    )
    return cursor.rowcount == 1


def write_actions(connection: sqlite3.Connection, episode: EpisodeId, actions: bytes, trace: bytes = b"") -> None:
    """Writes the packed actions of an episode, and its trace, in the place of those that there were, if any."""
    who = (episode.benchmark, episode.task, episode.index)
    if actions or trace:
        connection.execute(
            'INSERT OR REPLACE INTO actions (benchmark, task, "index", content, trace) VALUES (?, ?, ?, ?, ?)',
            (*who, actions, trace),
        )
    else:
        connection.execute('DELETE FROM actions WHERE benchmark = ? AND task = ? AND "index" = ?', who)


@contextmanager
def _at_once(connection: sqlite3.Connection) -> Iterator[None]:
    """Writes all that is inside, or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # a full disk may have ended it
            connection.execute("ROLLBACK")
        raise


def _json(value: Any) -> str:
    return json.dumps(finite(value), allow_nan=False)


def locked(folder: Path) -> IO[str]:
    """Takes the lock of an output folder, which is held until it is closed.

    Raises:
        UsageError: If a run is writing there, or the lock or the journal is something else than a file.
    """
    check_files(folder)
    lock = open_to_lock(folder / LOCK_NAME)
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        except BlockingIOError:
            if time.monotonic() < deadline:  # somebody may only be asking whether a run is going (reading.is_running)
                time.sleep(0.02)
                continue
            lock.close()
            raise UsageError(
                f"another run is writing to {str(folder)!r}; wait for it, or give another {Hint('output')}."
            ) from None


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    with _explained(path):
        try:
            yield
        except (ValueError, TypeError) as error:  # what stands there is not what is written there
            raise DamagedJournal(path, error) from error


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.DatabaseError as error:
        if is_damage(error):
            raise DamagedJournal(path, error) from error
        raise JournalError(
            f"the journal {str(path)!r} cannot be written: {error}. Is the disk full or read-only?"
        ) from error
    except OSError as error:
        raise JournalError(
            f"the output folder {str(path.parent)!r} cannot be written: {error.strerror}. Name another with "
            f"{Hint('output')}."
        ) from error


def _without_changeable(recorded: Mapping[str, Any], given: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """Returns what is given with what may change put back as it was recorded, and whether that made a difference."""
    fixed = dict(given)
    if "benchmark_arg" in fixed:
        fixed["benchmark_arg"] = recorded.get("benchmark_arg")
    there, now = recorded.get("policy") or {}, given.get("policy") or {}
    if there and now:
        fixed["policy"] = {**now, **{key: there.get(key) for key in ("arguments", "checkpoint_sha256") if key in now}}
    return fixed, fixed != given


def _told(name: str, there: Any, now: Any) -> Iterator[str]:
    """Says in which parts two values differ, however large they are as a whole."""
    if isinstance(there, dict) and isinstance(now, dict):
        for key in {**there, **now}:
            if there.get(key) != now.get(key):
                yield from _told(f"{name} {key}", there.get(key), now.get(key))
    elif isinstance(there, list) and isinstance(now, list):
        only_there, only_now = [i for i in there if i not in now], [i for i in now if i not in there]
        parts = [
            f"{_some(items)} {where}" for items, where in ((only_there, "only there"), (only_now, "only now")) if items
        ]
        yield f"{name}: {', '.join(parts) or 'in another order'}"
    else:
        yield f"{name}: {_shown(name, there)} there, {_shown(name, now)} now"


def _shown(name: str, value: Any) -> str:
    return "not given" if value is None else json.dumps(value) + meaning(name.split()[-1], value)


def _some(items: list[Any], most: int = 4) -> str:
    shown = ", ".join(str(item) for item in items[:most])
    return f"{shown} and {len(items) - most} more" if len(items) > most else shown

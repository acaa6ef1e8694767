"""Damaged journals, told from whole ones, from empty ones and from those of another run."""

from __future__ import annotations

import re
import shlex
import sqlite3
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from sparring.orchestrator.results.document import RUN_FILE, RunDocument, read_document
from sparring.orchestrator.results.row import is_sound
from sparring.protos.advice import Hint
from sparring.protos.errors import UsageError

FILE_NAME: Final = "journal.sqlite"
LOCK_NAME: Final = "journal.lock"

_BESIDE: Final = ("-wal", "-shm", "-journal")
"""What SQLite has beside a file."""

_DAMAGE: Final = ("malformed", "not a database", "damaged", "decode to UTF-8", "file is encrypted")
"""What SQLite, or `check_whole`, says about a file that is not what was written."""


_TABLES: Final = ("meta", "episodes", "events", "actions", "makers")
COMPUTED: Final = re.compile(r"\b(AS|CHECK|GENERATED|VIRTUAL|COLLATE|REFERENCES)\b", re.IGNORECASE)
"""What the SQL of a table has where something else than its rows is computed."""


class DamagedJournal(UsageError):
    """The journal is not what was written. What can be read of it can be saved."""

    def __init__(self, path: Path, reason: object) -> None:
        super().__init__(
            f"{str(path)!r} is not a journal, or it is damaged ({_reason(reason)}). Save what can be read of "
            f"it with: sparring salvage {shlex.quote(str(path.parent))} - or begin anew with another {Hint('output')}."
        )


def _reason(reason: object) -> str:
    return str(reason).removeprefix("it is damaged: ").rstrip(".")


def is_damage(error: BaseException) -> bool:
    """Returns whether an error of SQLite means that the file is damaged, and not that it cannot be got at."""
    return isinstance(error, sqlite3.DatabaseError) and any(word in str(error) for word in _DAMAGE)


def check_schema(connection: sqlite3.Connection) -> None:
    """Checks that a journal has the tables of one, and nothing beside that SQLite would compute while it reads.

    It may be anybody's: views, triggers, columns and checks that are computed can take hours, and look like rows.

    Raises:
        sqlite3.DatabaseError: If it has.
    """
    connection.execute("PRAGMA trusted_schema = OFF")
    found = connection.execute("SELECT type, name, sql FROM sqlite_master").fetchall()
    for kind, name, sql in found:
        plain = kind == "table" and name in _TABLES and not COMPUTED.search(str(sql))
        if not plain and not (kind == "index" and sql is None):
            raise sqlite3.DatabaseError(f"it is damaged: it has the {kind} {name!r}, which no journal has so")


def check_whole(connection: sqlite3.Connection) -> None:
    """Checks a journal: its pages, and each row against its checksum.

    Raises:
        sqlite3.DatabaseError: If it is damaged, with the first thing that is wrong.
    """
    (said,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if said != "ok":
        problem = str(said).splitlines()[-1]
        raise sqlite3.DatabaseError(f"it is damaged: {problem}")
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if "episodes" not in tables:
        return
    cursor = connection.execute("SELECT * FROM episodes")
    names = [column for column, *_ in cursor.description]
    for values in cursor:
        cells = dict(zip(names, values, strict=True))
        if not is_sound(cells):
            which = f"{cells.get('benchmark')}/{cells.get('task')}#{cells.get('index')}"
            raise sqlite3.DatabaseError(f"it is damaged: the row of {which} is not what was recorded")


def document_of(folder: Path) -> RunDocument | None:
    """Returns what run.json says; None if there is none, or it cannot be read, which others will say."""
    try:
        return read_document(folder)
    except UsageError:
        return None


def check_files(folder: Path) -> None:
    """Checks that what lies in the place of a journal is a file of this folder.

    A pipe would be waited for, a device has no end, and a link would have a file elsewhere written to.

    Raises:
        UsageError: If it is something else.
    """
    for name in (FILE_NAME, *(f"{FILE_NAME}{suffix}" for suffix in _BESIDE), LOCK_NAME):
        with suppress(FileNotFoundError):
            if not stat.S_ISREG((folder / name).lstat().st_mode):
                raise UsageError(
                    f"{str(folder / name)!r} is no regular file, so no run has written it. Take it away, or give "
                    f"another {Hint('output')}."
                )


def check_there(folder: Path) -> None:
    """Checks that a folder with a run has its journal, before anybody makes an empty one.

    Raises:
        UsageError: If it has not.
    """
    path = folder / FILE_NAME
    wal = path.with_name(f"{FILE_NAME}-wal")
    size = path.stat().st_size if path.exists() else 0
    if not size and wal.exists() and wal.stat().st_size:  # SQLite would throw it away
        raise DamagedJournal(path, f"it is empty, and {wal.name} is not")
    if size or not (folder / RUN_FILE).exists():
        return
    raise _gone(folder, "is empty (0 bytes)" if path.exists() else "is not there")


def check_same_run(folder: Path, run: object, claimed: bool) -> None:
    """Checks that the journal in a folder is that of the run that run.json is about.

    Args:
        folder: The output folder.
        run: The journal's own note of which run it is of; None if it has none.
        claimed: Whether the journal is tied to a plan.

    Raises:
        UsageError: If it is of another run, or of none.
    """
    if not (folder / RUN_FILE).exists():
        return
    document = document_of(folder)
    known = None if document is None else document.id
    if run is None and not claimed:
        raise _gone(folder, "is empty")
    if known is not None and run != known:
        raise UsageError(
            f"{str(folder / FILE_NAME)!r} is the journal of another run than {RUN_FILE} beside it. Put back the one "
            f"that belongs to it, or give another {Hint('output')}."
        )


def _gone(folder: Path, how: str) -> UsageError:
    document = document_of(folder)
    count = document.recorded if document is not None and document.recorded else 0
    many = f", of which {count} episodes were recorded" if count else ""
    return UsageError(
        f"the journal of the run in {str(folder)!r} is gone: {FILE_NAME} {how}, but {RUN_FILE} tells of a run{many}. "
        f"Put it back from a copy. To play everything again, remove {RUN_FILE} or give another {Hint('output')}."
    )

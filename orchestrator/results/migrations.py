"""The tables of the journal, and how those of earlier releases become today's.

A new column needs nothing here: it is added with its default when a journal is opened. Anything else that changes is a
new version, and a function that makes a journal of it out of the one before.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from typing import Final

from sparring.orchestrator.results.row import CHECKSUM, COLUMNS, column_definition
from sparring.protos.errors import UsageError

Migration = Callable[[sqlite3.Connection], None]


RENAMED_NOTES: Final = {"serving": "server_counts", "serving_summary": "server_stats"}
"""What version 2 called notes of the run that are called otherwise now."""


def _columns_by_name(connection: sqlite3.Connection) -> None:
    """Migrates from 2 to 3: errors have a kind, episodes have metrics, rows are written by the names of columns."""
    connection.executemany("UPDATE meta SET key = ? WHERE key = ?", [(new, old) for old, new in RENAMED_NOTES.items()])
    connection.execute("""ALTER TABLE episodes ADD COLUMN "error_kind" TEXT NOT NULL DEFAULT ''""")
    connection.execute("""ALTER TABLE episodes ADD COLUMN "metrics" TEXT NOT NULL DEFAULT '{}'""")


def _makers(connection: sqlite3.Connection) -> None:
    """Migrates from 3 to 4: rows say who has made them, and have a checksum."""
    connection.execute("""ALTER TABLE episodes ADD COLUMN "worker" TEXT NOT NULL DEFAULT ''""")
    connection.execute("""ALTER TABLE episodes ADD COLUMN "host" TEXT NOT NULL DEFAULT ''""")
    connection.execute("""ALTER TABLE episodes ADD COLUMN "maker" INTEGER NOT NULL DEFAULT 0""")
    connection.execute("""ALTER TABLE episodes ADD COLUMN "checksum" INTEGER NOT NULL DEFAULT 0""")


def _played(connection: sqlite3.Connection) -> None:
    """Migrates from 4 to 5: an outcome may be `played`, which earlier releases take for damage."""


def _programs(connection: sqlite3.Connection) -> None:
    """Migrates from 5 to 6: makers name the programs of policy and benchmark, and whoever goes on checks them.

    No table changes. It is a version because earlier releases check nothing: they would mix programs without a word.
    """


def _renderers(connection: sqlite3.Connection) -> None:
    """Migrates from 6 to 7: rows name the renderer that drew for them, and whoever goes on checks it.

    The column comes by itself. It is a version because earlier releases check nothing: they would mix the pixels of
    renderers without a word.
    """


def _traces(connection: sqlite3.Connection) -> None:
    """Migrates from 7 to 8: with the actions of an episode stands what came of each of them."""
    if "trace" not in {name for _, name, *_ in connection.execute("PRAGMA table_info(actions)")}:
        connection.execute("ALTER TABLE actions ADD COLUMN trace BLOB NOT NULL DEFAULT x''")


FIRST_VERSION: Final = 2
"""The oldest that can be read: release 0.1.0's."""

MIGRATIONS: Final[Sequence[Migration]] = (_columns_by_name, _makers, _played, _programs, _renderers, _traces)
"""One after the other: the first makes version 3 of version 2, and so on."""

SCHEMA_VERSION: Final = FIRST_VERSION + len(MIGRATIONS)


def prepare(connection: sqlite3.Connection, place: str) -> None:
    """Makes the tables, or brings them up to date: all of it or nothing.

    Args:
        connection: In autocommit mode.
        place: The folder, for people.

    Raises:
        UsageError: If it is of a release that is too old, or newer than this one.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        _prepare(connection, place)
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _prepare(connection: sqlite3.Connection, place: str) -> None:
    execute = connection.execute
    execute("CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)")
    version = check_version(connection, place)
    names = (*COLUMNS, CHECKSUM)
    columns = ", ".join(map(column_definition, names))
    execute(f'CREATE TABLE IF NOT EXISTS episodes ({columns}, PRIMARY KEY (benchmark, task, "index"))')
    execute(
        "CREATE TABLE IF NOT EXISTS events (at REAL NOT NULL, kind TEXT NOT NULL, "
        'benchmark TEXT, task TEXT, "index" INTEGER, worker TEXT, message TEXT NOT NULL)'
    )
    execute(
        "CREATE TABLE IF NOT EXISTS actions (benchmark TEXT NOT NULL, task TEXT NOT NULL, "
        "\"index\" INTEGER NOT NULL, content BLOB NOT NULL, trace BLOB NOT NULL DEFAULT x'', "
        'PRIMARY KEY (benchmark, task, "index"))'
    )
    execute(
        "CREATE TABLE IF NOT EXISTS makers (id INTEGER PRIMARY KEY, worker TEXT NOT NULL, host TEXT NOT NULL, "
        "versions TEXT NOT NULL, UNIQUE (worker, host, versions))"
    )
    for migrate in MIGRATIONS[version - FIRST_VERSION :]:
        migrate(connection)
    there = columns_of(connection)
    for name in names:
        if name not in there:
            execute(f"ALTER TABLE episodes ADD COLUMN {column_definition(name)}")
    execute("INSERT OR REPLACE INTO meta VALUES ('schema', ?)", (json.dumps(SCHEMA_VERSION),))


def check_version(connection: sqlite3.Connection, place: str) -> int:
    """Returns the version of a journal; that of this release, if it is new.

    Raises:
        UsageError: If it is of a release that is too old, or newer than this one.
    """
    found = connection.execute("SELECT value FROM meta WHERE key = 'schema'").fetchone()
    version = SCHEMA_VERSION if found is None else int(json.loads(found[0]))
    if version > SCHEMA_VERSION:
        raise UsageError(
            f"{place!r} was written by a newer release (journal version {version}; this one knows {SCHEMA_VERSION} and "
            "below). Update sparring, or begin anew in another folder."
        )
    if version < FIRST_VERSION:
        raise UsageError(
            f"{place!r} was written before release 0.1.0 (journal version {version}). Begin anew in another folder."
        )
    return version


def columns_of(connection: sqlite3.Connection) -> set[str]:
    """Returns the columns that the episodes of a journal have."""
    return {name for _, name, *_ in connection.execute("PRAGMA table_info(episodes)")}

"""Reading a journal without being part of its run: nothing is written or locked, no schema is brought up to date.

While a run is going, SQLite reads beside it, as it can in WAL mode; a file of our own process must not be opened by
any other way meanwhile, because closing it would take SQLite's locks with it. When no run is going, a copy is read:
SQLite would otherwise leave files of its own in the folder, or refuse where it may not.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from sparring.orchestrator.plan import EpisodeId
from sparring.orchestrator.results.damage import FILE_NAME as FILE_NAME
from sparring.orchestrator.results.damage import LOCK_NAME as LOCK_NAME
from sparring.orchestrator.results.damage import DamagedJournal, check_schema, check_whole, is_damage
from sparring.orchestrator.results.files import open_regular
from sparring.orchestrator.results.finite import check_depth
from sparring.orchestrator.results.makers import Maker, makers_of
from sparring.orchestrator.results.migrations import RENAMED_NOTES, check_version
from sparring.orchestrator.results.row import EpisodeRow
from sparring.protos.errors import UsageError

_BUSY_SECONDS: Final = 10.0
_ATTEMPTS: Final = 20
_PAUSE_SECONDS: Final = 0.1
_MOST_SECONDS: Final = 600.0
"""For reading one: it may be anybody's, made to take for ever."""
_INSTRUCTIONS: Final = 1_000_000
"""Of SQLite, between two looks at the clock."""
_NO_SENSE: Final = (ValueError, TypeError, KeyError, AttributeError, RecursionError)
"""What is raised by content that no run has written."""


@dataclass(frozen=True)
class JournalEvent:
    """Something that happened on the way to the results.

    Attributes:
        at: When, in seconds since 1970.
        kind: `error`: an attempt failed; `lost`: a lease was lost; `warning`: a benchmark has said what people should
            know; `missing`: a film or a recording could not be had; `film`: why there is none by replay.
        episode: Which one; None: it is about none.
        worker: Who had it.
        message: What happened, in a sentence.
    """

    at: float
    kind: str
    episode: EpisodeId | None
    worker: str
    message: str


@dataclass(frozen=True)
class JournalContents:
    """All that is in a journal, at one moment.

    Attributes:
        rows: Finished episodes, sorted by task and index.
        events: What happened on the way, in its order.
        meta: What the run has noted about itself.
        running: Whether a run is writing there.
        makers: Who has made the rows, by the numbers that these refer to them by.
    """

    rows: Sequence[EpisodeRow]
    events: Sequence[JournalEvent]
    meta: Mapping[str, Any]
    running: bool
    makers: Mapping[int, Maker]


@dataclass(frozen=True)
class KeptEpisode:
    """What it takes to play an episode again, and to hold that against what was.

    Attributes:
        actions: As executed, as protos/action_list.py packs them.
        trace: What came of every step, as protos/trace.py packs it; empty in journals before version 8.
    """

    actions: bytes
    trace: bytes = b""


def read_journal(folder: Path, *, locked_by_us: bool = False) -> JournalContents:
    """Reads the journal of an output folder, also while a run writes to it, and changes nothing there.

    Args:
        folder: The output folder.
        locked_by_us: Whether it is the caller who keeps runs from writing there.

    Raises:
        UsageError: If there is none, it is damaged, or it is of a release that this one cannot read.
    """
    return _read(folder, _contents, locked_by_us=locked_by_us)


def read_kept(folder: Path, episodes: Collection[EpisodeId]) -> dict[EpisodeId, KeptEpisode]:
    """Reads what is kept of some episodes to play them again, also while a run writes to the journal.

    Raises:
        UsageError: As `read_journal`.
    """

    def read(connection: sqlite3.Connection, running: bool) -> dict[EpisodeId, KeptEpisode]:
        columns = {name for _, name, *_ in connection.execute("PRAGMA table_info(actions)")}
        if not columns:  # of an earlier release
            return {}
        traced = "trace" in columns
        return {
            episode: KeptEpisode(actions, trace_of(connection, episode) if traced else b"")
            for episode in episodes
            if (actions := actions_of(connection, episode))
        }

    return _read(folder, read)


@dataclass(frozen=True)
class RunCourse:
    """How a run has come to its rows.

    Attributes:
        order: Its recorded episodes, in the order in which they were recorded.
        server_counts: What the policy servers did, as `StatsWatch.to_json` gives it; None: nothing is known of that.
    """

    order: Sequence[EpisodeId]
    server_counts: Mapping[str, Any] | None


def read_course(folder: Path) -> RunCourse:
    """Reads how a run has come to its rows, also while it goes on.

    Raises:
        UsageError: As `read_journal`.
    """

    def read(connection: sqlite3.Connection, running: bool) -> RunCourse:
        found = connection.execute('SELECT benchmark, task, "index" FROM episodes ORDER BY rowid')
        order = [EpisodeId(*cells) for cells in found]
        noted = connection.execute("SELECT value FROM meta WHERE key = 'server_counts'").fetchone()
        counts = None if noted is None else check_depth(json.loads(noted[0]))
        return RunCourse(order, counts if isinstance(counts, dict) else None)

    return _read(folder, read)


def read_traces(folder: Path, most: int, run: str | None = None) -> dict[EpisodeId, bytes]:
    """Reads the traces of a run's episodes, also while it writes to the journal; nothing, if there are too many.

    Args:
        folder: Of the run.
        most: So many may there be.
        run: What the run is known by: nothing is read of the journal of another; None: of any.

    Raises:
        UsageError: As `read_journal`.
    """

    def read(connection: sqlite3.Connection, running: bool) -> dict[EpisodeId, bytes]:
        noted = connection.execute("SELECT value FROM meta WHERE key = 'run'").fetchone()
        if run is not None and (noted is None or noted[0] != json.dumps(run)):
            return {}
        if "trace" not in {name for _, name, *_ in connection.execute("PRAGMA table_info(actions)")}:
            return {}
        if connection.execute("SELECT count(*) FROM actions").fetchone()[0] > most:
            return {}
        found = connection.execute('SELECT benchmark, task, "index", trace FROM actions WHERE trace IS NOT NULL')
        return {EpisodeId(benchmark, task, index): bytes(trace) for benchmark, task, index, trace in found if trace}

    return _read(folder, read)


_Read = TypeVar("_Read")


def _read(folder: Path, read: Callable[[sqlite3.Connection, bool], _Read], *, locked_by_us: bool = False) -> _Read:
    path = folder / FILE_NAME
    for _ in range(_ATTEMPTS):
        running = not locked_by_us and is_running(folder)
        problem: Exception | None = None
        try:
            with beside_a_run(path) if running else _copied(path) as connection:
                connection.set_progress_handler(_deadline(_MOST_SECONDS), _INSTRUCTIONS)
                connection.execute("BEGIN")  # all of it as of one moment
                check_schema(connection)
                check_whole(connection)
                _check_tables(connection)
                check_version(connection, str(folder))
                contents = read(connection, running)
        except (sqlite3.DatabaseError, OSError, *_NO_SENSE) as error:
            problem = error
        still = not locked_by_us and is_running(folder)
        if problem is None and still == running:
            return contents
        if not running and not still:
            break
        time.sleep(_PAUSE_SECONDS)  # a run was beginning or ending
    if problem is not None and (is_damage(problem) or isinstance(problem, _NO_SENSE)):
        raise DamagedJournal(path, problem) from problem
    raise UsageError(f"the journal {str(path)!r} cannot be read: {_reason(problem)}.") from problem


def _deadline(seconds: float) -> Callable[[], int]:
    """Returns what SQLite asks on its way, and stops when it is told other than 0."""
    end = time.monotonic() + seconds
    return lambda: int(time.monotonic() > end)


def is_running(folder: Path) -> bool:
    """Returns whether a run is writing to a folder. Asks for a moment; a run that begins just then waits that long."""
    try:
        with open_regular(folder / LOCK_NAME) as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # never locked, or on a disk that knows no locks
        return False
    return False


def rows_of(connection: sqlite3.Connection) -> list[EpisodeRow]:
    """Returns all finished episodes, sorted by task and index."""
    return _as_rows(connection.execute('SELECT * FROM episodes ORDER BY benchmark, task, "index"'))


def row_of(connection: sqlite3.Connection, episode: EpisodeId) -> EpisodeRow:
    """Returns the row of an episode that is recorded."""
    (row,) = _as_rows(
        connection.execute(
            'SELECT * FROM episodes WHERE benchmark = ? AND task = ? AND "index" = ?',
            (episode.benchmark, episode.task, episode.index),
        )
    )
    return row


def _as_rows(cursor: sqlite3.Cursor) -> list[EpisodeRow]:
    names = [column for column, *_ in cursor.description]
    return [EpisodeRow.from_cells(dict(zip(names, row, strict=True))) for row in cursor]


def events_of(connection: sqlite3.Connection) -> list[JournalEvent]:
    """Returns what happened on the way, in its order."""
    found = connection.execute('SELECT at, kind, benchmark, task, "index", worker, message FROM events ORDER BY rowid')
    return [
        JournalEvent(at, kind, None if task is None else EpisodeId(benchmark, task, index), worker or "", message)
        for at, kind, benchmark, task, index, worker, message in found
    ]


def actions_of(connection: sqlite3.Connection, episode: EpisodeId) -> bytes:
    """Returns the packed actions of an episode; nothing, if none are kept."""
    found = connection.execute(
        'SELECT content FROM actions WHERE benchmark = ? AND task = ? AND "index" = ?',
        (episode.benchmark, episode.task, episode.index),
    ).fetchone()
    return b"" if found is None else bytes(found[0])


def trace_of(connection: sqlite3.Connection, episode: EpisodeId) -> bytes:
    """Returns the packed trace of an episode; nothing, if none is kept."""
    found = connection.execute(
        'SELECT trace FROM actions WHERE benchmark = ? AND task = ? AND "index" = ?',
        (episode.benchmark, episode.task, episode.index),
    ).fetchone()
    return b"" if found is None else bytes(found[0])


def _check_tables(connection: sqlite3.Connection) -> None:
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not {"meta", "episodes", "events"} <= tables:
        raise sqlite3.DatabaseError("it has not the tables of a journal" if tables else "it is empty")


def _contents(connection: sqlite3.Connection, running: bool) -> JournalContents:
    found = connection.execute("SELECT key, value FROM meta")
    meta = {RENAMED_NOTES.get(key, key): check_depth(json.loads(value)) for key, value in found}
    return JournalContents(rows_of(connection), events_of(connection), meta, running, makers_of(connection))


@contextmanager
def beside_a_run(path: Path) -> Iterator[sqlite3.Connection]:
    """Opens a journal while a run writes to it."""
    # `readonly_shm`: not even the marks that readers leave for each other.
    with closing(_connect(f"{path.absolute().as_uri()}?mode=ro&readonly_shm=1")) as connection:
        yield connection


@contextmanager
def _copied(path: Path) -> Iterator[sqlite3.Connection]:
    with tempfile.TemporaryDirectory(prefix="sparring-journal-") as folder:
        copy = Path(folder) / FILE_NAME
        _copy(path, copy)
        with suppress(FileNotFoundError):  # it is there if the run was killed
            _copy(path.with_name(f"{FILE_NAME}-wal"), copy.with_name(f"{FILE_NAME}-wal"))
        with closing(_connect(copy.as_uri())) as connection:
            connection.execute("SELECT 1 FROM sqlite_master").fetchall()  # opens what SQLite has beside it
            shutil.rmtree(folder)  # what is in it stays open, and is gone however this process ends
            yield connection


def _copy(path: Path, copy: Path) -> None:
    with open_regular(path) as file, copy.open("wb") as target:
        room = shutil.disk_usage(copy.parent).free
        if os.fstat(file.fileno()).st_size > room // 2:
            raise OSError(errno.EFBIG, f"a copy would take over half of the room in {tempfile.gettempdir()!r}")
        shutil.copyfileobj(file, target)


def _connect(uri: str) -> sqlite3.Connection:
    return sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None)


def _reason(problem: Exception | None) -> str:
    if isinstance(problem, OSError):
        return problem.strerror or str(problem)
    return "runs begin and end there all the time" if problem is None else str(problem).rstrip(".")

"""What the benchmarks share: child processes that end with us, runs of the whole program, and how results are shown."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import psutil
from rich.console import Console
from rich.table import Table

from sparring.orchestrator.execution.execution import run
from sparring.orchestrator.results.results import Results
from sparring.orchestrator.run.listeners import RunListener
from sparring.orchestrator.run.make_plan import make_plan
from sparring.orchestrator.settings import read_settings

_PR_SET_CHILD_SUBREAPER: Final = 36
_ORPHAN_SECONDS: Final = 10.0
_FILE_COLUMNS: Final = 200


def evaluate(
    settings: Mapping[str, Any], *listeners: RunListener, at_end: Callable[[Path], None] = lambda folder: None
) -> Results:
    """Runs `sparring run` with these settings, in this process, in a folder that is thrown away.

    Args:
        settings: Of the run.
        listeners: Who watches.
        at_end: Gets the folder before it is thrown away.
    """
    with tempfile.TemporaryDirectory(prefix="sparring-bench-") as folder:
        resolved = read_settings({**settings, "output": Path(folder)})
        results = asyncio.run(run(resolved, make_plan(resolved), Path(folder), listeners))
        at_end(Path(folder))
    if results.overall.errors:
        sys.exit(f"{results.overall.errors} episodes ended in an error: nothing was measured.")
    return results


def cpu_of_descendants() -> float:
    """CPU seconds of every process below this one that has ended, however far below."""
    # Fork servers outlive their workers by a moment and become orphans; as their subreaper we get to count them, too.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    deadline = time.monotonic() + _ORPHAN_SECONDS
    while psutil.Process().children() and time.monotonic() < deadline:
        try:
            os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            break
        time.sleep(0.01)
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def recorded(journal: Path) -> int:
    """How many episodes a running `sparring run` has in its journal so far."""
    if not journal.exists():
        return 0
    try:
        with closing(sqlite3.connect(f"file:{journal}?mode=ro", uri=True)) as connection:
            return int(connection.execute("SELECT count(*) FROM episodes").fetchone()[0])
    except sqlite3.OperationalError:
        return 0  # it is being made


@contextmanager
def child(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A Python process that speaks on its standard output, and is ended on the way out."""
    process = subprocess.Popen(
        [sys.executable, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.communicate(timeout=15)
        except subprocess.TimeoutExpired:
            process.kill()


def show(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table; the first column is text, the others are numbers."""
    table = Table()
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    sys.stdout.write(f"{title}\n")
    console = Console()
    # Nothing is cut off in a file, which has no width.
    (console if console.is_terminal else Console(width=_FILE_COLUMNS)).print(table)


def conclude(name: str, *, target: str, met: bool, **numbers: Any) -> None:
    """The last line: everything as JSON, for whoever collects it."""
    line = {"benchmark": name, "target": target, "met": met, **numbers}
    sys.stdout.write(json.dumps(_rounded(line), ensure_ascii=False) + "\n")


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, Mapping):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, (list, tuple)) else value

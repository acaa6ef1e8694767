"""Writers that are killed at every write of theirs: `python killed_writer.py FOLDER PHASE`.

A limit on the size of files is what kills: the write that would go beyond it ends as far as the limit, and the next
one is answered with SIGXFSZ, whose effect is that of SIGKILL. So every limit is another write to be killed at, in the
middle of it or before it, and it is the same one every time. For each, a child is forked, which records rows and says
over a pipe which of them were acknowledged.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rows import ROW

from sparring.orchestrator.results.journal import Journal

BEFORE = 2
AFTER = 5
FRAME = 24 + 4096


def limits(phase: str, largest: int) -> Iterator[int]:
    """Where to be killed: at each write to the log and in the middle of it, or at each page that is copied back."""
    if phase == "recording":
        for frame in range(largest // FRAME + 2):
            start = 32 + frame * FRAME
            yield from (start, start + 10, start + 24, start + 2000)
    else:
        yield from range(0, largest + 4096, 2048)


def write(folder: Path, phase: str, limit: int | None, acknowledge: int) -> None:
    """Records rows, with a limit from some point on."""
    journal = Journal(folder)
    for index in range(BEFORE + AFTER):
        if index == BEFORE and phase == "recording":
            _limit(limit)
        journal.note("error", "it raised", episode=ROW.id)
        journal.record(replace(ROW, index=index, error="e" * 500 * index, metrics={"a": index / 7}))
        os.write(acknowledge, bytes([index]))
    if phase == "closing":
        _limit(limit)
    journal.close()


def _limit(size: int | None) -> None:
    if size is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def killed(folder: Path, phase: str, limit: int | None) -> dict[str, int]:
    """Lets a child write, and says how it ended and what it had acknowledged."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        write(folder, phase, limit, writing)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        acknowledged = len(pipe.read())
    _, status = os.waitpid(child, 0)
    return {"acknowledged": acknowledged, "killed": int(os.WIFSIGNALED(status))}


def main() -> None:
    """Kills writers at each of their writes, opens what they left, and prints what was found."""
    root, phase = Path(sys.argv[1]), sys.argv[2]
    whole = root / "whole"
    journal = Journal(whole)
    for index in range(BEFORE + AFTER):
        journal.note("error", "it raised", episode=ROW.id)
        journal.record(replace(ROW, index=index, error="e" * 500 * index))
    largest = (whole / "journal.sqlite-wal").stat().st_size
    journal.close()
    largest = largest if phase == "recording" else (whole / "journal.sqlite").stat().st_size
    found = []
    for number, limit in enumerate(limits(phase, largest)):
        folder = root / str(number)
        outcome = killed(folder, phase, limit)
        with closing(Journal(folder)) as again:
            rows = [[row.index, len(row.error), row.metrics["a"]] for row in again.rows()]
            more = again.record(replace(ROW, index=99))
        shutil.rmtree(folder)
        found.append({**outcome, "limit": limit, "rows": rows, "goes on": more})
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()

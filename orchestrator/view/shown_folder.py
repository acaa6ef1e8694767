"""Folders that pages show: others may write in them, and put links to what is not theirs to show."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from sparring.orchestrator.plan import EpisodeId
from sparring.orchestrator.report.timelines import MOST_EPISODES
from sparring.orchestrator.results.document import RUN_FILE, RunDocument, read_document
from sparring.orchestrator.results.files import open_inside
from sparring.orchestrator.results.json_text import MOST_TEXT, parse_json
from sparring.orchestrator.results.reading import FILE_NAME, LOCK_NAME, read_traces
from sparring.orchestrator.results.results import Results
from sparring.protos.errors import UsageError

_FILES: Final = (RUN_FILE, FILE_NAME, f"{FILE_NAME}-wal", f"{FILE_NAME}-shm", LOCK_NAME)


def is_linked(folder: Path, root: Path) -> bool:
    """Returns whether a run lies elsewhere than in its folder: by a link on the way to it, or one of its files.

    Args:
        folder: Of the run.
        root: The folder that was named, from which the way begins: that one, or one that it is in.
    """
    return any(os.path.islink(path) for path in _on_the_way(folder, root))


def load_shown(folder: Path, root: Path) -> Results:
    """Opens the output folder of a run, as `Results.load`.

    Args:
        folder: Of the run.
        root: As for `is_linked`.

    Raises:
        UsageError: If it cannot be read, lies elsewhere, or its files are of two runs.
    """
    _check(folder, root)
    results = Results.load(folder)
    _check(folder, root)  # it may have been made one meanwhile
    if results.id != _own_id(folder, root):  # or have been one, and is none again
        raise _swapped(folder)
    if not results.is_of_one_run:
        raise UsageError(f"{str(folder)!r} is not shown: {FILE_NAME} is the journal of another run than {RUN_FILE}.")
    return results


def document_of(results: Results) -> RunDocument:
    """Reads the run.json of a run that `load_shown` has opened.

    Raises:
        UsageError: If it cannot be read, or is that of another run.
    """
    assert results.folder is not None, "a run that was loaded has a folder"
    document = read_document(results.folder)
    if document.id != results.id:
        raise _swapped(results.folder)
    return document


def traces_of(results: Results, root: Path) -> dict[EpisodeId, bytes]:
    """Reads what came of the steps of the episodes of a run that `load_shown` has opened; nothing of another run.

    Args:
        results: Of the run.
        root: As for `is_linked`.

    Raises:
        UsageError: If they cannot be read, or lie elsewhere now.
    """
    assert results.folder is not None, "a run that was loaded has a folder"
    _check(results.folder, root)
    return {} if results.id is None else read_traces(results.folder, MOST_EPISODES, results.id)


def _swapped(folder: Path) -> UsageError:
    return UsageError(f"{str(folder)!r} is not shown: while it was read, another run was there.")


def _own_id(folder: Path, root: Path) -> object:
    """Returns what the run is known by that really lies in a folder, whatever is put in its place for a moment.

    Who puts it there would have to know the other run's id, which stands in files that they cannot read.
    """
    try:
        with open_inside(root, folder.relative_to(root) / RUN_FILE) as file:
            content = parse_json(file.read(MOST_TEXT))
    except (OSError, ValueError, RecursionError):
        return ""
    return content.get("id") if isinstance(content, dict) else ""


def _check(folder: Path, root: Path) -> None:
    if is_linked(folder, root):
        raise UsageError(f"{str(folder)!r} is not shown: it is a link, or a file of the run is one.")


def _on_the_way(folder: Path, root: Path) -> Iterator[Path]:
    here = root
    for part in folder.relative_to(root).parts:
        here = here / part
        yield here
    yield from (folder / name for name in _FILES)

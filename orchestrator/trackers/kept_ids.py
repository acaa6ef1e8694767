"""By which name each tracker knows a run: kept in the output folder, so that a resumed run goes on in there."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Final

from sparring.orchestrator.results.document import to_json
from sparring.orchestrator.results.files import read_regular, replace_file

IDS_FILE: Final = "trackers.json"
_LONGEST: Final = 500


def kept_id(folder: Path | None, tracker: str) -> str:
    """Returns the id by which a tracker knows the run in a folder; empty: it does not."""
    return "" if folder is None else _read(folder).get(tracker, "")


def keep_id(folder: Path | None, tracker: str, id: str) -> None:
    """Keeps the id by which a tracker knows the run in a folder.

    Raises:
        SparringError: If it cannot be written.
    """
    if folder is not None and kept_id(folder, tracker) != id:
        replace_file(folder / IDS_FILE, to_json({**_read(folder), tracker: id}))


def _read(folder: Path) -> dict[str, str]:
    found: object = None
    with suppress(OSError, ValueError, RecursionError):  # of nobody, or of a stranger
        found = json.loads(read_regular(folder / IDS_FILE))
    if not isinstance(found, dict):
        return {}
    return {name: id for name, id in found.items() if isinstance(id, str) and len(id) <= _LONGEST}

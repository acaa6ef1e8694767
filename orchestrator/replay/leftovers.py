"""What a killed `sparring film`, `export` or `diff` has left beside its films: the next one there removes it."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from typing import Final

from sparring.orchestrator.machine.owner import owner, owner_state
from sparring.orchestrator.results.files import read_regular

PREFIX: Final = ".replay-"
_OWNER: Final = "owner"


def mark(folder: Path) -> None:
    """Writes down whose a working folder is.

    Raises:
        OSError: If it cannot be written.
    """
    (folder / _OWNER).write_text(owner())


def remove_leftovers(beside: Path) -> None:
    """Removes working folders whose process is gone; those of other machines are left alone, for nobody here knows.

    Args:
        beside: The folder that they are in.
    """
    for folder in beside.glob(f"{PREFIX}*"):
        with suppress(OSError, ValueError):  # none of ours, or it is being made or removed right now
            if not folder.is_symlink() and owner_state(read_regular(folder / _OWNER)) == "dead":
                shutil.rmtree(folder, ignore_errors=True)

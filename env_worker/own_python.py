"""The stamp of a Python that was made for one benchmark: what it was made from, and what was asked for beside that."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, Final

STAMP: Final = ".sparring.json"
"""In a finished environment, written last."""


def read_stamp(folder: Path) -> Mapping[str, Any] | None:
    """Returns the stamp of an environment; None if it has none that makes sense: it is not finished."""
    try:
        stamp = json.loads((folder / STAMP).read_text())
    except (OSError, ValueError):
        return None
    return stamp if isinstance(stamp, dict) else None


def packages_of(stamp: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Returns what was asked for beside the recipe, as pip was told of it."""
    named = (stamp or {}).get("with")
    return tuple(map(str, named)) if isinstance(named, list) else ()


def versions_of_own() -> dict[str, str]:
    """Returns all versions of this Python, if it was made with packages that only its user knows; else nothing."""
    if not packages_of(read_stamp(Path(sys.prefix))):
        return {}
    return {found.name: found.version for found in distributions()}

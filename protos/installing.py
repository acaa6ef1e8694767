"""What is installed, and what to tell people who lack something: a command that really brings it, or none."""

from __future__ import annotations

import importlib.util
from importlib.metadata import PackageNotFoundError, metadata
from typing import Final

OURS: Final = "sparring"
"""The distribution that all rooms are in."""


def is_installed(module: str) -> bool:
    """Returns whether a module is installed here. One inside of a package has that imported, others nothing."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):  # what it is a part of is not there or not whole; or it is no name of a module
        return False


def install_command(extra: str, distribution: str = OURS) -> str:
    """Returns the command that installs an extra of an installed distribution; empty if it has no such extra."""
    try:
        known = metadata(distribution).get_all("Provides-Extra") or []
    except PackageNotFoundError:
        known = []
    return f"pip install '{distribution}[{extra}]'" if extra in known else ""

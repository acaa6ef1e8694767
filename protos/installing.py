"""What to tell people who lack something: a command that really brings it, or none."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, metadata
from typing import Final

OURS: Final = "sparring"
"""The distribution that all rooms are in."""


def install_command(extra: str, distribution: str = OURS) -> str:
    """Returns the command that installs an extra of an installed distribution; empty if it has no such extra."""
    try:
        known = metadata(distribution).get_all("Provides-Extra") or []
    except PackageNotFoundError:
        known = []
    return f"pip install '{distribution}[{extra}]'" if extra in known else ""

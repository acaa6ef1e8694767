"""Entry points of installed packages, by which benchmarks, launchers and policies of others are found.

They are read once for what is installed: with a hundred and fifty packages that takes 20 ms, and a run asks often.
"""

from __future__ import annotations

import os
import sys
from functools import lru_cache
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from typing import cast


def entry_points_of(group: str) -> list[EntryPoint]:
    """Returns the entry points of a group, in the order of their names. Imports none of them."""
    return sorted(_read(_installed()).select(group=group), key=lambda point: point.name)


def _installed() -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Returns which packages are installed, and where, as far as their names say: who installs one may ask again."""
    return tuple((place, _packages(place)) for place in sys.path)


def _packages(place: str) -> tuple[str, ...]:
    try:
        return tuple(sorted(name for name in os.listdir(place or ".") if name.endswith((".dist-info", ".egg-info"))))
    except OSError:  # not there, or the archive of the standard library
        return ()


@lru_cache(maxsize=8)
def _read(_installed: tuple[tuple[str, tuple[str, ...]], ...]) -> EntryPoints:
    return cast(EntryPoints, entry_points())  # something else in Python 3.11, of which the same is asked

"""Numbers that two machines come to: the same, but for last digits."""

from __future__ import annotations

import math
from typing import Any, Final

_LAST_DIGITS: Final = 1e-9
"""Relative: a square root of another machine may have others."""


def alike(told: Any, found: Any) -> bool:
    """Returns whether two values are the same, but for last digits."""
    if isinstance(told, dict) and isinstance(found, dict):
        return told.keys() == found.keys() and all(alike(told[name], found[name]) for name in told)
    if isinstance(told, tuple) and isinstance(found, tuple):
        return len(told) == len(found) and all(map(alike, told, found))
    if isinstance(told, float) and isinstance(found, float):
        return math.isclose(told, found, rel_tol=_LAST_DIGITS, abs_tol=_LAST_DIGITS * 1e-3)
    return bool(told == found)

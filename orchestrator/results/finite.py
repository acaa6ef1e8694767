"""Numbers that JSON does not have: words in files, and numbers again for those who read them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

_MOST_DEPTH: Final = 100
_NOT_FINITE: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def finite(value: Any) -> Any:
    """Makes words of numbers that are not finite, such as in an argument of a policy."""
    if isinstance(value, float) and not math.isfinite(value):
        return next(word for word, number in _NOT_FINITE.items() if str(number) == str(value))
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    return [finite(item) for item in value] if isinstance(value, (list, tuple)) else value


def numbers_again(value: Any) -> Any:
    """Makes numbers of the words that `finite` made of them."""
    if isinstance(value, Mapping):
        return {key: numbers_again(item) for key, item in value.items()}
    if isinstance(value, list):
        return [numbers_again(item) for item in value]
    return _NOT_FINITE.get(value, value) if isinstance(value, str) else value


def check_depth(value: Any) -> Any:
    """Returns what was read from JSON, in which nothing is nested so deep that walking through it fails.

    Raises:
        ValueError: If something is.
    """
    level = [value]
    for _ in range(_MOST_DEPTH):
        inner = (item.values() if isinstance(item, dict) else item for item in level if isinstance(item, (dict, list)))
        level = [item for items in inner for item in items]
    if level:
        raise ValueError(f"it is nested more than {_MOST_DEPTH} levels deep")
    return value

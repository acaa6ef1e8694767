"""Amounts of memory, as people write them."""

from __future__ import annotations

import re
from typing import Final

_LEAST_MEMORY: Final = 16 * 2**20


def parse_memory(amount: str) -> int:
    """Bytes of an amount such as 512m or 1.5g; 0 for auto.

    Raises:
        ValueError: If it is not one.
    """
    if amount == "auto":
        return 0
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", amount.lower())
    count = int(float(found[1]) * 1024 ** " kmgt".index(found[2] or " ")) if found else 0
    if count < _LEAST_MEMORY:
        raise ValueError("must be auto or an amount of at least 16m, such as 512m or 6g")
    return count

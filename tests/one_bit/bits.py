"""A single bit of an array."""

from __future__ import annotations

from typing import Any

import numpy as np


def flip(array: Any) -> Any:
    """Changes the last bit of the first number of an array, in its place."""
    bits = array.reshape(-1).view({1: np.uint8, 4: np.uint32, 8: np.uint64}[array.dtype.itemsize])
    bits[:1] ^= 1
    return array


def flipped(array: Any) -> Any:
    """Returns a copy that differs by one bit."""
    return flip(np.array(array))

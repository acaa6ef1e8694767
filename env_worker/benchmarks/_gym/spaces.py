"""What Gymnasium's spaces and observations are to us: named arrays, and a flat vector of actions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from sparring.protos.errors import UsageError
from sparring.protos.tensor import Array

OBSERVATION: Final = "observation"
_LEAST_PIXELS: Final = 8
"""Of an image's side; what is smaller is a board or a grid."""


def named(raw: Any) -> dict[str, Array]:
    """Returns an observation by names: a Dict by its keys, anything else as "observation"."""
    if isinstance(raw, Mapping):
        flat: dict[str, Array] = {}
        for key, value in raw.items():
            inner = named(value)
            flat.update({key if name == OBSERVATION else f"{key}.{name}": array for name, array in inner.items()})
        return flat
    return {OBSERVATION: np.asarray(raw)}


def images_among(observation: Mapping[str, Array]) -> frozenset[str]:
    """Returns the names of those that are images, or stacks of images."""
    return frozenset(
        name
        for name, array in observation.items()
        if array.dtype == np.uint8 and array.ndim >= 3 and sorted(array.shape)[-2] >= _LEAST_PIXELS
    )


def action_space(space: Any) -> tuple[list[float], list[float], Callable[[Array], Any]]:
    """Returns the bounds of a flat vector of actions, and how such a vector becomes an action of the space.

    Raises:
        UsageError: If it is of a kind that is not supported.
    """
    from gymnasium import spaces

    if isinstance(space, spaces.Box):
        low, high = space.low.ravel().tolist(), space.high.ravel().tolist()
        return low, high, lambda vector: np.asarray(vector, dtype=space.dtype).reshape(space.shape)
    if isinstance(space, spaces.Discrete):
        first, last = int(space.start), int(space.start + space.n - 1)
        # The nearest whole number counts, so each has a whole unit of the range: uniform in the range is uniform in the
        # actions, which it would not be if the range began at the first and ended at the last.
        return [first - 0.5], [last + 0.5], lambda vector: int(np.clip(round(float(vector[0])), first, last))
    raise UsageError(
        f"actions of the kind {type(space).__name__} are not supported; "
        "wrap the environment to have a Box or Discrete space."
    )

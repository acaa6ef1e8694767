"""What decides where LIBERO places at random: numpy's global generator, as it is before a reset."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


class Placements:
    """Puts the generator where it is to be before the reset of an episode.

    Args:
        once: Whether it is seeded once for all episodes of a task, as openpi and vla-eval do: what episode k begins
            with then follows from the k resets before it, which are done once and remembered.
    """

    def __init__(self, *, once: bool) -> None:
        self._once = once
        self._first: int | None = None
        self._known: list[Any] = []

    def seed(self, seed: int, index: int, reset: Callable[[], Any]) -> None:
        """Seeds for an episode.

        Args:
            seed: Of the episode.
            index: Of the episode: its seed less this is the run's.
            reset: Resets the simulator, which takes as many random numbers as any reset.
        """
        if not self._once:
            np.random.seed(seed % 2**32)
            return
        if self._first != seed - index:
            self._first = seed - index
            np.random.seed(self._first % 2**32)
            self._known = [np.random.get_state()]
        while len(self._known) <= index:
            np.random.set_state(self._known[-1])
            reset()
            self._known.append(np.random.get_state())
        np.random.set_state(self._known[index])

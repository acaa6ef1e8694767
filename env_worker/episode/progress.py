"""How far an episode is, told now and then."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from sparring.env_worker.benchmark import Step
from sparring.env_worker.episode.observers import EpisodeObserver
from sparring.protos.tensor import Array

_EVERY_SECONDS: Final = 0.5


class Progress(EpisodeObserver):
    """Tells how many steps there have been, but not more often than anybody can read.

    Args:
        tell: Is called with that number.
    """

    def __init__(self, tell: Callable[[int], None]) -> None:
        self.steps = 0
        """So far."""
        self._tell = tell
        self._last = time.monotonic()

    def on_step(self, step: int, action: Array, result: Step) -> None:
        self.steps = step
        now = time.monotonic()
        if now - self._last >= _EVERY_SECONDS:
            self._last = now
            self._tell(step)

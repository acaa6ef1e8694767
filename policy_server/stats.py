"""What a server has done, in numbers: a few additions per forward pass, whether anybody reads them or not."""

from __future__ import annotations

import threading
import time
import uuid
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from sparring.protos import policy_pb2 as pb

SECONDS_BOUNDS: Final = tuple(float(f"{10 ** (step / 10):.3g}") for step in range(-50, 21))
"""Ten to a tenfold, from 10 µs to 100 s, so that a quantile read from them is right to a quarter of itself."""


_MOST_WARNINGS: Final = 200
"""Different ones. Clients have a part in what they say, and could make up others for ever."""


class _Histogram:
    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def to_message(self) -> pb.Histogram:
        return pb.Histogram(bounds=self._bounds, counts=self._counts, sum=self._sum)


class StatsCounter:
    """Counts what one server does. May be read from another thread than the one that counts."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._instance = uuid.uuid4().hex
        self._began = time.monotonic()
        self._sessions = 0
        self._episodes = 0
        self._batches: Counter[int] = Counter()
        self._queue_wait = _Histogram(SECONDS_BOUNDS)
        self._inference = _Histogram(SECONDS_BOUNDS)
        self._errors: Counter[str] = Counter()
        self._warnings: Counter[str] = Counter()
        self.waiting: Callable[[], int] = lambda: 0
        """Tells how many observations wait at this moment."""

    def forward_pass(self, waits: Sequence[float], seconds: float) -> None:
        """Counts a batch that was answered, whatever the answers are.

        Args:
            waits: How long each of its rows had waited, in seconds.
            seconds: How long the policy took.
        """
        with self._lock:
            self._batches[len(waits)] += 1
            self._inference.add(seconds)
            for wait in waits:
                self._queue_wait.add(wait)

    def session(self, change: int) -> None:
        """Counts a session that was opened (1) or closed (-1)."""
        with self._lock:
            self._sessions += change

    def episode(self) -> None:
        """Counts an episode that was started."""
        with self._lock:
            self._episodes += 1

    def error(self, kind: str) -> None:
        """Counts a stream that ended with an error."""
        with self._lock:
            self._errors[kind] += 1

    def warning(self, sentence: str) -> bool:
        """Counts a warning about a session; returns whether it is given for the first time."""
        with self._lock:
            if sentence not in self._warnings and len(self._warnings) >= _MOST_WARNINGS:
                return False
            self._warnings[sentence] += 1
            return self._warnings[sentence] == 1

    def policy_warnings(self, sentences: Sequence[str]) -> None:
        """Counts the warnings of a policy that a session was opened with."""
        with self._lock:
            self._warnings.update(sentences)

    def to_message(self) -> pb.ServerStats:
        """Returns all counts, at one moment."""
        with self._lock:
            return pb.ServerStats(
                instance=self._instance,
                seconds=time.monotonic() - self._began,
                sessions=self._sessions,
                episodes=self._episodes,
                observations=sum(size * count for size, count in self._batches.items()),
                batches=self._batches,
                queue_wait_seconds=self._queue_wait.to_message(),
                inference_seconds=self._inference.to_message(),
                errors=self._errors,
                warnings=self._warnings,
                waiting=self.waiting(),
            )

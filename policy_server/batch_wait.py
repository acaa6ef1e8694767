"""Whether a batch should wait for more rows: if they come sooner than it costs to compute them in a pass of their own.

A pass over `b` rows takes about `a + c·b` seconds. Waiting `w` for `m` more makes `(b + m) / (w + a + c·(b + m))` rows
per second out of `b / (a + c·b)`. Which of the two is more does not depend on `c`: waiting pays if the batch grows by a
larger share than `a` does. What has to be known is `a`, from passes of different sizes, and when the next observations
are due, from how long each session took for its last ones.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass
from statistics import fmean, median
from typing import Final
from weakref import WeakKeyDictionary

_PASSES: Final = 8
"""Passes of each size that are remembered; the first of a size is often slow, and their median forgets it."""
_LEAST_COST: Final = 1e-3
"""Seconds that a pass costs whatever its size, for less of which nobody waits: a timer is not more exact."""


@dataclass
class _Rhythm:
    """How long a session takes from an answer to its next observation: mean and deviation, as TCP has them."""

    answered: float | None = None
    mean: float = 0.0
    deviation: float = 0.0
    heard: bool = False

    def asked(self, now: float) -> None:
        if self.answered is None:
            return
        took = now - self.answered
        self.answered = None
        if not self.heard:
            self.mean, self.deviation, self.heard = took, took / 2, True
            return
        self.deviation += (abs(took - self.mean) - self.deviation) / 4
        self.mean += (took - self.mean) / 8

    @property
    def due(self) -> float | None:
        """When the next observation should be here, if one is on its way."""
        return self.answered + self.mean + 2 * self.deviation if self.answered is not None and self.heard else None


class BatchWait:
    """Learns what passes cost and when sessions come back. All times are in seconds, of one clock."""

    def __init__(self) -> None:
        self._seconds: defaultdict[int, deque[float]] = defaultdict(lambda: deque(maxlen=_PASSES))
        self._rhythms: WeakKeyDictionary[object, _Rhythm] = WeakKeyDictionary()
        self._cost: float | None = None
        self._demand = 0.0
        self._ended: float | None = None

    def started(self, who: object) -> None:
        """Notes that a session begins an episode. How long that takes says nothing of the time between observations."""
        self._rhythms.setdefault(who, _Rhythm()).answered = None

    def asked(self, who: object, now: float) -> None:
        """Notes that a session's observation has arrived."""
        self._rhythms.setdefault(who, _Rhythm()).asked(now)

    def answered(self, who: object, now: float) -> None:
        """Notes that a session has its answer."""
        self._rhythms.setdefault(who, _Rhythm()).answered = now

    def passed(self, rows: int, began: float, ended: float, *, arrived: float) -> None:
        """Notes that a forward pass is over.

        Args:
            rows: In it.
            began: When it began.
            ended: When it ended.
            arrived: When the first of its rows did.
        """
        self._seconds[rows].append(ended - began)
        self._cost = None
        if self._ended is not None and ended > self._ended:
            idle = max(0.0, arrived - self._ended)
            self._demand += ((1 - idle / (ended - self._ended)) - self._demand) / 4
        self._ended = ended

    @property
    def sessions(self) -> int:
        """How many sessions there are."""
        return len(self._rhythms)

    @property
    def fixed_cost(self) -> float:
        """What a pass costs whatever its size: where the line through the known sizes starts."""
        points = [(rows, median(seconds)) for rows, seconds in self._seconds.items()]
        if not points:
            return 0.0
        if len(points) == 1:  # one more size has to be tried to know; half is the guess that makes it so
            return points[0][1] / 2
        rows, seconds = fmean(x for x, _ in points), fmean(y for _, y in points)
        slope = sum((x - rows) * (y - seconds) for x, y in points) / sum((x - rows) ** 2 for x, _ in points)
        return min(max(0.0, seconds - max(0.0, slope) * rows), min(y for _, y in points))

    def worth(self, queued: int, room: int, now: float) -> float:
        """Returns for how many seconds from now waiting for more rows is worth it; 0 if it is not.

        Args:
            queued: Rows that are here.
            room: Rows that the batch may still take.
            now: The time.
        """
        if self._cost is None:
            self._cost = self.fixed_cost
        # A policy that is idle half of the time is not what holds the sessions up; its time is worth less than theirs.
        cost = self._cost * self._demand
        if cost < _LEAST_COST:
            return 0.0
        best, wait = queued / cost, 0.0
        dues = (rhythm.due for rhythm in self._rhythms.values())
        due = sorted(due for due in dues if due is not None and now <= due <= now + cost)
        for more, when in enumerate(due[:room], 1):
            if (queued + more) / (cost + when - now) > best:
                best, wait = (queued + more) / (cost + when - now), when - now
        return wait

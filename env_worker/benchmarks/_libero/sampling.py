"""When robosuite's observables are sampled, without visiting each of them in each substep.

An observable counts the time since its last period began, and reads its sensor in the first substep of a new one. All
of LIBERO's have the same period as a step, so all are read in one substep of each step. Which one it is follows from
how often they were forced to update while the episode was set up, and is found here by counting as they do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any


@dataclass(frozen=True)
class Clock:
    """What an observable without delay counts.

    Attributes:
        elapsed: Seconds since its period began.
        sampled: Whether it was read since then.
        period: Seconds from one reading to the next.
    """

    elapsed: float
    sampled: bool
    period: float

    def ticks(self, timestep: float) -> Iterator[tuple[Clock, bool]]:
        """Yields after each substep what the clock shows, and whether the sensor was read in it."""
        elapsed, sampled = self.elapsed, self.sampled
        while True:
            elapsed += timestep
            read = not sampled and self.period >= elapsed
            sampled = sampled or read
            if elapsed >= self.period:
                read, sampled = read or not sampled, False
                elapsed %= self.period
            yield Clock(elapsed, sampled, self.period), read


def common_clock(observables: Iterable[Any]) -> Clock | None:
    """Returns the clock that all observables show, or None if they do not agree or do more than read their sensors."""
    from robosuite.utils import observables as plain

    clocks = set()
    for observable in observables:
        untouched = (
            observable._corrupter is plain.NO_CORRUPTION
            and observable._filter is plain.NO_FILTER
            and observable._delayer is plain.NO_DELAY
            and type(observable).update is plain.Observable.update
            and observable._current_delay == 0.0
            and observable._enabled
        )
        if not untouched:
            return None
        clocks.add(Clock(observable._time_since_last_sample, observable._sampled, observable._sampling_timestep))
    return clocks.pop() if len(clocks) == 1 else None


@lru_cache(maxsize=64)
def sampled_substep(clock: Clock, timestep: float, substeps: int, steps: int) -> int | None:
    """Returns in which substep of a step sensors are read (1 is the first), or None if it is not one and the same."""
    ticks, found = clock.ticks(timestep), set()
    for _ in range(steps):
        reads = [substep for substep in range(1, substeps + 1) if next(ticks)[1]]
        if len(reads) != 1:
            return None
        found.add(reads[0])
    return found.pop() if len(found) == 1 else None


def set_clocks(observables: Iterable[Any], clock: Clock, timestep: float, substeps: int) -> None:
    """Sets all observables to what they would show if they had been visited in so many substeps since `clock`."""
    ticks = clock.ticks(timestep)
    for _ in range(substeps):
        clock, _ = next(ticks)
    for observable in observables:
        observable._time_since_last_sample, observable._sampled = clock.elapsed, clock.sampled

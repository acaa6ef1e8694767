"""Whether waiting for fuller batches pays, as it turns out: taking turns with and without, by answers per second."""

from __future__ import annotations

import math
from typing import Final

_SETTLING: Final = 1
"""Answers of each session after which a turn is measured: the first ones are still due to the turn before."""
_LOOKS: Final = 4
"""Answers of each session in a turn that is measured, at first."""
_GROWTH: Final = 4
"""So many times as long is each turn of what has proved better."""
_LONGEST: Final = 64
"""So many times as long is it at most."""
_SHARE: Final = 16
"""So many times as long as a turn of the other way is it in the end."""
_REMEMBERED: Final = 8
"""Pairs of turns that what is known of the gain rests on."""
_LEAST_GAIN: Final = 0.1
"""Of waiting, as the logarithm of a ratio, after one pair of turns; after more of them less is believed, too."""
_PAUSE_SECONDS: Final = 1.0
"""Of idleness, which for so long is held against no way: simulators are being made, or nobody plays."""
_OTHERS: Final = 1.5
"""By which factor the number of sessions may change until what was learned of so many is forgotten."""


class WaitTrial:
    """Says whether batches may wait. Forecasts may be wrong: those who wait for each other work at the same time later.

    Without a reason to change, nearly all turns are of the better way; the other one is tried again now and then.
    """

    def __init__(self) -> None:
        self.waits = False
        """Whether batches may wait in this turn."""
        self._sessions = 0
        self._rows = 0
        self._since: float | None = None
        self._ended: float | None = None
        self._rates: dict[bool, float] = {}
        self._gain, self._pairs = 0.0, 0
        self._times, self._looks = 1, _LOOKS

    def passed(self, rows: int, ended: float, *, arrived: float, sessions: int) -> None:
        """Notes that a forward pass is over. All times are in seconds, of one clock.

        Args:
            rows: In it.
            ended: When it ended.
            arrived: When the first of its rows did.
            sessions: How many there are, at least one.
        """
        idle = 0.0 if self._ended is None else arrived - self._ended
        self._ended = ended
        if not self._sessions / _OTHERS <= sessions <= self._sessions * _OTHERS:
            self._sessions = sessions
            self._forget()
            self._begin()
        if self._since is not None and idle > _PAUSE_SECONDS:
            self._since += idle
        self._rows += rows
        if self._since is None:
            if self._rows >= _SETTLING * sessions:
                self._since, self._rows = ended, 0
        elif self._rows >= self._looks * sessions and ended > self._since:
            self._rates[self.waits] = self._rows / (ended - self._since)
            self._take_turns()

    def _take_turns(self) -> None:
        if len(self._rates) == 2:
            self._pairs = min(self._pairs + 1, _REMEMBERED)
            self._gain += (math.log(self._rates[True] / self._rates[False]) - self._gain) / self._pairs
        better = self._pairs > 0 and self._gain > _LEAST_GAIN / self._pairs
        self.waits = not self.waits
        if self.waits == better and self._pairs:
            self._times = min(_GROWTH * self._times, _LONGEST)
            self._looks = _LOOKS * self._times
        else:
            self._looks = _LOOKS * max(1, self._times // _SHARE)
        self._begin()

    def _begin(self) -> None:
        self._rows, self._since = 0, None

    def _forget(self) -> None:
        self._gain, self._pairs = 0.0, 0
        self._times, self._looks = 1, _LOOKS
        self._rates.clear()

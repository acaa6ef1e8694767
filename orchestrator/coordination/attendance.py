"""Which workers are there, and which of them are to be given up: who started one asks here whether to replace it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from sparring.orchestrator.coordination.bounds import MAX_WORKERS
from sparring.protos.process import FreezeWatch

JOIN_SECONDS: Final = 120.0
"""A worker that was started dials within seconds, or ends."""
REJOIN_SECONDS: Final = 300.0
"""How long a worker whose stream broke tries to come back: a cut network, a machine that is paused."""
_TICK: Final = 0.5


@dataclass
class _Absence:
    since: float
    reason: str
    is_silent: bool


class Attendance:
    """Keeps who has joined, and who has left and how."""

    def __init__(self) -> None:
        self._here: set[str] = set()
        self._absences: dict[str, _Absence] = {}

    def joined(self, worker: str) -> None:
        """Notes that a worker is there."""
        self._here.add(worker)
        self._absences.pop(worker, None)

    def left(self, worker: str, reason: str, *, silent: bool) -> None:
        """Notes that the stream of a worker has ended.

        Args:
            worker: Its name.
            reason: Why, in a sentence.
            silent: Whether it was we who ended it, because nothing came any more.
        """
        self._here.discard(worker)
        self._absences.pop(worker, None)  # the newest is last
        self._absences[worker] = _Absence(asyncio.get_running_loop().time(), reason, silent)
        for name in list(self._absences)[:-MAX_WORKERS]:  # who comes by itself is asked for by nobody
            del self._absences[name]

    async def given_up(self, worker: str) -> str:
        """Waits until a worker that was just started is to be replaced although it has not ended; returns why.

        That is when it has been silent, has not come back after its stream broke, or does not dial at all. The seconds
        in which this process did not run are not held against it.
        """
        loop, watch = asyncio.get_running_loop(), FreezeWatch()
        began = loop.time()
        while True:
            await asyncio.sleep(_TICK)
            frozen = watch.was_frozen(expected=_TICK)
            absence = self._absences.get(worker)
            if worker in self._here:
                began = loop.time()
            elif absence is not None:
                if frozen:
                    absence.since = loop.time()
                if absence.is_silent or loop.time() - absence.since > REJOIN_SECONDS:
                    return absence.reason
            elif frozen:
                began = loop.time()
            elif loop.time() - began > JOIN_SECONDS:
                return f"it did not join within {JOIN_SECONDS:g} s."

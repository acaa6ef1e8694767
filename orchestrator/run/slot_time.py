"""Where the time of slots goes, as far as no episode tells: how long they were there, and had nothing to do."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sparring.orchestrator.run.listeners import RunListener, SlotActivity

_IDLE, _PLAYING, _FILMING = "idle", "playing", "films"


@dataclass(frozen=True)
class SlotSeconds:
    """Seconds of all slots of a run together, over all its executions.

    Attributes:
        playing: In which they had an episode on loan, also one that was tried again or lost.
        films: In which they played something again to film it.
        idle: In which they had nothing to do: no episode was left, or the policy server was away. It begins when the
            policy is there.
    """

    playing: float = 0.0
    films: float = 0.0
    idle: float = 0.0

    @classmethod
    def noted(cls, note: Any) -> SlotSeconds | None:
        """Reads what a run has noted; None if it has not, or it makes no sense: a folder may be anybody's."""
        try:
            found = cls(**{name: float(note[name]) for name in ("playing", "films", "idle")})
        except (TypeError, KeyError, ValueError, OverflowError):
            return None
        return found if all(math.isfinite(part) and part >= 0 for part in asdict(found).values()) else None


class SlotClock(RunListener):
    """Counts the seconds of slots, by what they do.

    Args:
        noted: What earlier executions of the run have noted, as `to_json` gave it.
        is_first: Whether there were none. Where others have noted nothing, a part of the time is not known, and none is
            told.
    """

    def __init__(self, noted: Any = None, *, is_first: bool = True) -> None:
        before = SlotSeconds.noted(noted) or (SlotSeconds() if is_first else None)
        self._seconds = None if before is None else asdict(before)
        self._doing: dict[tuple[str, int], str] = {}
        self._since = time.monotonic()

    def on_worker(self, worker: str, slots: int) -> None:
        self._count()
        held = {(worker, number) for number in range(slots)}
        self._doing = {slot: what for slot, what in self._doing.items() if slot[0] != worker or slot in held}
        for slot in held:
            self._doing.setdefault(slot, _IDLE)

    def on_activity(self, activity: SlotActivity) -> None:
        slot = activity.worker, activity.slot
        what = _IDLE if not activity.task else _FILMING if activity.replay else _PLAYING
        if slot in self._doing and self._doing[slot] != what:
            self._count()
            self._doing[slot] = what

    def to_json(self) -> Mapping[str, float] | None:
        """Returns the seconds up to now, as `SlotSeconds.noted` reads them; None: they are not known."""
        self._count()
        return self._seconds

    def _count(self) -> None:
        now = time.monotonic()
        if self._seconds is not None:
            for what in self._doing.values():
                self._seconds[what] += now - self._since
        self._since = now

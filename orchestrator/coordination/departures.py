"""What workers had on loan when they left: some come back and go on, of others it is found out later why they died."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sparring.orchestrator.plan import EpisodeId
from sparring.orchestrator.run.scheduler import Lease


class Departures:
    """Remembers who has left in the middle of something, and why."""

    def __init__(self) -> None:
        self._left: dict[str, list[Lease]] = {}
        self._lost_by: dict[str, list[EpisodeId]] = {}
        self._explained: dict[EpisodeId, str] = {}

    def left(self, worker: str, lease: Lease) -> None:
        """Notes what a worker had on loan when its stream ended."""
        self._left.setdefault(worker, []).append(lease)
        self._lost_by.setdefault(worker, []).append(lease.episode)

    def back(self, worker: str, held: Collection[int]) -> Sequence[Lease]:
        """Returns what a worker that is back had, and still plays.

        Args:
            worker: That has joined again.
            held: The numbers of the leases that it says it has.
        """
        self._lost_by.pop(worker, None)
        return [lease for lease in self._left.pop(worker, []) if lease.number in held]

    def explain(self, worker: str, reason: str) -> Sequence[EpisodeId]:
        """Notes why a worker died; returns the episodes that it lost."""
        self._left.pop(worker, None)
        episodes = self._lost_by.pop(worker, [])
        self._explained.update(dict.fromkeys(episodes, reason))
        return episodes

    def reason_before(self, episode: EpisodeId) -> str:
        """Returns why a worker died that had an episode earlier, if that is known."""
        return self._explained.get(episode, "")

"""Which replica of the policy server each slot of a worker calls its own."""

from __future__ import annotations

from collections.abc import Sequence

from sparring.protos.net.address import Address


class ReplicaBalance:
    """Spreads slots over replicas: a worker's first slot gets the one with the fewest, the next slot the next one.

    Args:
        replicas: Their addresses.
    """

    def __init__(self, replicas: Sequence[Address]) -> None:
        self._replicas = list(replicas)
        self._slots = [0] * len(replicas)
        self._assigned: dict[str, tuple[int, int]] = {}

    def assign(self, worker: str, slots: int) -> list[Address]:
        """Returns the replicas as a worker counts them: its slot n has number n, modulo their count."""
        first = min(range(len(self._replicas)), key=lambda place: self._slots[place])
        self._assigned[worker] = (first, slots)
        self._count(first, slots, 1)
        return [*self._replicas[first:], *self._replicas[:first]]

    def leave(self, worker: str) -> None:
        """Takes back the slots of a worker that is gone."""
        if worker in self._assigned:
            self._count(*self._assigned.pop(worker), -1)

    def _count(self, first: int, slots: int, change: int) -> None:
        for slot in range(slots):
            self._slots[(first + slot) % len(self._replicas)] += change

"""Who was taken in, and may come back: a worker whose connection broke is known by the secret that it was given."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

from sparring.orchestrator.coordination.bounds import check_register
from sparring.protos import evaluation_pb2 as pb
from sparring.protos.errors import UsageError

_LEAVE_SECONDS: Final = 5.0
_MOST_GONE: Final = 1000


@dataclass(frozen=True)
class Member:
    """A worker that was taken in.

    Attributes:
        worker: What it is called.
        part: Of the run that it is for, by its label.
        slots: How many it has.
        reading: Reads what it says, to the end of its stream.
        left: Set when it has left.
    """

    worker: str
    part: str
    slots: int
    reading: asyncio.Task[None]
    left: asyncio.Event


class Members:
    """Everybody who was taken in, by their secrets; of those who have left, the last."""

    def __init__(self) -> None:
        self._members: dict[str, Member] = {}

    def add(self, membership: str, member: Member) -> None:
        """Takes one in; forgets who has left the longest ago, if there are many of them."""
        gone = [key for key, member in self._members.items() if member.left.is_set()]
        for key in gone[:-_MOST_GONE]:
            del self._members[key]
        self._members[membership] = member

    def remove(self, membership: str) -> None:
        """Forgets one that may not come back."""
        del self._members[membership]

    def grow(self, worker: str, slots: int) -> None:
        """Notes that one that is here has so many slots now."""
        key = self.membership_of(worker)
        if key:
            self._members[key] = replace(self._members[key], slots=slots)

    def membership_of(self, worker: str) -> str:
        """Returns the secret of one that is here; empty: it has none."""
        here = (key for key, member in self._members.items() if member.worker == worker and not member.left.is_set())
        return next(here, "")

    async def returning(self, register: pb.Register, parts: Collection[str]) -> Member | None:
        """Returns who it is that comes back, and gives it its name; None if it is a new one.

        A stream that broke at the worker's end may not have done so at this one: it ends now.

        Args:
            register: What the worker says of itself.
            parts: Of the run, by their labels.

        Raises:
            OutOfBounds: If it says too much of itself, whoever it is.
            UsageError: If it was never here.
        """
        check_register(register)
        if not register.membership:
            return None
        member = self._members.get(register.membership)
        if member is None or member.part not in parts:
            raise UsageError("this run does not know a worker that was here before; another run has begun.")
        member.reading.cancel()
        try:
            async with asyncio.timeout(_LEAVE_SECONDS):
                await member.left.wait()
        except TimeoutError:
            raise UsageError("the worker's earlier stream has not ended.") from None
        register.worker = member.worker
        return member

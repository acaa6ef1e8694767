"""Workers that come before the policy is there: they get ready meanwhile, and join when it is."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sparring.orchestrator.coordination.bounds import MAX_WORKERS, OutOfBounds, check_register
from sparring.orchestrator.coordination.coordinator import Coordinator
from sparring.protos import evaluation_pb2 as pb


class WaitingRoom:
    """Knows who waits, and with which tasks those will begin. Nobody who waits is in the run, nor in its journal.

    Args:
        is_over: Whether there is nothing to wait for.
    """

    def __init__(self, *, is_over: bool) -> None:
        self._over = asyncio.Event()
        self._names: set[str] = set()
        self._streams = 0
        self._slots: Counter[str] = Counter()
        if is_over:
            self._over.set()

    @property
    def is_over(self) -> bool:
        """Whether nobody waits any more."""
        return self._over.is_set()

    def end(self) -> None:
        """Lets all go who wait: the policy is there, or the run has ended."""
        self._over.set()

    def slots(self, part: str) -> int:
        """Returns how many slots wait for a part of the run."""
        return self._slots[part]

    @contextmanager
    def entered(
        self, register: pb.Register, part: str, slots: int, coordinator: Coordinator
    ) -> Iterator[Sequence[str]]:
        """Has a worker in here; yields the tasks that its slots will probably begin with.

        Args:
            register: What it says of itself.
            part: Of the run that it is for.
            slots: That it will have.
            coordinator: Who will lend it episodes.

        Raises:
            OutOfBounds: If there are too many, or it says too much of itself.
        """
        check_register(register)
        if self._streams >= MAX_WORKERS:
            raise OutOfBounds(f"{MAX_WORKERS} workers are connected, and no more are taken in.")
        name = register.worker
        is_first = name not in self._names  # another one of that name will be called otherwise when it joins
        self._names.add(name)
        self._streams += 1
        self._slots[part] += slots
        tasks = coordinator.expect(name, part, slots) if is_first else []
        try:
            yield tasks
        except BaseException:
            if is_first:
                coordinator.expect_no_more(name)
            raise
        finally:
            self._streams -= 1
            self._slots[part] -= slots
            if is_first:
                self._names.discard(name)

    async def wait(self) -> None:
        """Waits until there is nothing more to wait for."""
        await self._over.wait()

"""An event loop whose clock a test turns, for what depends on time and must not depend on the machine.

A mock, of the clock and of a thread: on a machine that is busy with other things real sleeps last as long as
they like, and who waits for whom is then the machine's decision. What is tested is real.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


class VirtualLoop(asyncio.SelectorEventLoop):
    """Time stands still while anything can be done, and jumps to the next alarm when nothing can."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(_Jumping(self))

    def time(self) -> float:
        """Seconds since the loop was made."""
        return self.now


class _Jumping(selectors.DefaultSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._of = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout is None:
            raise AssertionError("everybody waits, and for nothing that has a deadline")
        if not ready:
            self._of.now += max(0.0, timeout or 0.0)
        return ready


class VirtualThread(ThreadPoolExecutor):
    """Works while the loop goes on, without a thread: what was done at once is heard of when its time has passed.

    Whoever works takes time by adding to the loop's `now`.
    """

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__(1)
        self._of = loop

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Does the work, and puts the clock back to when it began."""
        began, tell = self._of.now, self._of.call_soon_threadsafe
        told: list[tuple[Any, ...]] = []
        self._of.call_soon_threadsafe = lambda *call, **_: told.append(call)  # type: ignore[method-assign,assignment]
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        finally:
            self._of.call_soon_threadsafe = tell  # type: ignore[method-assign]
            ended, self._of.now = self._of.now, began
        for callback, *rest in told:
            self._of.call_at(ended, callback, *rest)
        return future


def clock() -> VirtualLoop:
    """The loop that is running."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop


def run(main: Coroutine[Any, Any, T]) -> T:
    """What a coroutine returns, on a loop of virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)

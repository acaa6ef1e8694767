"""Keeping one benchmark's worker alive, whatever a worker is: a process, a container."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from sparring.orchestrator.launchers.base import LaunchFailed, never
from sparring.orchestrator.retry import RetryRules

log = logging.getLogger(__name__)

_USAGE: Final = 2


@dataclass(frozen=True)
class Death:
    """How a worker ended.

    Attributes:
        code: Its exit code.
        reason: What happened to it, where more is known than the exit code: "was killed: ...".
    """

    code: int
    reason: str = ""

    def __str__(self) -> str:
        return self.reason or f"ended with exit code {self.code}"


class StartedWorker(Protocol):
    """A worker that was started."""

    log: Path

    async def wait(self) -> Death:
        """Waits for its end."""

    async def end(self) -> None:
        """Ends it, if it has not ended, and leaves nothing of it."""

    def last_words(self) -> str:
        """Returns what it said last."""


async def keep_worker(
    benchmark: str,
    start: Callable[[str], Awaitable[StartedWorker]],
    *,
    rules: RetryRules,
    results_of: Callable[[str], int],
    on_death: Callable[[str, Death], None] = lambda worker, death: None,
    given_up: Callable[[str], Awaitable[str]] = never,
) -> None:
    """Starts a worker, and another when it dies, until cancelled.

    Args:
        benchmark: What it is for; its name begins with that.
        start: Starts a worker of the given name.
        rules: When a worker is replaced no more, and the pauses.
        results_of: How many results a worker has delivered; one that delivers is worth replacing.
        on_death: Told of each death before the next worker is started.
        given_up: Waits until a worker that has not ended is to be replaced, and returns why: `WorkerOrder.given_up`.

    Raises:
        LaunchFailed: If a worker ends because it was wrongly started, or several die without any result.
    """
    deaths, generation = 0, 0
    while True:
        name = f"{benchmark}-{generation}"
        worker = await start(name)
        try:
            death = await _death_of(worker, given_up(name))
        finally:
            await worker.end()
        on_death(name, death)
        if death.code == _USAGE:
            raise LaunchFailed(worker.last_words())
        deaths = 0 if results_of(name) else deaths + 1
        if rules.gives_up_workers(deaths):
            raise LaunchFailed(
                f"workers die before they finish an episode, {deaths} times in a row; the last one {death}. "
                f"Their log {str(worker.log)!r} ends with:\n{worker.last_words()}"
            )
        pause = rules.pause(deaths)
        log.warning("worker %s %s; starting another in %.1f s", name, death, pause)
        await asyncio.sleep(pause)
        generation += 1


async def _death_of(worker: StartedWorker, given_up: Awaitable[str]) -> Death:
    """Waits until a worker has ended, or is given up and to be killed."""
    ended, giving_up = asyncio.ensure_future(worker.wait()), asyncio.ensure_future(given_up)
    try:
        await asyncio.wait({ended, giving_up}, return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            return ended.result()
        return Death(-signal.SIGKILL, f"is given up and killed: {giving_up.result().removesuffix('.')}")
    finally:
        ended.cancel()
        giving_up.cancel()
        await asyncio.gather(ended, giving_up, return_exceptions=True)


async def keep_all(keepers: Iterable[Awaitable[None]]) -> None:
    """Runs the keepers of all benchmarks; when one fails, or this is cancelled, all of them end."""
    tasks = [asyncio.ensure_future(keeper) for keeper in keepers]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

"""Workers as processes on this machine."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from env_worker.registry import get_benchmark
from orchestrator.environments import interpreter
from orchestrator.launchers.base import Launcher, LaunchFailed, WorkerOrder
from orchestrator.supervise import Child

log = logging.getLogger(__name__)

MAX_DEATHS: Final = 5
"""So many deaths in a row without one result in between, and the launcher gives up."""
_FIRST_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 10.0


class ProcessLauncher(Launcher):
    """One worker process per benchmark, each with the Python that has the benchmark; its slots are its own processes.

    Args:
        results_of: How many results a worker has delivered; one that delivers is worth replacing.
    """

    def __init__(self, results_of: Callable[[str], int]) -> None:
        self._results_of = results_of

    async def run(self, order: WorkerOrder) -> None:
        keepers = [
            asyncio.create_task(self._keep(benchmark, interpreter(get_benchmark(benchmark)), order))
            for benchmark in order.slots
        ]
        try:
            await asyncio.gather(*keepers)
        finally:
            for keeper in keepers:
                keeper.cancel()
            await asyncio.gather(*keepers, return_exceptions=True)

    async def _keep(self, benchmark: str, python: Path, order: WorkerOrder) -> None:
        deaths, generation = 0, 0
        while True:
            name = f"{benchmark}-{generation}"
            arguments = [
                f"--orchestrator={order.orchestrator}",
                f"--benchmark={benchmark}",
                f"--slots={order.slots[benchmark]}",
                f"--name={name}",
            ]
            log_file = order.logs / f"worker-{benchmark}.log"
            child = await Child.start("env_worker", arguments, python=python, log=log_file)
            try:
                code = await child.wait()
            finally:
                await child.end()
            if code == 0:
                return  # it was told to stop
            if code == 2:
                raise LaunchFailed(child.last_words())
            deaths = 0 if self._results_of(name) else deaths + 1
            if deaths >= MAX_DEATHS:
                raise LaunchFailed(
                    f"workers die before they finish an episode, {deaths} times in a row (exit code {code}). "
                    f"Their log {str(child.log)!r} ends with:\n{child.last_words()}"
                )
            pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**deaths)
            log.warning("worker %s ended with exit code %d; starting another in %.1f s", name, code, pause)
            await asyncio.sleep(pause)
            generation += 1

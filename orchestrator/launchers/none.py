"""No launcher: workers come by themselves."""

from __future__ import annotations

import asyncio

from sparring.orchestrator.launchers.base import DEFAULT_LISTEN, Launcher, LauncherSettings, WorkerOrder
from sparring.orchestrator.settings import RunSettings
from sparring.protos.net.address import Address


class NoLauncher(Launcher[LauncherSettings]):
    """Workers are started by somebody else: `sparring worker --orchestrator ...`."""

    starts_workers = False
    name = "none"
    summary = "workers come by themselves, from anywhere: sparring worker --orchestrator HOST:PORT"
    settings = LauncherSettings

    def listen(self, run: RunSettings) -> Address | None:
        return run.worker.listen_address or DEFAULT_LISTEN

    async def run(self, order: WorkerOrder) -> None:
        await asyncio.get_running_loop().create_future()  # nothing to do until the run has ended

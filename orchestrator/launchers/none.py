"""No launcher: workers come by themselves."""

from __future__ import annotations

import asyncio

from sparring.orchestrator.launchers.base import Launcher, LauncherSettings, WorkerOrder


class NoLauncher(Launcher[LauncherSettings]):
    """Workers are started by somebody else: `sparring worker --orchestrator ...`."""

    name = "none"
    summary = "workers come by themselves, from anywhere: sparring worker --orchestrator HOST:PORT"
    settings = LauncherSettings

    async def run(self, order: WorkerOrder) -> None:
        await asyncio.get_running_loop().create_future()  # nothing to do until the run has ended

"""No launcher: workers come by themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from sparring.env_worker.worker.addresses import to_dial
from sparring.orchestrator.launchers.base import DEFAULT_LISTEN, Launcher, LauncherSettings, WorkerOrder
from sparring.orchestrator.run.admission import FILE_NAME as TOKEN_FILE
from sparring.orchestrator.run.admission import Admission
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

    def preview(self, run: RunSettings, slots: Mapping[str, int]) -> Sequence[str]:
        listen = run.worker.listen_address or DEFAULT_LISTEN
        # Without --output, the folder has its name from the time at which the run begins.
        flags = Admission.of(run, listen).flags((run.output.folder or Path("/OUTPUT")) / TOKEN_FILE)
        return [
            f"{name}: started by you: sparring worker {run.plan.worker_flags(name)} --orchestrator {to_dial(listen)}"
            f"{flags}"
            for name in slots
        ]

    async def run(self, order: WorkerOrder) -> None:
        await asyncio.get_running_loop().create_future()  # nothing to do until the run has ended

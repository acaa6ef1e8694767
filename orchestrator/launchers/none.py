"""No launcher: workers come by themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from sparring.env_worker.worker.addresses import to_dial
from sparring.orchestrator.coordination.admission import NEW_FOLDER, Admission
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

    def preview(self, run: RunSettings, slots: Mapping[str, int]) -> Sequence[str]:
        listen = run.worker.listen_address or DEFAULT_LISTEN
        admission = Admission.of(run, listen)
        folder = run.output.folder
        joining = f"--orchestrator {to_dial(admission.reached_at(listen))}{admission.flags(folder)}"
        lines = [f"{name}: started by you: sparring worker {run.plan.worker_flags(name)} {joining}" for name in slots]
        if folder is None and NEW_FOLDER in joining:
            lines.append(f"{NEW_FOLDER}: the run's new folder, whose name has the time in it")
        return lines

    async def run(self, order: WorkerOrder) -> None:
        await asyncio.get_running_loop().create_future()  # nothing to do until the run has ended

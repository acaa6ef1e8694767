"""No launcher: workers come by themselves."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from sparring.env_worker.worker.addresses import to_dial
from sparring.orchestrator.launchers.base import DEFAULT_LISTEN, Launcher, LauncherSettings, WorkerOrder
from sparring.orchestrator.run.admission import FILE_NAME as TOKEN_FILE
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
        address = to_dial(run.worker.listen_address or DEFAULT_LISTEN)
        token = run.worker.join_token_file or (run.output.folder or Path("OUTPUT")) / TOKEN_FILE
        return [
            f"{name}: started by you: sparring worker {run.plan.worker_flags(name)} --orchestrator {address} "
            f"--join-token-file {shlex.quote(str(token))}"
            for name in slots
        ]

    async def run(self, order: WorkerOrder) -> None:
        await asyncio.get_running_loop().create_future()  # nothing to do until the run has ended

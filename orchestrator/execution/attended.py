"""Gives a run up that nobody works on."""

from __future__ import annotations

import asyncio

from sparring.orchestrator.coordination.coordinator import Coordinator
from sparring.orchestrator.run.errors import RunStopped
from sparring.orchestrator.settings import RunSettings
from sparring.protos.advice import Hint


async def attended(coordinator: Coordinator, settings: RunSettings, to_join: str) -> None:
    """Gives a run up when nobody has come to work on a benchmark of it for too long."""
    loop = asyncio.get_running_loop()
    since: dict[str, float] = {}
    while True:
        since = {name: since.get(name, loop.time()) for name in coordinator.unattended()}
        for name, began in since.items():
            if loop.time() - began >= settings.plan.worker_timeout:
                part = settings.plan.part(name)
                advice = (
                    f"Start one with `sparring worker {settings.plan.worker_flags(name)} {to_join}`"
                    if to_join
                    else f"Let others in with {Hint('listen')}"
                )
                last = coordinator.workers.turned_away.get(name, "")
                why = f" The last one was turned away: {last}" if last else ""
                raise RunStopped(
                    f"no worker of {name} has been here for {settings.plan.worker_timeout:g} s.{why} {advice} "
                    f"(in containers: the service worker-{part.benchmark}), or raise {Hint('worker_timeout')}."
                )
        await asyncio.sleep(min(1.0, settings.plan.worker_timeout / 4))

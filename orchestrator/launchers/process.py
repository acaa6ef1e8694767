"""Workers as processes on this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sparring.env_worker.registry import get_benchmark
from sparring.orchestrator.launchers.base import Launcher, LauncherSettings, WorkerOrder
from sparring.orchestrator.launchers.command import CommandWorker
from sparring.orchestrator.launchers.keep_alive import keep_all, keep_worker
from sparring.orchestrator.machine.environments import interpreter
from sparring.orchestrator.machine.sockets import temporary_folder
from sparring.orchestrator.settings import RunSettings
from sparring.orchestrator.settings.assets import fetch_assets


class ProcessLauncher(Launcher[LauncherSettings]):
    """One worker process per benchmark, each with the Python that has it; its slots are its own processes."""

    name = "process"
    summary = "worker processes on this machine, each with the Python that has its benchmark"
    settings = LauncherSettings
    may_grow = True

    def check(self, run: RunSettings) -> None:
        for part in run.plan.parts:
            interpreter(get_benchmark(part.benchmark))
            fetch_assets(run, part)

    def preview(self, run: RunSettings, slots: Mapping[str, int]) -> Sequence[str]:
        return [
            f"{name}: a process of {interpreter(get_benchmark(run.plan.part(name).benchmark))}, with {number} "
            f"{'slot' if number == 1 else 'slots'}"
            for name, number in slots.items()
        ]

    async def run(self, order: WorkerOrder) -> None:
        await keep_all([self._keep(benchmark, order) for benchmark in order.slots])

    async def _keep(self, benchmark: str, order: WorkerOrder) -> None:
        python = interpreter(get_benchmark(order.part(benchmark).benchmark))

        async def start(name: str) -> CommandWorker:
            return await CommandWorker.start(
                [str(python), *order.program(benchmark, name)],
                log=order.logs / f"worker-{benchmark}.log",
                secret=order.join_token,
                temporary=temporary_folder(order.sockets),
            )

        await keep_worker(benchmark, start, rules=order.rules, results_of=order.results_of, given_up=order.given_up)

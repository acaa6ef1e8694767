"""A launcher of somebody else's package: worker processes with a lower priority. Found through an entry point."""

from __future__ import annotations

import sys

from pydantic import Field

from sparring import Launcher, LauncherSettings, RunSettings, WorkerOrder
from sparring.orchestrator.launchers.command import CommandWorker
from sparring.orchestrator.launchers.keep_alive import Death, keep_all, keep_worker
from sparring.protos.errors import UsageError


class NiceSettings(LauncherSettings):
    niceness: int = Field(5, ge=0, le=19, description="how much workers give way to others")


class NiceLauncher(Launcher[NiceSettings]):
    summary = "worker processes that give way to others"
    settings = NiceSettings

    def check(self, run: RunSettings) -> None:
        if self.own(run).niceness == 13:
            raise UsageError("13 is unlucky here: give another --niceness.")

    async def run(self, order: WorkerOrder) -> None:
        await keep_all([self._keep(benchmark, order) for benchmark in order.slots])

    async def _keep(self, benchmark: str, order: WorkerOrder) -> None:
        nice = ["nice", "-n", str(self.own(order.run).niceness)]

        async def start(name: str) -> CommandWorker:
            command = [*nice, sys.executable, *order.program(benchmark, name)]
            return await CommandWorker.start(command, log=order.logs / f"nice-{benchmark}.log", secret=order.join_token)

        def explain(name: str, death: Death) -> None:
            order.explain(name, f"worker {name} was nice, and {death}")

        await keep_worker(
            benchmark, start, rules=order.rules, results_of=order.results_of, on_death=explain, given_up=order.given_up
        )


class Greedy(NiceLauncher):
    """Has a setting that every run has."""

    class Settings(LauncherSettings):
        seed: int = Field(0, description="mine")

    settings = Settings  # type: ignore[assignment]


class NotOne:
    """Has nothing that a launcher must have."""

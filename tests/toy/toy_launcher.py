"""A launcher of somebody else's package: worker processes with a lower priority. Found through an entry point."""

from __future__ import annotations

import sys

from pydantic import Field

from sparring import Launcher, LauncherSettings, RunSettings, WorkerOrder
from sparring.orchestrator.launchers.base import TOKEN_FLAGS, worker_flags
from sparring.orchestrator.launchers.cluster import ClusterSettings, share_workers, slots_of
from sparring.orchestrator.launchers.command import CommandWorker
from sparring.orchestrator.launchers.keep_alive import Death, keep_all, keep_worker
from sparring.protos.errors import UsageError
from sparring.protos.net.address import Address


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


class FarLauncher(Launcher[ClusterSettings]):
    """Workers that are here and do as if they were elsewhere: several of a benchmark, over TCP with TLS."""

    secures = True
    summary = "worker processes that dial in as from another machine"
    settings = ClusterSettings

    def listen(self, run: RunSettings) -> Address:
        return run.worker.listen_address or Address("tcp", "127.0.0.1")

    def advertise(self, run: RunSettings, listen: Address) -> str:
        return self.own(run).advertise or "127.0.0.1"

    def slot_count(self, run: RunSettings) -> int:
        return slots_of(self.own(run))

    async def run(self, order: WorkerOrder) -> None:
        (order.sockets / "ca.pem").write_bytes(order.ca)
        shares = share_workers(self.own(order.run), order.slots)
        keepers = [
            self._keep(benchmark, place, slots // shares[benchmark], order)
            for benchmark, slots in order.slots.items()
            for place in range(shares[benchmark])
        ]
        await keep_all(keepers)

    async def _keep(self, benchmark: str, place: int, slots: int, order: WorkerOrder) -> None:
        async def start(name: str) -> CommandWorker:
            flags = worker_flags(order.part(benchmark), order.public, slots)
            own = [f"--name={name}", f"--ca={order.sockets / 'ca.pem'}", *TOKEN_FLAGS, "--exit-with-parent"]
            command = [sys.executable, "-m", "sparring.env_worker", *flags, *own]
            log = order.logs / f"worker-{benchmark}-{place}.log"
            return await CommandWorker.start(command, log=log, secret=order.join_token)

        name = f"{benchmark}-{place}"
        await keep_worker(name, start, rules=order.rules, results_of=order.results_of, given_up=order.given_up)


class Greedy(NiceLauncher):
    """Has a setting that every run has."""

    class Settings(LauncherSettings):
        seed: int = Field(0, description="mine")

    settings = Settings  # type: ignore[assignment]


class NotOne:
    """Has nothing that a launcher must have."""

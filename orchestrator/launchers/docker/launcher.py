"""Workers as containers, one per benchmark, each from the benchmark's own image."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from sparring.env_worker.registry import all_benchmarks
from sparring.orchestrator.launchers.base import Launcher, LaunchFailed, Leftover, WorkerOrder
from sparring.orchestrator.launchers.docker.container import Container
from sparring.orchestrator.launchers.docker.container_spec import ContainerSpec
from sparring.orchestrator.launchers.docker.engine import (
    OWNER_LABEL,
    RUN_LABEL,
    WORKER_LABEL,
    Engine,
    EngineFailed,
    connect,
    image_of,
    may_be_here,
)
from sparring.orchestrator.launchers.docker.fetch import fetch_into_volume
from sparring.orchestrator.launchers.docker.route import Route, find_route
from sparring.orchestrator.launchers.docker.settings import DockerSettings
from sparring.orchestrator.launchers.keep_alive import Death, keep_all, keep_worker
from sparring.orchestrator.launchers.to_the_end import to_the_end
from sparring.orchestrator.machine.finding import Finding
from sparring.orchestrator.machine.owner import owner
from sparring.orchestrator.settings import RunSettings
from sparring.orchestrator.settings.assets import assets_of, fetch_assets
from sparring.protos.advice import Hint
from sparring.protos.errors import SparringError, UsageError
from sparring.protos.net.address import Address

log = logging.getLogger(__name__)


class DockerLauncher(Launcher[DockerSettings]):
    """One container per benchmark: limited, without rights, removed on every way out."""

    name = "docker"
    summary = "containers of Docker or podman, one for each benchmark, from its image"
    settings = DockerSettings

    def check(self, run: RunSettings) -> None:
        benchmarks = list(dict.fromkeys(part.benchmark for part in run.plan.parts))
        for benchmark in self.own(run).image:
            if benchmark not in benchmarks:
                raise UsageError(f"{Hint('image')} names {benchmark!r}, which is not part of this run.")
        engine = connect()
        for benchmark in benchmarks:
            engine.worker_image(benchmark, self._image_name(run, benchmark))
        find_route(run, self.own(run), engine)
        for part in run.plan.parts:
            if assets_of(run, part):  # what nobody has named is downloaded by containers, into a volume of their own
                fetch_assets(run, part)

    def preview(self, run: RunSettings, slots: Mapping[str, int]) -> Sequence[str]:
        return [
            f"{name}: a container of {self._image_name(run, run.plan.part(name).benchmark)}, with {number} slots"
            for name, number in slots.items()
        ]

    def listen(self, run: RunSettings) -> Address | None:
        return find_route(run, self.own(run), connect()).listen or run.worker.listen_address

    def leftovers(self, *, everything: bool = False) -> Sequence[Leftover]:
        if not may_be_here():  # as on a login node
            return []
        engine = connect()
        found = engine.containers() if everything else engine.leftovers()
        return [Leftover(_what(container), partial(engine.remove, container)) for container in found]

    def examine(self) -> Iterator[Finding]:
        try:
            engine = connect()
            yield Finding("container engine", "ok", engine.describe())
        except SparringError as error:
            yield Finding("container engine", "note", error.sentence)
            return
        only = f"for {Hint('launcher', value=self.name)} only"
        for name in all_benchmarks():
            try:
                image = engine.worker_image(name, image_of(name))
            except SparringError as error:
                yield Finding(f"image {name}", "note", f"{only}: {error.sentence}")
            else:
                yield Finding(f"image {name}", "ok", f"{image.name}, {image.size / 1e6:.0f} MB")

    async def run(self, order: WorkerOrder) -> None:
        try:
            await self._run_in(await to_the_end(connect), order)
        except EngineFailed as error:
            raise LaunchFailed(error.sentence) from error

    async def _run_in(self, engine: Engine, order: WorkerOrder) -> None:
        route = await to_the_end(find_route, order.run, self.own(order.run), engine)
        run = _label(order)
        for container in await to_the_end(engine.leftovers, run):
            log.info("removing %s, left by an earlier execution of this run", container.name)
            await to_the_end(engine.remove, container)
        try:
            await keep_all([self._keep(engine, benchmark, route, order) for benchmark in order.slots])
        finally:
            await _sweep(engine, run)

    async def _keep(self, engine: Engine, benchmark: str, route: Route, order: WorkerOrder) -> None:
        of = order.part(benchmark).benchmark
        image = await to_the_end(engine.worker_image, of, self._image_name(order.run, of))
        spec = ContainerSpec(self.own(order.run), benchmark, image, route, order, _label(order))

        if spec.downloads:
            await fetch_into_volume(engine, spec)

        async def start(name: str) -> Container:
            return await Container.start(engine, spec, name)

        def on_death(name: str, death: Death) -> None:
            order.explain(name, f"worker {name} {death}")

        await keep_worker(
            benchmark, start, rules=order.rules, results_of=order.results_of, on_death=on_death, given_up=order.given_up
        )

    def _image_name(self, run: RunSettings, benchmark: str) -> str:
        """Returns the image that workers of a benchmark are made from."""
        return self.own(run).image.get(benchmark) or image_of(benchmark)


async def _sweep(engine: Engine, run: str) -> None:
    """Removes what is left of our containers: one that was being made when we were told to stop."""
    try:
        for container in await to_the_end(engine.containers, run):
            if container.labels.get(OWNER_LABEL) == owner():
                await to_the_end(engine.remove, container)
    except SparringError as error:
        log.warning("containers of this run may be left: %s Then remove them with: sparring clean", error)


def _label(order: WorkerOrder) -> str:
    """Returns what a run is called in the labels of its containers."""
    return str(order.folder.absolute())


def _what(container: Any) -> str:
    worker, run = container.labels.get(WORKER_LABEL, "?"), container.labels[RUN_LABEL]
    return f"{container.name} ({container.status}): worker {worker} of the run in {run!r}"

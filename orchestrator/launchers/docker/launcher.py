"""Workers as containers, one per benchmark, each from the benchmark's own image."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from sparring.orchestrator.launchers.base import Launcher, LaunchFailed, WorkerOrder
from sparring.orchestrator.launchers.docker.container import Container, to_the_end
from sparring.orchestrator.launchers.docker.container_spec import ContainerSpec
from sparring.orchestrator.launchers.docker.engine import OWNER_LABEL, Engine, EngineFailed, connect, image_of, owner
from sparring.orchestrator.launchers.docker.route import Route, find_route
from sparring.orchestrator.launchers.keep_alive import Death, keep_all, keep_worker
from sparring.orchestrator.settings import RunSettings
from sparring.protos.errors import SparringError

log = logging.getLogger(__name__)


def image_name(settings: RunSettings, benchmark: str) -> str:
    """The image that workers of a benchmark are made from."""
    return settings.image.get(benchmark) or image_of(benchmark)


def check(settings: RunSettings) -> None:
    """Looks for whatever would keep workers in containers from starting, before anything is started.

    Raises:
        SparringError: With what to do about it.
    """
    engine = connect()
    for part in settings.parts:
        engine.worker_image(part.benchmark, image_name(settings, part.benchmark))
    find_route(settings, engine)


class DockerLauncher(Launcher):
    """One container per benchmark: limited, without rights, removed on every way out.

    Args:
        settings: Of the run.
        folder: Of the run; its containers are labelled with it.
        results_of: How many results a worker has delivered; one that delivers is worth replacing.
        explain: Told why a worker died, where that is known: its name and a sentence.
    """

    def __init__(
        self,
        settings: RunSettings,
        folder: Path,
        results_of: Callable[[str], int],
        explain: Callable[[str, str], None],
    ) -> None:
        self._settings = settings
        self._run = str(folder.absolute())
        self._results_of = results_of
        self._explain = explain

    async def run(self, order: WorkerOrder) -> None:
        try:
            await self._run_in(await to_the_end(connect), order)
        except EngineFailed as error:
            raise LaunchFailed(str(error)) from error

    async def _run_in(self, engine: Engine, order: WorkerOrder) -> None:
        route = await to_the_end(find_route, self._settings, engine)
        for container in await to_the_end(engine.leftovers, self._run):
            log.info("removing %s, left by an earlier session of this run", container.name)
            await to_the_end(engine.remove, container)
        try:
            await keep_all([self._keep(engine, benchmark, route, order) for benchmark in order.slots])
        finally:
            await self._sweep(engine)

    async def _keep(self, engine: Engine, benchmark: str, route: Route, order: WorkerOrder) -> None:
        image = await to_the_end(engine.worker_image, benchmark, image_name(self._settings, benchmark))
        spec = ContainerSpec(self._settings, benchmark, image, route, order, self._run)

        async def start(name: str) -> Container:
            return await Container.start(engine, spec, name)

        def on_death(name: str, death: Death) -> None:
            self._explain(name, f"worker {name} {death}")

        await keep_worker(benchmark, start, rules=order.rules, results_of=self._results_of, on_death=on_death)

    async def _sweep(self, engine: Engine) -> None:
        """Removes what is left of our containers: one that was being made when we were told to stop."""
        try:
            for container in await to_the_end(engine.containers, self._run):
                if container.labels.get(OWNER_LABEL) == owner():
                    await to_the_end(engine.remove, container)
        except SparringError as error:
            log.warning("containers of this run may be left: %s Then remove them with: sparring clean", error)

"""Workers as containers, one per benchmark, each from the benchmark's own image."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import socket
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from env_worker.addresses import HOST_VARIABLE
from env_worker.memory import format_memory
from orchestrator.containers import (
    OWNER_LABEL,
    RUN_LABEL,
    WORKER_LABEL,
    Engine,
    EngineFailed,
    Image,
    connect,
    owner,
    refusal,
    release,
)
from orchestrator.launchers.base import Launcher, LaunchFailed, WorkerOrder
from orchestrator.launchers.keep import Death, keep_all, keep_worker
from orchestrator.launchers.reach import HOST_NAME, Reach, find_reach
from orchestrator.plan import assets_of, assets_variable, takes_assets
from orchestrator.settings import RunSettings, parse_memory
from orchestrator.supervise import last_words
from protos.errors import SparringError

log = logging.getLogger(__name__)

T = TypeVar("T")

ASSETS_VOLUME: Final = "sparring-assets"
_GIB: Final = 2**30
_USER: Final = "10001:10001"
"""For images that name no user: nothing here runs as root."""
_CACHE: Final = "/cache"
_TMP: Final = "rw,nosuid,nodev,mode=1777,size=1g"
_LOOK_SECONDS: Final = 2.0
_LAST_LINES_SECONDS: Final = 5.0
_NOT_A_WORKER: Final = (126, 127)
"""What shells and engines exit with when there is no such program in a container."""


def image_name(settings: RunSettings, benchmark: str) -> str:
    """The image that workers of a benchmark are made from."""
    return settings.image.get(benchmark) or f"sparring/{benchmark}:{release()}"


def check(settings: RunSettings) -> None:
    """Looks for whatever would keep workers in containers from starting, before anything is started.

    Raises:
        SparringError: With what to do about it.
    """
    engine = connect()
    for part in settings.parts:
        engine.worker_image(part.benchmark, image_name(settings, part.benchmark))
    find_reach(settings, engine)


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
            await self._run_in(await _to_the_end(connect), order)
        except EngineFailed as error:
            raise LaunchFailed(str(error)) from error

    async def _run_in(self, engine: Engine, order: WorkerOrder) -> None:
        reach = await _to_the_end(find_reach, self._settings, engine)
        for container in await _to_the_end(engine.leftovers, self._run):
            log.info("removing %s, left by an earlier session of this run", container.name)
            await _to_the_end(engine.remove, container)
        try:
            await keep_all([self._keep(engine, benchmark, reach, order) for benchmark in order.slots])
        finally:
            await self._sweep(engine)

    async def _keep(self, engine: Engine, benchmark: str, reach: Reach, order: WorkerOrder) -> None:
        image = await _to_the_end(engine.worker_image, benchmark, image_name(self._settings, benchmark))
        recipe = _Recipe(self._settings, benchmark, image, reach, order, self._run)

        async def start(name: str) -> _Container:
            return await _Container.start(engine, recipe, name)

        def on_death(name: str, death: Death) -> None:
            self._explain(name, f"worker {name} {death}")

        await keep_worker(benchmark, start, results_of=self._results_of, on_death=on_death)

    async def _sweep(self, engine: Engine) -> None:
        """Removes what is left of our containers: one that was being made when we were told to stop."""
        try:
            for container in await _to_the_end(engine.containers, self._run):
                if container.labels.get(OWNER_LABEL) == owner():
                    await _to_the_end(engine.remove, container)
        except SparringError as error:
            log.warning("containers of this run may be left: %s Then remove them with: sparring clean", error)


class _Recipe:
    """What a container of one benchmark is made of."""

    def __init__(
        self, settings: RunSettings, benchmark: str, image: Image, reach: Reach, order: WorkerOrder, run: str
    ) -> None:
        self.image = image.name
        self.log = order.logs / f"worker-{benchmark}.log"
        slots = order.slots[benchmark]
        self.memory = parse_memory(settings.worker_memory) or int((1 + 1.5 * slots) * _GIB)
        self._benchmark = benchmark
        self._order = order
        self._run = run
        self._settings = settings
        self._image = image
        self._reach = reach
        self._pids = settings.worker_pids or 256 + 128 * slots

    def options(self, name: str) -> dict[str, Any]:
        """For the SDK's `containers.create`."""
        from docker.types import DeviceRequest

        short = hashlib.sha256(f"{socket.gethostname()}:{self._run}".encode()).hexdigest()[:8]
        mounts, tmpfs, variables = self._storage()
        address = self._reach.dial(self._order.orchestrator, self._order.public)
        gpus = self._settings.worker_gpus == "all"
        if gpus:  # "all", for EGL: by default a container gets CUDA without graphics
            variables |= {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "all"}
        if self._reach.needs_name:
            variables[HOST_VARIABLE] = HOST_NAME
        return {
            "image": self.image,
            "command": ["worker", *self._order.arguments(self._benchmark, name, orchestrator=address)],
            "name": f"sparring-{short}-{name}",
            "labels": {RUN_LABEL: self._run, WORKER_LABEL: name, OWNER_LABEL: owner()},
            "environment": variables,
            "user": _USER if self._image.user.partition(":")[0] in ("", "0", "root") else None,
            "mem_limit": self.memory,
            "memswap_limit": self.memory,  # no swap: a worker that pages is worse than one that is replaced
            "pids_limit": self._pids,
            "cap_drop": ["ALL"],
            "security_opt": ["no-new-privileges"],
            "read_only": True,
            "tmpfs": tmpfs,
            "mounts": mounts,
            "extra_hosts": {HOST_NAME: "host-gateway"} if self._reach.needs_name else None,
            "device_requests": [DeviceRequest(count=-1, capabilities=[["gpu"]])] if gpus else None,
        }

    def _storage(self) -> tuple[list[Any], dict[str, str], dict[str, str]]:
        from docker.types import Mount

        shown = list(self._reach.folders)
        if self._reach.kind == "unix":
            shown.append(self._order.sockets)
        cache = self._image.environment.get("XDG_CACHE_HOME", _CACHE)
        tmpfs, variables = {"/tmp": _TMP, cache: _TMP}, {"XDG_CACHE_HOME": cache}
        mounts = []
        part = next(part for part in self._settings.parts if part.benchmark == self._benchmark)
        assets = assets_of(self._settings, part)
        if assets is not None:
            shown.append(assets)
            variables[assets_variable(self._benchmark)] = str(assets)
        elif takes_assets(self._benchmark):  # downloaded once, for all runs
            mounts.append(Mount(cache, ASSETS_VOLUME, type="volume"))
            del tmpfs[cache]
        mounts += [Mount(str(path), str(path), type="bind", read_only=True) for path in dict.fromkeys(shown)]
        return mounts, tmpfs, variables


class _Container:
    """A worker's container, as the keeper sees it."""

    def __init__(self, engine: Engine, recipe: _Recipe, name: str, container: Any) -> None:
        self._engine = engine
        self._recipe = recipe
        self._name = name
        self._container = container
        self.log = recipe.log
        self._lines = _LogFollower(engine, container, recipe.log)

    @classmethod
    async def start(cls, engine: Engine, recipe: _Recipe, name: str) -> _Container:
        recipe.log.parent.mkdir(parents=True, exist_ok=True)
        recipe.log.touch()
        container = await _to_the_end(_create, engine, recipe, name)
        return cls(engine, recipe, name, container)

    async def wait(self) -> Death:
        """Waits for the container's end, looking after it now and then: an engine that hangs does not say so."""
        self._lines.start()
        while True:
            await self._lines.ended(_LOOK_SECONDS)
            state = await _to_the_end(self._state)
            if state is None:
                return Death(137, "is gone: somebody removed its container")
            if not state.get("Running"):
                await self._lines.ended(_LAST_LINES_SECONDS)
                return self._death(state)
            self._lines.start()  # again, if the stream broke and the container lives

    async def end(self) -> None:
        try:
            # Nothing in there needs a goodbye, and nobody waits for one: episodes without a result run again.
            await _to_the_end(self._engine.remove, self._container)
        except SparringError as error:
            log.warning("%s is left: %s Then remove it with: sparring clean", self._container.name, error)
        finally:
            self._lines.close()

    def last_words(self) -> str:
        words = last_words(self.log)
        return f"{words}\n(The image is {self._recipe.image!r}: is it a Sparring worker of this release?)"

    def _state(self) -> Mapping[str, Any] | None:
        from docker.errors import NotFound

        try:
            with self._engine.explained():
                self._container.reload()
        except NotFound:
            return None
        state: Mapping[str, Any] = self._container.attrs["State"]
        return state

    def _death(self, state: Mapping[str, Any]) -> Death:
        code = int(state.get("ExitCode", 1))
        if state.get("OOMKilled"):
            return Death(code, f"was killed: {_out_of_memory(self._recipe.memory)}")
        if code in _NOT_A_WORKER:
            raise _not_a_worker(self._recipe.image, last_words(self.log, 3))
        return Death(code)


class _LogFollower:
    """Copies what a container says into a file, in a thread of its own: the SDK's stream blocks."""

    def __init__(self, engine: Engine, container: Any, path: Path) -> None:
        self._engine = engine
        self._container = container
        self._path = path
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._ended.set()
        self._stream: Any = None
        self._copied = 0

    def start(self) -> None:
        """Begins, or goes on if the stream has broken."""
        if self._ended.is_set():
            self._ended.clear()
            threading.Thread(target=self._follow, name=f"log of {self._container.name}", daemon=True).start()

    async def ended(self, seconds: float) -> None:
        """Waits for the end of the log, or so long."""
        try:
            await asyncio.wait_for(self._ended.wait(), seconds)
        except TimeoutError:
            return

    def close(self) -> None:
        """Ends the copying."""
        if self._stream is not None:
            self._stream.close()

    def _follow(self) -> None:
        try:
            with self._engine.explained(), self._path.open("ab", buffering=0) as sink:
                self._stream = self._container.logs(stream=True, follow=True, stdout=True, stderr=True)
                skip = self._copied  # a stream begins at the beginning
                for block in self._stream:
                    new = block[skip:]
                    skip -= len(block) - len(new)
                    sink.write(new)
                    self._copied += len(new)
        except Exception as error:  # noqa: BLE001  # the boundary of a thread: whoever waits for us looks at the container
            log.debug("the log of %s broke off: %s", self._container.name, error)
        finally:
            self._loop.call_soon_threadsafe(self._ended.set)


def _create(engine: Engine, recipe: _Recipe, name: str) -> Any:
    from docker.errors import APIError

    container = None
    try:
        with engine.explained():
            try:
                container = engine.client.containers.create(**recipe.options(name))
                container.start()
            except APIError as error:
                raise _cannot_start(error, recipe, name) from error
    except BaseException:
        if container is not None:
            engine.remove(container)
        raise
    return container


def _cannot_start(error: Any, recipe: _Recipe, name: str) -> LaunchFailed:
    said = refusal(error)
    if "executable file not found" in said or ("no such file or directory" in said.lower() and "exec" in said):
        return _not_a_worker(recipe.image, said)
    if "no such image" in said.lower():
        return LaunchFailed(f"the image {recipe.image!r} is gone; build it again and resume.")
    if "gpu" in said.lower() or "nvidia" in said.lower():
        return LaunchFailed(
            f"containers get no GPU here: {said} Install the NVIDIA container toolkit, or use --worker-gpus none."
        )
    if "OOM" in said:  # the limit is too small for the container to come up at all
        return LaunchFailed(f"worker {name} was killed as it started: {_out_of_memory(recipe.memory)}")
    if error.status_code == 409:
        return LaunchFailed(f"the container of worker {name} cannot be made: {said} Remove it with: sparring clean")
    return LaunchFailed(f"the container of worker {name} cannot be started from the image {recipe.image!r}: {said}")


def _not_a_worker(image: str, said: str) -> LaunchFailed:
    return LaunchFailed(
        f"the image {image!r} is not a Sparring worker: it has no `sparring worker`. Name one that has with --image. "
        f"It said: {said}"
    )


def _out_of_memory(limit: int) -> str:
    return f"out of memory (OOM) at its limit of {format_memory(limit)}; raise --worker-memory or lower --slots"


async def _to_the_end(function: Callable[..., T], *arguments: Any) -> T:
    """Runs a blocking call in a thread; when cancelled it still sees the call's end, as it may make a container."""
    call = asyncio.ensure_future(asyncio.to_thread(function, *arguments))
    try:
        return await asyncio.shield(call)
    except asyncio.CancelledError:
        await asyncio.wait([call])
        if not call.cancelled():
            call.exception()  # seen
        raise

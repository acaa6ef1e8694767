"""The life of one worker's container: made, followed, looked after, removed."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from sparring.env_worker.worker.memory import format_memory
from sparring.orchestrator.launchers.base import LaunchFailed
from sparring.orchestrator.launchers.docker.container_spec import ContainerSpec
from sparring.orchestrator.launchers.docker.engine import Engine, refusal
from sparring.orchestrator.launchers.keep_alive import Death
from sparring.orchestrator.launchers.to_the_end import to_the_end
from sparring.orchestrator.machine.logs import last_words, shorten, tail_of
from sparring.protos.advice import Hint
from sparring.protos.errors import SparringError

log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 2.0
_LAST_LINES_SECONDS: Final = 5.0
_NOT_A_WORKER: Final = (126, 127)
"""What shells and engines exit with when there is no such program in a container."""


class Container:
    """A worker's container, as the keeper sees it."""

    def __init__(self, engine: Engine, spec: ContainerSpec, name: str, container: Any) -> None:
        self._engine = engine
        self._spec = spec
        self._name = name
        self._container = container
        self.log = spec.log
        self._lines = _LogFollower(engine, container, spec.log)

    @classmethod
    async def start(cls, engine: Engine, spec: ContainerSpec, name: str) -> Container:
        spec.log.parent.mkdir(parents=True, exist_ok=True)
        spec.log.touch()
        container = await to_the_end(_create, engine, spec, name)
        return cls(engine, spec, name, container)

    async def wait(self) -> Death:
        """Waits for the container's end, looking after it now and then: an engine that hangs does not say so."""
        self._lines.start()
        while True:
            await self._lines.ended(_LOOK_SECONDS)
            state = await to_the_end(self._state)
            if state is None:
                return Death(137, "is gone: somebody removed its container")
            if not state.get("Running"):
                await self._lines.ended(_LAST_LINES_SECONDS)
                return self._death(state)
            if (health := state.get("Health") or {}).get("Status") == "unhealthy":
                return Death(
                    1, f"is unhealthy: its health check failed {health.get('FailingStreak', 0)} times in a row"
                )
            self._lines.start()  # again, if the stream broke and the container lives

    async def end(self) -> None:
        try:
            # Nothing in there needs a goodbye, and nobody waits for one: episodes without a result run again.
            await to_the_end(self._engine.remove, self._container)
        except SparringError as error:
            log.warning("%s is left: %s Then remove it with: sparring clean", self._container.name, error)
        finally:
            self._lines.close()

    def last_words(self) -> str:
        words, image = last_words(self.log), self._spec.image
        if "error: " + words in tail_of(self.log):  # a sentence of ours says what is wrong
            return f"{words}\n(The image is {image!r}.)"
        return f"{words}\n(The image is {image!r}: is it a Sparring worker of this release?)"

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
            return Death(code, f"was killed: {_out_of_memory(self._spec.memory)}")
        if code in _NOT_A_WORKER:
            raise _not_a_worker(self._spec.image, last_words(self.log, 3))
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
            async with asyncio.timeout(seconds):
                await self._ended.wait()
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
                    shorten(self._path)
        except Exception as error:  # noqa: BLE001  # the boundary of a thread: whoever waits for us looks at the container
            log.debug("the log of %s broke off: %s", self._container.name, error)
        finally:
            self._loop.call_soon_threadsafe(self._ended.set)


def _create(engine: Engine, spec: ContainerSpec, name: str) -> Any:
    from docker.errors import APIError

    container = None
    try:
        with engine.explained():
            try:
                container = engine.client.containers.create(**spec.options(name))
                _start(container, spec.secret)
            except APIError as error:
                raise _cannot_start(error, spec, name) from error
    except BaseException:
        if container is not None:
            engine.remove(container)
        raise
    return container


def _start(container: Any, secret: str) -> None:
    """Starts a container and says a secret to it, as a line on its standard input."""
    stream = container.attach_socket(params={"stdin": 1, "stream": 1})  # before, so that nothing can get lost
    try:
        container.start()
        # What the SDK returns wraps the socket, or is it, as the engine's address has it.
        getattr(stream, "_sock", stream).sendall(f"{secret}\n".encode())
    finally:
        stream.close()


def _cannot_start(error: Any, spec: ContainerSpec, name: str) -> LaunchFailed:
    said = refusal(error)
    if "executable file not found" in said or ("no such file or directory" in said.lower() and "exec" in said):
        return _not_a_worker(spec.image, said)
    if "no such image" in said.lower():
        return LaunchFailed(f"the image {spec.image!r} is gone; build it again and resume.")
    if "gpu" in said.lower() or "nvidia" in said.lower():
        return LaunchFailed(
            f"containers get no GPU here: {said} Install the NVIDIA container toolkit, or use "
            f"{Hint('worker_gpus', value='none')}."
        )
    if "OOM" in said:  # the limit is too small for the container to come up at all
        return LaunchFailed(f"worker {name} was killed as it started: {_out_of_memory(spec.memory)}")
    if error.status_code == 409:
        return LaunchFailed(f"the container of worker {name} cannot be made: {said} Remove it with: sparring clean")
    return LaunchFailed(f"the container of worker {name} cannot be started from the image {spec.image!r}: {said}")


def _not_a_worker(image: str, said: str) -> LaunchFailed:
    return LaunchFailed(
        f"the image {image!r} is not a Sparring worker: it has no `sparring worker`. Name one that has with "
        f"{Hint('image')}. "
        f"It said: {said}"
    )


def _out_of_memory(limit: int) -> str:
    advice = f"raise {Hint('worker_memory')} or lower {Hint('slots')}"
    return f"out of memory (OOM) at its limit of {format_memory(limit)}; {advice}"

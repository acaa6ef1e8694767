"""Assets that nobody has named, downloaded before workers start: these then need no network, and cannot change them."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from sparring.orchestrator.launchers.base import LaunchFailed
from sparring.orchestrator.launchers.docker.container_spec import ContainerSpec
from sparring.orchestrator.launchers.docker.engine import Engine
from sparring.orchestrator.launchers.to_the_end import to_the_end

log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 0.5


async def fetch_into_volume(engine: Engine, spec: ContainerSpec) -> None:
    """Downloads a benchmark's assets into the volume of all runs, in a container of its own, if they are not there.

    Takes as long as a download does, and can be cancelled.

    Raises:
        LaunchFailed: If they cannot be had, with what the container said.
    """
    container = await to_the_end(_start, engine, spec)
    try:
        while (state := await to_the_end(_state, engine, container)).get("Running"):
            await asyncio.sleep(_LOOK_SECONDS)
        if state.get("ExitCode") != 0:
            raise LaunchFailed(await to_the_end(_last_words, engine, container))
    finally:
        await to_the_end(engine.remove, container)


def _start(engine: Engine, spec: ContainerSpec) -> Any:
    with engine.explained():
        container = engine.client.containers.create(**spec.fetching())
        container.start()
    return container


def _state(engine: Engine, container: Any) -> dict[str, Any]:
    with engine.explained():
        container.reload()
    state: dict[str, Any] = container.attrs["State"]
    return state


def _last_words(engine: Engine, container: Any) -> str:
    with engine.explained():
        said = container.logs(tail=20).decode(errors="replace")
    sentence = said.rpartition("error: ")[2].strip()  # ours, or whatever else it said last
    return sentence or "the assets cannot be downloaded, and their container does not say why."

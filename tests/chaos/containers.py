"""Workers in containers, to be killed, paused, removed and cut off."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any, Final

import psutil

from sparring.orchestrator.launchers.docker.engine import RUN_LABEL, Engine, connect

_OF_EVERYBODY: Final = ("bridge", "host", "none")
"""Networks that an engine has by itself."""


class Containers:
    """Those of the runs in a folder.

    Args:
        folder: Of the runs.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._engine: Engine = connect()
        self._volumes: set[str] = set()
        self._networks: set[str] = set()

    def found(self) -> list[Any]:
        """Returns those that there are, and keeps in mind what they use."""
        mine = [c for c in self._engine.containers() if c.labels[RUN_LABEL].startswith(str(self._folder))]
        for container in mine:
            self._volumes |= {mount["Name"] for mount in container.attrs["Mounts"] if mount["Type"] == "volume"}
            self._networks |= set(container.attrs["NetworkSettings"]["Networks"])
        return mine

    def processes(self) -> list[psutil.Process]:
        """Returns what runs in them, as this machine sees it."""
        found: list[psutil.Process] = []
        for container in self.found():
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                if container.attrs["State"]["Pid"]:
                    found += psutil.Process(container.attrs["State"]["Pid"]).children(recursive=True)
        return found

    def do(self, rng: Random, what: Callable[[Any], None]) -> bool:
        """Does something to one of those that run; returns whether there was one."""
        running = [container for container in self.found() if container.status == "running"]
        if not running:
            return False
        with _gone() as tried:
            what(rng.choice(running))
            tried.append(True)
        return bool(tried)

    def continue_(self, container: Any) -> None:
        """Lets one go on that was paused, if it is still there."""
        with _gone():
            container.unpause()

    def network(self) -> Any:
        """Returns the one that they reach this machine by."""
        return self._engine.client.networks.get("bridge")

    def left(self) -> list[str]:
        """Returns what is there of them after the end: containers, volumes of their own, networks."""
        left = [f"container: {container.name} ({container.status})" for container in self.found()]
        volumes = {volume.name for volume in self._engine.client.volumes.list()}
        networks = {network.name for network in self._engine.client.networks.list()}
        left += [f"volume: {name}" for name in sorted(self._volumes & volumes)]
        return left + [f"network: {name}" for name in sorted((self._networks - {*_OF_EVERYBODY}) & networks)]

    def remove(self) -> None:
        """Removes whatever is still there."""
        for container in self.found():
            self._engine.remove(container)


@contextmanager
def _gone() -> Iterator[list[bool]]:
    """Does without a container that has ended meanwhile."""
    from docker.errors import APIError

    with suppress(APIError):
        yield []

"""What a worker's container is made of: its image, limits, rights, storage and labels."""

from __future__ import annotations

import hashlib
import json
import socket
from typing import Any, Final

from sparring.env_worker.registry import get_benchmark
from sparring.env_worker.worker.addresses import HOST_VARIABLE
from sparring.orchestrator.launchers.base import TOKEN_FLAGS, WorkerOrder
from sparring.orchestrator.launchers.docker.engine import HARDENED, OWNER_LABEL, RUN_LABEL, WORKER_LABEL, Image
from sparring.orchestrator.launchers.docker.route import HOST_NAME, Route
from sparring.orchestrator.launchers.docker.settings import DockerSettings
from sparring.orchestrator.machine.memory import parse_memory
from sparring.orchestrator.machine.owner import owner
from sparring.orchestrator.settings.assets import assets_of, benchmark_settings

ASSETS_VOLUME: Final = "sparring-assets"
_GIB: Final = 2**30
_USER: Final = "10001:10001"
"""For images that name no user: nothing here runs as root."""
_CACHE: Final = "/cache"
_LOGS: Final = {"max-size": "50m", "max-file": "2"}
_TMP: Final = "rw,nosuid,nodev,mode=1777,size=1g"


class ContainerSpec:
    """What containers of one benchmark are made of.

    Args:
        own: The launcher's own settings.
        label: The part of the run that its workers are for.
        image: What they are made from.
        route: How they reach us.
        order: How many slots, and where things are.
        run: What the run is called in labels.
    """

    def __init__(
        self, own: DockerSettings, label: str, image: Image, route: Route, order: WorkerOrder, run: str
    ) -> None:
        self.image = image.name
        self.log = order.logs / f"worker-{label}.log"
        slots = order.slots[label]
        self.memory = parse_memory(own.worker_memory) or int((1 + 1.5 * slots) * _GIB)
        self.secret = order.join_token
        self._label = label
        self._part = order.part(label)
        self._benchmark = self._part.benchmark
        self._order = order
        self._run = run
        self._gpus = own.worker_gpus == "all"
        self._image = image
        self._route = route
        self._pids = own.worker_pids or 256 + 128 * slots

    def options(self, name: str) -> dict[str, Any]:
        """Returns the arguments of the SDK's `containers.create`."""
        from docker.types import DeviceRequest

        mounts, tmpfs, variables = self._storage()
        address = self._route.dial(self._order.orchestrator, self._order.public)
        if self._gpus:  # "all", for EGL: by default a container gets CUDA without graphics
            variables |= {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "all"}
        if self._route.needs_name:
            variables[HOST_VARIABLE] = HOST_NAME
        return {
            **self._limited(name),
            "command": ["worker", *self._order.arguments(self._label, name, orchestrator=address), *TOKEN_FLAGS],
            "stdin_open": True,  # for the token: whatever else a container is given, `docker inspect` shows
            "environment": variables,
            "network_mode": "none" if self._reaches_all_by_sockets else None,
            "tmpfs": tmpfs,
            "mounts": mounts,
            "extra_hosts": {HOST_NAME: "host-gateway"} if self._route.needs_name else None,
            "device_requests": [DeviceRequest(count=-1, capabilities=[["gpu"]])] if self._gpus else None,
        }

    @property
    def downloads(self) -> bool:
        """Whether its assets are in the volume of all runs, where they have to be downloaded once."""
        return get_benchmark(self._benchmark).assets is not None and assets_of(self._order.run, self._part) is None

    def fetching(self) -> dict[str, Any]:
        """Returns the arguments of `containers.create` for a container that downloads the assets, and nothing else."""
        from docker.types import Mount

        told = json.dumps(benchmark_settings(self._order.run, self._part))
        return {
            **self._limited(f"{self._label}-assets"),
            "command": ["fetch", self._benchmark, f"--settings={told}"],
            "environment": {"XDG_CACHE_HOME": self._cache},
            "tmpfs": {"/tmp": _TMP},
            "mounts": [Mount(self._cache, ASSETS_VOLUME, type="volume")],
        }

    def _limited(self, name: str) -> dict[str, Any]:
        from docker.types import LogConfig

        short = hashlib.sha256(f"{socket.gethostname()}:{self._run}".encode()).hexdigest()[:8]
        return {
            "image": self.image,
            "name": f"sparring-{short}-{name}",
            "labels": {RUN_LABEL: self._run, WORKER_LABEL: name, OWNER_LABEL: owner()},
            "user": _USER if self._image.user.partition(":")[0] in ("", "0", "root") else None,
            "mem_limit": self.memory,
            "memswap_limit": self.memory,  # no swap: a worker that pages is worse than one that is replaced
            "pids_limit": self._pids,
            **HARDENED,
            # What it says is copied as it comes; the engine's own copy must not fill the disk.
            "log_config": LogConfig(type=LogConfig.types.JSON, config=dict(_LOGS)),
        }

    @property
    def _cache(self) -> str:
        return self._image.environment.get("XDG_CACHE_HOME", _CACHE)

    @property
    def _reaches_all_by_sockets(self) -> bool:
        return self._route.kind == "unix" and all(server.is_unix for server in self._order.run.policy.servers)

    def _storage(self) -> tuple[list[Any], dict[str, str], dict[str, str]]:
        from docker.types import Mount

        shown = list(self._route.folders)
        if self._route.kind == "unix":
            shown.append(self._order.sockets)
        tmpfs, variables = {"/tmp": _TMP, self._cache: _TMP}, {"XDG_CACHE_HOME": self._cache}
        mounts = []
        folder, assets = assets_of(self._order.run, self._part), get_benchmark(self._benchmark).assets
        if assets is not None and folder is not None:
            shown.append(folder)
            variables[assets.variable] = str(folder)
        elif self.downloads:
            mounts.append(Mount(self._cache, ASSETS_VOLUME, type="volume", read_only=True))
            del tmpfs[self._cache]
        mounts += [Mount(str(path), str(path), type="bind", read_only=True) for path in dict.fromkeys(shown)]
        return mounts, tmpfs, variables

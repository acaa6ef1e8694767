"""How workers in containers reach the orchestrator and the policy: unix sockets in a shared folder, or TCP."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from sparring.orchestrator.launchers.docker.engine import Engine
from sparring.orchestrator.launchers.docker.settings import DockerSettings
from sparring.orchestrator.settings import RunSettings
from sparring.protos.advice import Hint
from sparring.protos.errors import UsageError
from sparring.protos.net.address import Address

HOST_NAME: Final = "host.docker.internal"
"""What this machine is called in a container."""
_SHARED_FOLDERS: Final = ("/", "/tmp", "/run", "/var/run", "/var/tmp", "/dev/shm")
"""Folders that are not a socket's own, however little is in them: of these only the socket is given to containers."""
_PROBE_SECONDS: Final = 3.0


@dataclass(frozen=True)
class Route:
    """The way from a container to this machine.

    Attributes:
        kind: By unix sockets, or by TCP.
        listen: Where the orchestrator must listen for it, if that is not as set.
        needs_name: Whether containers need a name for this machine.
        folders: That containers must see, at the same path, for the policy's sockets.
    """

    kind: Literal["unix", "tcp"]
    listen: Address | None
    needs_name: bool
    folders: tuple[Path, ...]

    def dial(self, local: Address, public: Address) -> Address:
        """Returns the orchestrator's address, as a container must dial it, from the two that it listens at."""
        if self.kind == "unix":
            return local
        return public.with_host(HOST_NAME) if public.is_local else public


def find_route(run: RunSettings, own: DockerSettings, engine: Engine) -> Route:
    """Finds the way that settings and engine allow.

    Raises:
        UsageError: If there is none, with what to set.
    """
    kind: Literal["auto", "unix", "tcp"] = own.worker_connection
    if kind == "auto":
        kind = "unix" if engine.local else "tcp"
    if kind == "unix" and not engine.local:
        raise UsageError(
            f"the container engine at {engine.address} is on another machine, where sockets of this one are not: use "
            f"{Hint('worker_connection', value='tcp')} with {Hint('listen', value='HOST:PORT')}."
        )
    if kind == "tcp" and run.worker.listen_tls_cert is not None:
        raise UsageError(
            "containers that dial this machine over TCP do not speak TLS with it: leave out "
            f"{Hint('listen_tls_cert')}, or use {Hint('worker_connection', value='unix')}."
        )
    servers = run.policy.servers
    local_servers = [server for server in servers if server.is_local and not server.is_unix]
    for server in local_servers:
        if server.is_encrypted:
            raise UsageError(
                f"{Hint('policy_server', value=str(server))} means the container itself to workers in containers, and "
                "its certificate is for a name: give the name by which this machine is reached."
            )
    _check_policy(local_servers, engine)
    listen = _listen(run.worker.listen_address, engine) if kind == "tcp" else None
    return Route(
        kind=kind,
        listen=listen,
        # Only where it is needed: not every engine can give it.
        needs_name=engine.local and ((kind == "tcp" and listen is None) or bool(local_servers)),
        folders=tuple(_folders(servers)),
    )


def _listen(given: Address | None, engine: Engine) -> Address | None:
    if given is None:
        gateway = engine.gateway() if engine.local else None
        if gateway is not None:
            return Address("tcp", gateway)  # any port; seen by containers and by nobody else
        raise UsageError(
            f"containers of the engine at {engine.address} need an address of this machine to dial: give it with "
            f"{Hint('listen', value='HOST:PORT')}."
        )
    if not engine.local and given.is_local:
        raise UsageError(
            f"{Hint('listen', value=str(given))} means nothing to containers of the engine at {engine.address}, "
            "which is on another machine: give the name or address by which this machine is reached from there."
        )
    if given.is_local and not given.is_every_interface:
        raise UsageError(
            f"{Hint('listen', value=str(given))} cannot be reached from containers: leave it out, give 0.0.0.0:PORT, "
            f"or use {Hint('worker_connection', value='unix')}."
        )
    return None


def _check_policy(local_servers: Iterable[Address], engine: Engine) -> None:
    for server in local_servers:
        if not engine.local:
            raise UsageError(
                f"{Hint('policy_server', value=str(server))} means another machine to containers of the engine at "
                f"{engine.address}: give the name or address by which this machine is reached from there."
            )
        gateway = engine.gateway()
        there = server if gateway is None else server.with_host(gateway)
        if gateway is not None and not _answers(there):
            raise UsageError(
                f"the policy server at {server} cannot be reached from containers: nothing listens at {there}. "
                f"Start it with `sparring serve --listen 0.0.0.0:{server.port}`, or with "
                "`sparring serve --listen unix:///path/policy.sock`, and name that."
            )


def _folders(servers: Iterable[Address]) -> Iterable[Path]:
    for server in servers:
        if server.is_unix:
            path = Path(server.path).absolute()
            # The folder, so that a server that is started again is found; but not with what else lies there.
            yield path.parent if _holds_only_sockets(path.parent) else path


def _holds_only_sockets(folder: Path) -> bool:
    if str(folder) in _SHARED_FOLDERS:
        return False
    try:
        return all(entry.is_socket() for entry in folder.iterdir())
    except FileNotFoundError:  # nothing is in there, and whoever needs it will say so
        return True
    except OSError:
        return False


def _answers(address: Address) -> bool:
    try:
        socket.create_connection((address.host, address.port), timeout=_PROBE_SECONDS).close()
    except OSError:
        return False
    return True

"""The container engine: found, spoken to through its standard API (Docker's, which podman speaks, too), and explained.

Every container of ours carries labels that say whose it is, so that what a killed orchestrator leaves can be found.
"""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from sparring.env_worker.registry import get_benchmark
from sparring.orchestrator.machine.owner import owner_state
from sparring.protos import WORK_PROTOCOL_VERSION
from sparring.protos.advice import Hint
from sparring.protos.errors import SparringError, UsageError
from sparring.protos.net.address import Address

RUN_LABEL: Final = "dev.sparring.run"
WORKER_LABEL: Final = "dev.sparring.worker"
OWNER_LABEL: Final = "dev.sparring.owner"
PROTOCOL_LABEL: Final = "dev.sparring.protocol"
BENCHMARK_LABEL: Final = "dev.sparring.benchmark"
"""On a worker's image: which benchmark it holds."""
ROLE_LABEL: Final = "dev.sparring.role"
"""On the other images: policy-server or orchestrator."""

HARDENED: Final[Mapping[str, Any]] = {
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges"],
    "read_only": True,
}
"""What every container of ours is made with."""

_ANSWER_SECONDS: Final = 60
_NETWORKS: Final = ("bridge", "podman")
"""What the engines call the network that containers are in by default."""


class EngineFailed(SparringError):
    """There is no container engine, or it does not do what it is asked."""


@dataclass(frozen=True)
class Image:
    """An image that is there.

    Attributes:
        name: As it was asked for.
        size: In bytes.
        labels: As built in.
        environment: As built in.
        user: That its programs run as; empty for root.
    """

    name: str
    size: int
    labels: dict[str, str]
    environment: dict[str, str]
    user: str


class Engine:
    """A container engine that has answered.

    Args:
        client: Of the docker SDK.
        address: For people.
    """

    def __init__(self, client: Any, address: str) -> None:
        self.client = client
        self.address = address

    @property
    def local(self) -> bool:
        """Whether containers run on this machine, as far as the address tells."""
        return urlsplit(self.address).scheme == "unix"

    def describe(self) -> str:
        """Returns name and version, for people."""
        with self.explained():
            about = self.client.version()
        podman = any("podman" in part.get("Name", "").lower() for part in about.get("Components") or [])
        return f"{'Podman' if podman else 'Docker'} {about['Version']} at {self.address}"

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Turns what the SDK raises into a sentence; "not found" is for the caller to explain."""
        from docker.errors import APIError, DockerException, NotFound
        from requests.exceptions import RequestException
        from urllib3.exceptions import HTTPError

        try:
            yield
        except NotFound:
            raise
        except APIError as error:
            raise EngineFailed(f"the container engine at {self.address} refuses: {refusal(error)}") from error
        except (DockerException, RequestException, HTTPError, OSError) as error:
            raise EngineFailed(
                f"the container engine at {self.address} does not answer any more ({_reason(error)}). Start it again "
                "(for Docker: sudo systemctl start docker)."
            ) from error

    def image(self, name: str) -> Image | None:
        """Returns the image of that name, if it is here."""
        from docker.errors import NotFound

        try:
            with self.explained():
                found = self.client.images.get(name).attrs
        except NotFound:
            return None
        config = found.get("Config") or {}
        variables = dict(entry.partition("=")[::2] for entry in config.get("Env") or [])
        return Image(name, found.get("Size", 0), config.get("Labels") or {}, variables, config.get("User") or "")

    def worker_image(self, benchmark: str, name: str) -> Image:
        """Returns the image that workers of a benchmark are made from.

        Raises:
            UsageError: If it is not here, or of another release; with what to do.
        """
        image = self.image(name)
        if image is None:
            raise UsageError(
                f"there is no image {name!r} for the benchmark {benchmark!r}. {_how_to_build(benchmark)}, get it with "
                f"`docker pull {name}`, or name another with {Hint('image', benchmark, 'NAME')}."
            )
        spoken = image.labels.get(PROTOCOL_LABEL)
        if spoken is not None and spoken != str(WORK_PROTOCOL_VERSION):
            raise UsageError(
                f"the image {name!r} speaks protocol version {spoken}, this orchestrator {WORK_PROTOCOL_VERSION}: "
                f"it is of another release. {_how_to_build(benchmark)}, or name another with "
                f"{Hint('image', benchmark, 'NAME')}."
            )
        return image

    def gateway(self) -> str | None:
        """Returns the address by which containers reach this machine, where the engine's network has one here."""
        from docker.errors import NotFound

        for name in _NETWORKS:
            try:
                with self.explained():
                    network = self.client.networks.get(name).attrs
            except NotFound:
                continue
            for part in (network.get("IPAM") or {}).get("Config") or []:
                if (address := part.get("Gateway")) and _is_of_this_machine(address):
                    return str(address)
        return None

    def containers(self, run: str | None = None) -> list[Any]:
        """Returns our containers, running or not; of one run, or of all."""
        wanted = RUN_LABEL if run is None else f"{RUN_LABEL}={run}"
        with self.explained():
            found = self.client.containers.list(all=True, filters={"label": wanted}, ignore_removed=True)
        return list(found)

    def leftovers(self, run: str | None = None) -> list[Any]:
        """Returns our containers that nobody watches over any more."""
        return [container for container in self.containers(run) if _is_left_over(container)]

    def remove(self, container: Any) -> None:
        """Ends a container, if it runs, and removes it with what it wrote."""
        from docker.errors import APIError, NotFound

        try:
            with self.explained():
                try:
                    container.remove(force=True, v=True)
                except APIError as error:
                    if error.status_code != 409:  # somebody else is removing it just now
                        raise
        except NotFound:
            pass


def connect() -> Engine:
    """Connects to the engine that DOCKER_HOST names, else Docker's on this machine, else podman's.

    Raises:
        UsageError: If the docker package is not installed.
        EngineFailed: If none answers, with what to do.
    """
    try:
        # Not just `import docker`: in our own checkout that would be happy with the folder of Dockerfiles.
        from docker.client import DockerClient, from_env
    except ImportError:
        raise UsageError(
            "containers need the docker package, which is not installed here: pip install 'sparring[docker]'"
        ) from None
    if named := os.environ.get("DOCKER_HOST"):
        return _connected(named, partial(from_env, version="auto", timeout=_ANSWER_SECONDS))
    there = [path for path in sockets() if path.exists()]
    failures: list[EngineFailed] = []
    for path in there:
        address = str(Address.unix(path))
        try:
            return _connected(
                address,
                partial(DockerClient, base_url=address, version="auto", timeout=_ANSWER_SECONDS),
            )
        except EngineFailed as failure:
            failures.append(failure)
    if failures:
        raise failures[0]
    raise EngineFailed(
        f"there is no container engine here: none of {', '.join(map(str, sockets()))} exists. Install and start Docker "
        "(sudo systemctl start docker) or podman (systemctl --user start podman.socket), or name one with DOCKER_HOST."
    )


def may_be_here() -> bool:
    """Returns whether runs of this installation may have had containers: there is an engine, and what talks to it."""
    try:
        version("docker")
    except PackageNotFoundError:
        return False
    if "DOCKER_HOST" in os.environ or any(path.exists() for path in sockets()):
        return True
    return any(shutil.which(command) for command in ("docker", "podman"))  # one that does not run may have some


def sockets() -> Sequence[Path]:
    """Returns where engines on this machine listen: Docker's, then podman's; a user's own, then the system's."""
    own = os.environ.get("XDG_RUNTIME_DIR")
    docker = [Path("/var/run/docker.sock"), *([Path(own, "docker.sock")] if own else [])]
    podman = [*([Path(own, "podman", "podman.sock")] if own else []), Path("/run/podman/podman.sock")]
    return [*docker, *podman]


def release() -> str:
    """Returns the version of sparring, which is also the tag of its images."""
    try:
        return version("sparring")
    except PackageNotFoundError:
        return "latest"


def image_of(benchmark: str) -> str:
    """Returns the image that workers of a benchmark are made from, where no other is named."""
    image = get_benchmark(benchmark).image
    if image is None and ":" in benchmark:
        module = benchmark.partition(":")[0]
        raise UsageError(
            f"the benchmark {benchmark!r} is a class of your own, and has no image. Its workers need one that has the "
            f"module {module!r} on its PYTHONPATH: build it, and name it with "
            f"{Hint('image', benchmark, 'me/mine:1.0')}, or in the class, image = WorkerImage('me/mine:1.0')."
        )
    name = f"sparring/{benchmark}" if image is None else image.name
    return name if ":" in name.rpartition("/")[2] else f"{name}:{release()}"


def refusal(error: Any) -> str:
    """Returns what an engine says when it refuses."""
    return str(error.explanation or error).strip().rstrip(".") + "."


def _connected(address: str, make: Callable[[], Any]) -> Engine:
    from docker.errors import DockerException
    from requests.exceptions import RequestException

    try:
        client = make()
        client.ping()
    except (DockerException, RequestException, OSError) as error:
        if "Permission denied" in str(error):
            raise EngineFailed(
                f"you may not use the container engine at {address}. Add yourself to the group docker (sudo usermod "
                "-aG docker $USER, then log in again), or use a rootless one and name it with DOCKER_HOST."
            ) from error
        raise EngineFailed(
            f"no container engine answers at {address} ({_reason(error)}). Start it (for Docker: sudo systemctl start "
            "docker), or name another with DOCKER_HOST."
        ) from error
    return Engine(client, address)


def _is_left_over(container: Any) -> bool:
    state = owner_state(container.labels.get(OWNER_LABEL, ""))
    return state == "dead" or (state == "unknown" and container.status in ("exited", "dead"))


def _how_to_build(benchmark: str) -> str:
    image = get_benchmark(benchmark).image
    if image is not None and image.build:
        return f"Build it with `{image.build}`"
    return "Build it from a Dockerfile of yours (docs/docker-launcher.md says what is needed)"


def _is_of_this_machine(address: str) -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


def _reason(error: BaseException) -> str:
    """Returns the innermost of the errors that the SDK wraps into each other."""
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__

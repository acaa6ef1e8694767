"""Smoke evaluations of images: each in the part it is made for, in containers without rights and without a network.

A worker's image can play all parts, so it is tried alone. The policy server and the orchestrator are tried with a
worker's image in the other parts; their containers share one loopback and see nothing else.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sparring.env_worker.registry import all_benchmarks, get_benchmark
from sparring.orchestrator.launchers.docker.engine import (
    BENCHMARK_LABEL,
    HARDENED,
    OWNER_LABEL,
    ROLE_LABEL,
    RUN_LABEL,
    WORKER_LABEL,
    Engine,
    Image,
    image_of,
    release,
)
from sparring.orchestrator.machine.owner import owner
from sparring.orchestrator.smoke.episode import SmokeFailed, policy_arguments, smoke_test
from sparring.protos.advice import FLAGS
from sparring.protos.errors import SparringError, UsageError
from sparring.protos.net.access import new_token

_ROLES: Final = ("policy-server", "orchestrator")
SECONDS: Final = 600.0
_PARTNER: Final = "metaworld"
"""The benchmark that the policy server's and the orchestrator's images are tried with."""
_INSIDE: Final = "/smoke"
_TOKEN: Final = "join-token"
"""The file with the secret that the worker joins with, among what comes of an evaluation while it goes on."""
_ASSETS: Final = "/assets"
_POLICY: Final = "127.0.0.1:50051"
_WORK: Final = "127.0.0.1:50052"
_MEMORY: Final = 4 << 30
_PIDS: Final = 512


@dataclass(frozen=True)
class Part:
    """A container of a smoke evaluation: which image, and what it is told to do."""

    image: str
    command: Sequence[str]


def image_names() -> list[str]:
    """Returns short names of the images: one of each benchmark that has one, and of each other part."""
    return [*(name for name, benchmark in all_benchmarks().items() if benchmark.image is not None), *_ROLES]


def full_name(image: str) -> str:
    """Returns an image's full name: a short one is one of our own, anything else is taken as it is."""
    if image in _ROLES:
        return f"sparring/{image}:{release()}"
    return image_of(image) if image in image_names() else image


def smoke_image(engine: Engine, name: str, folder: Path, *, assets: Path | None, seconds: float) -> str:
    """Puts an image through a smoke evaluation and returns what it has to say.

    Args:
        engine: That has the image.
        name: Of the image, short or full.
        folder: For what comes of it; made here.
        assets: Of the benchmark, where it needs any; None: the folder that the benchmark's variable names, if it does.
        seconds: After which it is given up.

    Raises:
        SmokeFailed: If it does not pass.
        SparringError: If it cannot be tried.
    """
    image = _find(engine, full_name(name))
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o777)  # for the user in the container, who is nobody here
    with ExitStack() as stack:
        stage = _Stage(engine, folder, assets or assets_named_for(image))
        stack.callback(stage.clear)
        stack.enter_context(_join_token(folder / _TOKEN))
        return stage.play(_parts(engine, image), seconds)


def assets_named_for(image: Image) -> Path | None:
    """Returns the folder that a variable names for the assets of an image's benchmark, as in a run; None: none.

    Raises:
        UsageError: If it is not there.
    """
    benchmark = all_benchmarks().get(image.labels.get(BENCHMARK_LABEL, ""))
    if benchmark is None or benchmark.assets is None or not (named := os.environ.get(benchmark.assets.variable)):
        return None
    if not Path(named).is_dir():
        raise UsageError(f"{benchmark.assets.variable}={named!r} is not a folder.")
    return Path(named)


@contextmanager
def _join_token(path: Path) -> Iterator[None]:
    """Has a secret in a file for a while, that the user in the containers can read: us, or another if we are root.

    It is good for nothing outside: what it opens listens at a loopback that nobody else has.
    """
    path.write_text(new_token() + "\n")
    path.chmod(0o600 if os.getuid() else 0o644)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def _find(engine: Engine, name: str) -> Image:
    image = engine.image(name)
    if image is None:
        raise UsageError(f"there is no image {name!r} here. Build ours with `make images`.")
    return image


def _parts(engine: Engine, image: Image) -> list[Part]:
    """Returns the containers to start, the one that decides last."""
    if benchmark := image.labels.get(BENCHMARK_LABEL):
        return [Part(image.name, ["smoke", "--here", benchmark, "--output", _INSIDE])]
    role = image.labels.get(ROLE_LABEL)
    if role not in _ROLES:
        raise UsageError(
            f"the image {image.name!r} does not say what it is: it has neither the label {BENCHMARK_LABEL} nor "
            f"{ROLE_LABEL} (docs/deployment.md)."
        )
    partner = _find(engine, full_name(_PARTNER)).name
    test = smoke_test(get_benchmark(_PARTNER))
    arguments = [f"--policy-arg={key}={json.dumps(value)}" for key, value in policy_arguments(test).items()]
    serve = ["serve", f"--policy={test.policy}", *arguments, f"--benchmark={_PARTNER}", f"--listen={_POLICY}"]
    here = ["smoke", "--here", _PARTNER, "--output", _INSIDE, "--policy-server", _POLICY]
    if role == "policy-server":
        return [Part(image.name, serve), Part(partner, here)]
    join = f"--join-token-file={_INSIDE}/{_TOKEN}"
    worker = [
        "worker",
        f"--orchestrator={_WORK}",
        f"--benchmark={_PARTNER}",
        "--slots=1",
        "--connect-timeout=120",
        join,
    ]
    return [
        Part(partner, serve),
        Part(partner, worker),
        Part(image.name, [*here, "--launcher", "none", "--listen", _WORK, join]),
    ]


class _Stage:
    """The containers of one evaluation."""

    def __init__(self, engine: Engine, folder: Path, assets: Path | None) -> None:
        self._engine = engine
        self._folder = folder.absolute()
        self._assets = assets
        self._containers: list[Any] = []

    def play(self, parts: Sequence[Part], seconds: float) -> str:
        """Starts all parts and waits for the last to end."""
        deadline = time.monotonic() + seconds
        for part in parts:
            self._start(part, alone=len(parts) == 1)
        code = self._wait(self._containers[-1], deadline)
        said = self._said(self._containers[-1])
        for number, container in enumerate(self._containers[:-1]):
            said_too = "\n".join(self._said(container))
            (self._folder / f"container-{number}.log").write_text(said_too)
        if code != 0:
            raise SmokeFailed(said[-1].removeprefix("error: ") if said else f"it ended with exit code {code}.")
        return said[-1]

    def clear(self) -> None:
        """Removes all containers."""
        for container in reversed(self._containers):
            self._engine.remove(container)

    def _start(self, part: Part, *, alone: bool) -> None:
        from docker.types import Mount

        mounts = [Mount(_INSIDE, str(self._folder), type="bind")]
        variables = {}
        if self._assets is not None:
            mounts.append(Mount(_ASSETS, str(self._assets.absolute()), type="bind", read_only=True))
            variables = {known.assets.variable: _ASSETS for known in all_benchmarks().values() if known.assets}
        if not self._containers:
            # A worker's image that brings no assets has to fetch them; nobody else needs to reach anything.
            network = None if alone and self._assets is None else "none"
        else:
            network = f"container:{self._containers[0].id}"
        with self._engine.explained():
            container = self._engine.client.containers.create(
                part.image,
                list(part.command),
                labels={RUN_LABEL: str(self._folder), WORKER_LABEL: "smoke", OWNER_LABEL: owner()},
                environment=variables,
                mounts=mounts,
                network_mode=network,
                user=f"{os.getuid()}:{os.getgid()}" if os.getuid() else None,
                mem_limit=_MEMORY,
                pids_limit=_PIDS,
                tmpfs={"/tmp": "mode=1777,size=1g", "/cache": "mode=1777,size=4g"},
                **HARDENED,
            )
            self._containers.append(container)
            container.start()

    def _wait(self, container: Any, deadline: float) -> int:
        while time.monotonic() < deadline:
            with self._engine.explained():
                container.reload()
            state = container.attrs["State"]
            if not state["Running"]:
                if state.get("OOMKilled"):
                    raise SmokeFailed(f"out of memory (OOM) at its limit of {_MEMORY >> 30} GiB.")
                return int(state["ExitCode"])
            time.sleep(0.2)
        said = self._said(container)
        raise SmokeFailed(f"it did not end in time; the last it said: {said[-1] if said else 'nothing'}")

    def _said(self, container: Any) -> list[str]:
        with self._engine.explained():
            return [line for line in container.logs().decode(errors="replace").splitlines() if line.strip()]


def explain(error: SparringError) -> str:
    """Tells a failure in one line."""
    return " ".join(error.told(FLAGS).split())

"""Episodes played again by workers in containers, one of which is killed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from container_support import BuildImage
from support import Sparring, StartSparring, wait_for

from sparring.orchestrator.launchers.docker.engine import Engine

pytestmark = pytest.mark.requires("docker")

PLAN = (
    "run", "--benchmark", "toy", "--task", "good", "--policy", "toy_policies:Wanderer", "--episodes", "4",
    "--benchmark-arg", "step_seconds=0.03",
)  # fmt: skip


@pytest.mark.parametrize("command", ["verify", "film"])
def test_a_killed_container_changes_nothing(
    command: str,
    usage: Sparring,
    start_sparring: StartSparring,
    engine: Engine,
    build_image: BuildImage,
) -> None:
    done = usage(*PLAN, "--in-process", "--output", "run")
    assert done.returncode == 0, done.stderr
    # What films are written with, which the toy has no use for otherwise.
    image = build_image("filming", "USER root", "RUN /opt/venv/bin/pip install --no-cache-dir av", "USER 10001")
    flags = ("--all",) if command == "verify" else ("--episodes", "all")
    process = start_sparring(
        command, "run", *flags, "--launcher", "docker", "--image", f"toy={image}", "--slots", "2", "--json"
    )

    def playing() -> list[Any]:
        # The run of a replay is in a folder of its own, wherever that is: known by the container's image.
        return [c for c in engine.containers() if image in c.image.tags and _processes(c) > 3]

    wait_for(playing, seconds=90)
    playing()[0].kill()
    said, logged = process.communicate(timeout=150)
    assert process.returncode == 0, logged
    told = json.loads(said)
    if command == "verify":
        assert told["problems"] == []
        assert {each["verdict"] for each in told["episodes"]} <= {"same", "close"}  # another Python may be in there
        assert len(told["episodes"]) == 8
    else:
        assert (len(told["films"]), told["missing"]) == (8, {})
    assert playing() == []


def _processes(container: Any) -> int:
    from docker.errors import APIError

    try:
        return len(container.top()["Processes"])
    except APIError:  # it has not started yet, or has ended since
        return 0

"""The pods of deploy/kubernetes as containers of Docker, as there is no Kubernetes: whether they can work together.

Each has the image, arguments, user, rights, files, memory and probes of its manifest; only the policy, the tasks and
the number of slots are others. A network without a way out has the names of the Services.
"""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import ROOT, recorded, wait_for

from sparring.orchestrator.launchers.docker.engine import Engine

pytestmark = [
    pytest.mark.requires("docker"),
    pytest.mark.skipif(os.getuid() != 0, reason="only root can give files to the user of pods"),
]

MANIFESTS = ROOT / "deploy" / "kubernetes"
PODS = {
    "policy-server": "policy-server",
    "orchestrator": "orchestrator",
    "worker-0": "worker-metaworld",
    "worker-1": "worker-metaworld",
}
"""What is started, and the manifest of each."""
WORKERS = ("worker-0", "worker-1")
EPISODES = 150
CHANGED = {
    "--policy": "--policy=expert --benchmark=metaworld",
    "--policy-arg": "",  # device=cuda
    "--task": "--task=reach-v3",
    "--episodes": f"--episodes={EPISODES}",
    "--slots": "--slots=2",
}
"""Flags of the manifests, and what stands for them here."""

Compose = Callable[..., subprocess.CompletedProcess[str]]


def documents(name: str) -> dict[str, dict[str, Any]]:
    """The documents of a manifest by their kind."""
    return {found["kind"]: found for found in yaml.safe_load_all((MANIFESTS / f"{name}.yaml").read_text())}


def pod(name: str) -> dict[str, Any]:
    (template,) = [found["spec"]["template"] for found in documents(name).values() if "template" in found["spec"]]
    return dict(template["spec"])


def service(name: str, folder: Path) -> dict[str, Any]:
    """What Compose starts for a pod."""
    spec = pod(PODS[name])
    (container,) = spec["containers"]
    user, security = spec["securityContext"], container["securityContext"]
    assert security["allowPrivilegeEscalation"] is False
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    mounts = []
    for mount in container["volumeMounts"]:
        volume, place = volumes[mount["name"]], folder / f"{name}-{mount['name']}"
        place.mkdir()
        os.chown(place, 0, user["fsGroup"])
        place.chmod(0o2777 if "emptyDir" in volume else 0o2775)
        for item in volume.get("secret", {}).get("items", ()):
            shutil.copy(folder / item["key"], place / item["path"])
            os.chown(place / item["path"], 0, user["fsGroup"])
            (place / item["path"]).chmod(volume["secret"]["defaultMode"])
        mounts.append(f"{place}:{mount['mountPath']}{':ro' if mount.get('readOnly') else ''}")
    given = [CHANGED.get(flag.partition("=")[0], flag) for flag in container["args"]]
    return {
        "image": container["image"],
        "command": " ".join(given).split(),
        "user": f"{user['runAsUser']}:{user['runAsGroup']}",
        "read_only": security["readOnlyRootFilesystem"],
        "cap_drop": security["capabilities"]["drop"],
        "security_opt": ["no-new-privileges:true"],
        "mem_limit": container["resources"]["limits"]["memory"].lower()[:-1],
        "volumes": mounts,
        # A worker whose run goes away ends, and its Job starts another pod.
        "restart": "on-failure" if name in WORKERS else "no",
    }


def commands_of_the_page() -> list[str]:
    """What docs/kubernetes.md has people make the secret with, but for what tells Kubernetes of it."""
    page = (ROOT / "docs" / "kubernetes.md").read_text()
    (block,) = re.findall(r"```sh\n(sparring token.*?)```", page, re.DOTALL)
    lines = block.replace("\\\n", " ").splitlines()
    return [line for line in lines if not line.startswith("kubectl")]


@pytest.fixture
def pods(images: dict[str, str], tmp_path: Path) -> Iterator[Compose]:
    """Runs `docker compose` for all of them; they are gone after the test."""
    sparring = f'sparring() {{ {sys.executable} -m sparring "$@"; }}'
    made = subprocess.run(
        ["bash", "-euc", "\n".join([sparring, *commands_of_the_page()])],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    services = {name: service(name, tmp_path) for name in PODS}
    file = tmp_path / "pods.yaml"
    file.write_text(json.dumps({"services": services, "networks": {"default": {"internal": True}}}))
    project = f"sparring-test-pods-{os.getpid()}"

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = ["docker", "compose", "--project-name", project, "--file", str(file), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    yield run
    run("down", "--volumes", "--timeout", "5")


def passes(pods: Compose, engine: Engine, name: str, kind: str) -> bool:
    """Whether a probe of a pod's container is content."""
    (container,) = pod(PODS[name])["containers"]
    probe = container[kind]
    if "exec" in probe:
        return pods("exec", "--no-TTY", name, *probe["exec"]["command"]).returncode == 0
    (port,) = [found["containerPort"] for found in container["ports"] if found["name"] == probe["tcpSocket"]["port"]]
    running = engine.client.containers.get(pods("ps", "--quiet", name).stdout.strip())
    (network,) = running.attrs["NetworkSettings"]["Networks"].values()
    try:
        socket.create_connection((network["IPAddress"], port), timeout=5).close()
    except OSError:
        return False
    return True


def has_ended(pods: Compose, engine: Engine, name: str) -> bool:
    """Whether a pod's container has ended, and well."""
    state = engine.client.containers.get(pods("ps", "--all", "--quiet", name).stdout.strip()).attrs["State"]
    assert state["Status"] != "exited" or name in WORKERS or state["ExitCode"] == 0, pods("logs", name).stdout
    return state["Status"] == "exited" and state["ExitCode"] == 0


def test_pods_work_together_and_a_lost_orchestrator_is_followed_by_one_that_goes_on(
    pods: Compose, engine: Engine, tmp_path: Path
) -> None:
    for names, kinds in (
        (("policy-server",), ("startupProbe", "readinessProbe", "livenessProbe")),
        (("orchestrator",), ("startupProbe", "readinessProbe", "livenessProbe")),
        (WORKERS, ("livenessProbe",)),
    ):
        up = pods("up", "--no-build", "--detach", *names)
        assert up.returncode == 0, up.stderr
        for name, kind in product(names, kinds):
            wait_for(partial(passes, pods, engine, name, kind), seconds=120)
    folder = tmp_path / "orchestrator-outputs" / "run"
    wait_for(lambda: recorded(folder) >= 2)
    pods("kill", "orchestrator")  # with its node; the Job starts another pod
    assert 2 <= recorded(folder) < EPISODES, "in the middle"
    assert pods("up", "--no-build", "--detach", "orchestrator").returncode == 0
    for name in ("orchestrator", *WORKERS):  # Jobs end by themselves
        wait_for(partial(has_ended, pods, engine, name), seconds=240)
    with (folder / "episodes.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["task"], row["outcome"]) for row in rows] == [("reach-v3", "success")] * EPISODES
    assert json.loads((folder / "run.json").read_text())["status"] == "finished"

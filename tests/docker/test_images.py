"""The images as they are built: what is in them, what is not, and what they weigh."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from container_support import inside
from support import ROOT, pins

from sparring.orchestrator.launchers.docker.engine import Engine, release
from sparring.protos import WORK_PROTOCOL_VERSION

pytestmark = pytest.mark.requires("docker")

MEGABYTES = {"metaworld": 900, "libero": 1200, "orchestrator": 350, "pusht": 700, "aloha": 1000}
DRAWING = ("metaworld", "libero", "aloha")
"""With GL."""
WORKERS = (*DRAWING, "pusht")
ALL = (*WORKERS, "policy-server", "orchestrator")


@pytest.mark.parametrize("name", ALL)
def test_an_image_says_what_it_is_and_runs_as_nobody(images: dict[str, str], engine: Engine, name: str) -> None:
    config = engine.client.images.get(images[name]).attrs["Config"]
    labels = config["Labels"]
    assert labels["org.opencontainers.image.title"] == f"sparring/{name}"
    assert labels["org.opencontainers.image.version"] == release()
    assert labels["dev.sparring.protocol"] == str(WORK_PROTOCOL_VERSION)
    assert labels.get("dev.sparring.benchmark") == (name if name in WORKERS else None)
    assert config["User"] == "sparring"
    assert config["Healthcheck"]["Test"]
    assert inside(images[name], "-u", entrypoint="id").stdout.strip() == "10001"


@pytest.mark.parametrize(("name", "megabytes"), MEGABYTES.items())
def test_an_image_is_small(images: dict[str, str], engine: Engine, name: str, megabytes: int) -> None:
    assert engine.client.images.get(images[name]).attrs["Size"] <= megabytes * 1e6


@pytest.mark.parametrize("name", ALL)
def test_an_image_has_no_compiler_and_a_worker_no_torch(images: dict[str, str], name: str) -> None:
    script = "for c in gcc cc g++ clang strip; do command -v $c && exit 1; done; exit 0"
    assert inside(images[name], "-c", script, entrypoint="sh").returncode == 0
    found = inside(
        images[name],
        "-c",
        "import importlib.util as u; print([m for m in ('torch', 'pip') if u.find_spec(m)])",
        entrypoint="/opt/venv/bin/python",
    )
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize("name", [*WORKERS, "policy-server"])
@pytest.mark.parametrize("user", ["sparring", "1234:1234"])
def test_an_images_cache_can_be_written_by_whoever_it_runs_as(images: dict[str, str], name: str, user: str) -> None:
    """As the smoke evaluation mounts it; older runtimes give a tmpfs the mode of the folder that it hides."""
    options = ("--rm", "--network", "none", "--user", user, "--tmpfs", "/cache:mode=1777,size=1m")
    command = ["docker", "run", *options, "--entrypoint", "mkdir", images[name], "/cache/sparring"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert said.returncode == 0, said.stderr


@pytest.mark.parametrize("name", DRAWING)
def test_doctor_says_what_renders_in_a_workers_image(images: dict[str, str], name: str) -> None:
    said = inside(images[name], "doctor")
    assert said.returncode == 0, said.stdout + said.stderr
    (line,) = [line for line in said.stdout.splitlines() if "(used by workers here)" in line]
    assert "rendering egl" in line
    assert "in software: llvmpipe" in line or "on the GPU" in line


def test_liberos_image_brings_what_robosuite_compiles(images: dict[str, str]) -> None:
    look = (
        "import numpy as np; from robosuite.utils.transform_utils import quat2mat as f; f(np.eye(4)[0]); print(f.stats)"
    )
    said = inside(
        images["libero"], "-c", f"cp -r /opt/numba /tmp/ && MUJOCO_GL=egl python -c '{look}'", entrypoint="sh"
    )
    assert "cache_misses={}" in said.stdout.replace("Counter()", "{}"), said.stdout + said.stderr
    assert "cache_hits={(" in said.stdout.replace("Counter(", ""), said.stdout


def test_output_that_cannot_be_written_is_a_sentence(images: dict[str, str]) -> None:
    run = ("run", "--benchmark=metaworld", "--task=reach-v3", "--policy-server=127.0.0.1:1", "--policy-timeout=1")
    said = inside(images["orchestrator"], *run, "--launcher=none", "--output=/outputs/first")
    assert said.returncode in (1, 2)
    assert "/outputs/first" in said.stderr
    assert "Traceback" not in said.stderr
    assert "read-only" in said.stderr.lower() or "cannot be" in said.stderr.lower()


def test_versions_in_an_image_are_those_it_is_pinned_to(images: dict[str, str]) -> None:
    listed = "{d.name.lower(): d.version for d in m.distributions()}"
    script = f"import json, importlib.metadata as m; print(json.dumps({listed}))"
    for name, constraints in (
        ("metaworld", ROOT / "docker/constraints/metaworld.txt"),
        ("orchestrator", ROOT / "docker/constraints/orchestrator.txt"),
        ("policy-server", ROOT / "docker/constraints/policy-server.txt"),
        ("libero", ROOT / "env_worker/environments/libero/constraints.txt"),
        ("aloha", ROOT / "env_worker/environments/aloha/constraints.txt"),
        ("pusht", ROOT / "env_worker/environments/pusht/constraints.txt"),
    ):
        found = json.loads(inside(images[name], "-c", script, entrypoint="/opt/venv/bin/python").stdout)
        apart = constraints.parent / "no-deps.txt"
        pinned = pins(constraints) | (pins(apart) if apart.exists() else {})
        unpinned = {p: v for p, v in found.items() if p != "sparring" and pinned.get(p.replace("_", "-")) != v}
        assert unpinned == {}, f"{name} has what {constraints.name} does not say"


def test_what_is_in_an_image_can_be_listed(images: dict[str, str]) -> None:
    command = [sys.executable, str(ROOT / "tools/list-image"), images["orchestrator"]]
    listed = json.loads(subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout)
    assert (listed["bomFormat"], listed["specVersion"]) == ("CycloneDX", "1.5")
    addresses = {component.get("purl", "").partition("?")[0] for component in listed["components"]}
    pinned = pins(ROOT / "docker/constraints/orchestrator.txt")
    assert {f"pkg:pypi/{name}@{version}" for name, version in pinned.items()} <= addresses
    assert any(address.startswith("pkg:deb/debian/libc6@") for address in addresses)


def test_an_image_says_what_it_was_made_from(images: dict[str, str], engine: Engine) -> None:
    for name in ALL:
        labels = engine.client.images.get(images[name]).attrs["Config"]["Labels"]
        assert labels["org.opencontainers.image.base.name"].startswith("python:3.11-slim-bookworm"), name


def test_a_file_with_another_hash_is_not_installed(tmp_path: Path) -> None:
    """The line of the Dockerfiles, with a hash that is wrong in one place."""
    lock = (ROOT / "docker/requirements/build.txt").read_text()
    wrong = re.sub(r"sha256:[0-9a-f]{8}", "sha256:00000000", lock)
    context = tmp_path / "context"
    context.mkdir()
    (context / "build.txt").write_text(wrong)
    install = "RUN python -m pip install --require-hashes -r /build/build.txt"
    (context / "Dockerfile").write_text(f"FROM python:3.11-slim-bookworm\nCOPY build.txt /build/\n{install}\n")
    assert install.removeprefix("RUN ") in (ROOT / "docker/metaworld.Dockerfile").read_text()
    command = ["docker", "build", "--progress=plain", str(context)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode != 0
    assert "DO NOT MATCH THE HASHES" in done.stderr


def test_the_policy_servers_extras_are_an_argument(engine: Engine) -> None:
    def build(extras: str) -> subprocess.CompletedProcess[str]:
        command = ["docker", "build", "--progress=plain", "-f", "docker/policy-server.Dockerfile"]
        return subprocess.run(
            [*command, "-t", "sparring-test/bare:1", "--build-arg", f"EXTRAS={extras}", "."],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )

    wrong = build("metaworld,tensorflow")
    assert wrong.returncode != 0
    assert "there is no extra 'tensorflow'" in wrong.stderr
    bare = build("")
    assert bare.returncode == 0, bare.stderr
    try:
        listed = inside("sparring-test/bare:1", "serve", "--policy=expert", "--benchmark=metaworld")
    finally:
        engine.client.images.remove("sparring-test/bare:1", force=True)
    assert listed.returncode == 2
    assert "pip install 'sparring[metaworld]'" in listed.stderr

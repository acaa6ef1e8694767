"""A real engine, and images of the toy benchmark's worker."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))  # for the helpers beside this file, whatever pytest's import mode

from container_support import PLAN, BuildImage, containers
from support import ROOT

from sparring.env_worker.assets import cache_folder
from sparring.orchestrator.launchers.docker.engine import Engine, connect
from sparring.orchestrator.smoke.images import full_name, image_names
from sparring.protos import WORK_PROTOCOL_VERSION

HERE = Path(__file__).parent
TAG = "sparring-test/toy"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test of each image waits until it is built, which takes minutes where nothing is cached."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.timeout(1500))


@pytest.fixture(scope="session")
def engine() -> Engine:
    return connect()


@pytest.fixture(scope="session")
def toy_image(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A worker image of this very code; its layer of dependencies is cached by the engine."""
    context = tmp_path_factory.mktemp("context")
    shutil.copytree(ROOT / "constraints", context / "constraints")
    skipped = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "src", context / "source", ignore=skipped)  # follows the links to the rooms
    shutil.copytree(ROOT / "tests" / "toy", context / "source", ignore=skipped, dirs_exist_ok=True)
    shutil.copy(HERE / "Dockerfile", context)
    _build(context, f"{TAG}:good", "--build-arg", f"PROTOCOL={WORK_PROTOCOL_VERSION}")
    return f"{TAG}:good"


@pytest.fixture
def build_image(engine: Engine, toy_image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BuildImage]:
    """Builds an image on top of the toy's; removed with the test."""
    built = []

    def build(name: str, *lines: str) -> str:
        context = tmp_path_factory.mktemp("context")
        (context / "Dockerfile").write_text("\n".join([f"FROM {toy_image}", *lines]))
        _build(context, f"{TAG}:{name}")
        built.append(f"{TAG}:{name}")
        return f"{TAG}:{name}"

    yield build
    for tag in built:
        engine.client.images.remove(tag, force=True)


@pytest.fixture(scope="session")
def images(engine: Engine) -> dict[str, str]:
    """Our own images, built from this code by the command that the README shows."""
    command = ["docker", "compose", "--profile", "libero", "build", "--quiet"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return {name: full_name(name) for name in image_names()}


@pytest.fixture(scope="session")
def libero_assets() -> Path:
    """Where LIBERO's meshes are; a test that wants them requires "libero-assets"."""
    return Path(os.environ.get("SPARRING_LIBERO_ASSETS") or cache_folder() / "libero-assets").resolve()


@pytest.fixture(autouse=True)
def _nothing_is_left(engine: Engine, tmp_path: Path) -> Iterator[None]:
    """Whatever a test does, its containers are gone after it."""
    yield
    for container in containers(engine, tmp_path):
        engine.remove(container)


@pytest.fixture(scope="session")
def calm(toy_image: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of the plan that these tests run, with workers as processes."""
    folder = tmp_path_factory.mktemp("calm")
    command = [sys.executable, "-m", "sparring", "run", *PLAN, "--output", "out"]
    subprocess.run(command, cwd=folder, check=True, timeout=120)
    return folder / "out"


def _build(context: Path, tag: str, *options: str) -> None:
    done = subprocess.run(
        ["docker", "build", "--quiet", "--tag", tag, *options, str(context)],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr

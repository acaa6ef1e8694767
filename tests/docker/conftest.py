"""A real engine, and images of the toy benchmark's worker."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))  # for the helpers beside this file, whatever pytest's import mode

from container_support import PLAN, BuildImage, build, build_toy, containers
from support import ROOT

from sparring.env_worker.assets import cache_folder
from sparring.orchestrator.launchers.docker.engine import Engine, connect
from sparring.orchestrator.smoke.images import full_name, image_names

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
    return build_toy(f"{TAG}:good", tmp_path_factory.mktemp("context"))


@pytest.fixture
def build_image(engine: Engine, toy_image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BuildImage]:
    """Builds an image on top of the toy's; removed with the test."""
    built = []

    def make(name: str, *lines: str) -> str:
        context = tmp_path_factory.mktemp("context")
        (context / "Dockerfile").write_text("\n".join([f"FROM {toy_image}", *lines]))
        build(context, f"{TAG}:{name}")
        built.append(f"{TAG}:{name}")
        return f"{TAG}:{name}"

    yield make
    for tag in built:
        engine.client.images.remove(tag, force=True)


@pytest.fixture(scope="session")
def images(engine: Engine) -> dict[str, str]:
    """Our own images, built from this code by the command that the README shows."""
    command = ["docker", "compose", "--profile", "*", "build", "--quiet"]
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

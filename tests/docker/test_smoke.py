"""`sparring smoke`: every image in its own part, and images that must not pass."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support import ROOT, Sparring

from sparring.orchestrator.launchers.docker.engine import Engine

pytestmark = pytest.mark.requires("docker")


def test_every_image_passes(
    sparring: Sparring,
    images: dict[str, str],
    libero_assets: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPARRING_LIBERO_ASSETS", str(libero_assets))
    done = sparring("smoke", "--output=smoke", timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = {line.split()[0]: line for line in done.stdout.splitlines()}
    assert set(lines) == set(images)
    assert all(line.split()[1] == "ok" for line in lines.values())
    assert "observation.image uint8 (480, 480, 3), observation.state float32 (4,)" in lines["metaworld"]
    assert "observation.images.image2 uint8 (256, 256, 3), observation.state float32 (8,)" in lines["libero"]
    assert "film of" in lines["orchestrator"]
    assert list((tmp_path / "smoke" / "metaworld").rglob("*.mp4"))


def test_an_image_that_cannot_render_fails(sparring: Sparring, images: dict[str, str], engine: Engine) -> None:
    lines = [f"FROM {images['metaworld']}", "USER 0", "RUN rm -f /usr/lib/*/libEGL.so.1 /usr/lib/*/libOSMesa.so.*"]
    tag = "sparring-test/blind:1"
    build = ["docker", "build", "--quiet", "--tag", tag, "-"]
    subprocess.run(build, input="\n".join([*lines, "USER sparring"]), text=True, timeout=120, check=True)
    try:
        done = sparring("smoke", "--image", tag, timeout=900)
    finally:
        engine.client.images.remove(tag, force=True)
    assert done.returncode == 1
    assert "FAILED" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_an_image_that_is_not_ours_is_named(sparring: Sparring, images: dict[str, str]) -> None:
    dockerfile = (ROOT / "docker/metaworld.Dockerfile").read_text()
    assert "ARG BASE_IMAGE=python:3.11-slim-bookworm" in dockerfile
    done = sparring("smoke", "--image", "python:3.11-slim-bookworm", "--image", "no/such:image")
    assert done.returncode == 1
    assert "does not say what it is" in done.stdout
    assert "there is no image 'no/such:image' here" in done.stdout


def test_what_is_installed_here_can_be_tried_without_containers(sparring: Sparring) -> None:
    done = sparring("smoke", "--here", "metaworld")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("reach-v3: success in")


def test_wrong_usage_is_a_sentence(sparring: Sparring) -> None:
    assert "either --image or --here" in sparring("smoke", "--here", "metaworld", "--image", "libero").stderr
    assert "is not a folder" in sparring("smoke", "--assets", "nowhere").stderr
    assert "'toyx'" in sparring("smoke", "--here", "toyx").stderr

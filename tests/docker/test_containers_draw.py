"""Workers in containers choose among the EGL devices of their container, as any others do."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from egl_drivers import DYING, MESA, compiled
from support import Sparring, read_csv

from sparring.orchestrator.launchers.docker.engine import Engine

pytestmark = pytest.mark.requires("docker", "cc")

DRIVER = '{"file_format_version": "1.0.0", "ICD": {"library_path": "%s"}}'


def test_a_driver_that_aborts_is_found_out_in_a_container(
    sparring: Sparring, images: dict[str, str], engine: Engine, tmp_path: Path
) -> None:
    folder = tmp_path / "image"
    library = Path(compiled(folder, DYING))
    (folder / "0.json").write_text(DRIVER % f"/drivers/{library.name}")
    (folder / "1.json").write_text(DRIVER % MESA)
    (folder / "Dockerfile").write_text(
        f"FROM {images['metaworld']}\nCOPY {library.name} 0.json 1.json /drivers/\n"
        "ENV __EGL_VENDOR_LIBRARY_FILENAMES=/drivers/0.json:/drivers/1.json\n"
    )
    tag = "sparring-test/dying:1"
    subprocess.run(["docker", "build", "--quiet", "--tag", tag, str(folder)], timeout=120, check=True)
    try:
        done = sparring(
            "run", "--launcher", "docker", "--image", f"metaworld={tag}",
            "--benchmark", "metaworld", "--task", "reach-v3", "--episodes", "1", "--slots", "1", "--max-steps", "2",
            "--policy", "random", "--policy-arg", 'observations=["observation.image"]', "--output", "out", timeout=600,
        )  # fmt: skip
    finally:
        engine.client.images.remove(tag, force=True)
    assert done.returncode == 0, done.stderr
    (row,) = read_csv(tmp_path / "out")
    assert row["renderer"].startswith("llvmpipe"), "the first device would have aborted the slot"

"""Workers in containers choose among the EGL devices of their container, as any others do."""

from __future__ import annotations

from pathlib import Path

import pytest
from container_support import build, inside
from egl_drivers import DYING, MESA, compiled
from support import Sparring

from sparring.orchestrator.launchers.docker.engine import Engine
from sparring.orchestrator.results.results import Results

pytestmark = pytest.mark.requires("docker", "cc")

DRIVER = '{"file_format_version": "1.0.0", "ICD": {"library_path": "%s"}}'


def test_a_driver_that_aborts_is_found_out_in_a_container(
    sparring: Sparring, images: dict[str, str], engine: Engine, tmp_path: Path
) -> None:
    folder = tmp_path / "image"
    library = Path(compiled(folder, DYING))
    (folder / "0.json").write_text(DRIVER % f"/drivers/{library.name}")
    (folder / "1.json").write_text(DRIVER % MESA)
    for file in (library, *folder.glob("*.json")):
        file.chmod(0o755)  # a container's user is another one
    (folder / "Dockerfile").write_text(
        f"FROM {images['metaworld']}\nCOPY {library.name} 0.json 1.json /drivers/\n"
        "ENV __EGL_VENDOR_LIBRARY_FILENAMES=/drivers/0.json:/drivers/1.json\n"
    )
    tag = "sparring-test/dying:1"
    build(folder, tag)
    try:
        seen = " ".join(inside(tag, "doctor").stdout.split())
        done = sparring(
            "run", "--launcher", "docker", "--image", f"metaworld={tag}",
            "--benchmark", "metaworld", "--task", "reach-v3", "--episodes", "1", "--slots", "1", "--max-steps", "2",
            "--policy", "random", "--policy-arg", 'observations=["observation.image"]', "--output", "out", timeout=600,
        )  # fmt: skip
    finally:
        engine.client.images.remove(tag, force=True)
    assert "EGL device 0 does not work: its driver was ended by SIGABRT" in seen, "else there is nothing to find out"
    assert "EGL device 1 in software: llvmpipe" in seen
    assert done.returncode == 0, done.stderr
    results = Results.load(tmp_path / "out")
    (row,) = results.rows
    assert row.renderer.startswith("llvmpipe")
    # Slots that die of the first device would come to OSMesa in the end, which calls itself the same.
    assert [event.message for event in results.events if event.kind == "lost"] == []
    assert list(results.warnings) == []

"""Versions are written in several files; they must be one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from support import ROOT, pins

from sparring.orchestrator.launchers.docker.engine import release
from sparring.protos import WORK_PROTOCOL_VERSION

NAMING = [ROOT / "compose.yaml", ROOT / "compose.hosting.yaml"]
DOCKERFILES = sorted((ROOT / "docker").glob("*.Dockerfile"))
ENVIRONMENTS = ROOT / "env_worker/environments"


@pytest.mark.parametrize("path", [*NAMING, *DOCKERFILES], ids=lambda path: path.name)
def test_images_are_tagged_with_this_release(path: Path) -> None:
    tags = re.findall(r"sparring/[a-z${}. -]+:(\d[\w.]*)", path.read_text())
    assert tags
    assert set(tags) == {release()}


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_labels_are_of_this_release(path: Path) -> None:
    text = path.read_text()
    assert f'org.opencontainers.image.version="{release()}"' in text
    assert f'dev.sparring.protocol="{WORK_PROTOCOL_VERSION}"' in text


@pytest.mark.parametrize(
    "path",
    [
        *(ROOT / f"docker/constraints/{name}.txt" for name in ("metaworld", "orchestrator", "policy-server")),
        *(ENVIRONMENTS / f"{name}/constraints.txt" for name in ("aloha", "libero", "pusht")),
    ],
    ids=lambda path: f"{path.parent.name}/{path.name}",
)
def test_images_hold_what_is_tested(path: Path) -> None:
    tested, pinned = pins(ROOT / "constraints/dev.txt"), pins(path)
    different = {name for name in pinned.keys() & tested.keys() if pinned[name] != tested[name]}
    # LIBERO and ALOHA have another MuJoCo than Meta-World: that is why they have environments of their own.
    assert different <= ({"mujoco"} if path.parent.name in ("aloha", "libero") else set())


def test_the_workflow_smokes_each_image_in_a_job_of_its_own() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/images.yml").read_text())
    job = workflow["jobs"]["smoke"]
    assert job["strategy"]["matrix"]["image"] == "${{ fromJSON(needs.changed.outputs.images) }}"
    assert any("sparring smoke --image ${{ matrix.image }}" in step.get("run", "") for step in job["steps"])

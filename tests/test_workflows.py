"""What runs elsewhere when something is pushed: which images are built, and which tests run."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import requirements
import yaml
from support import ROOT

WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
MORE = {
    ("release.yml", "pypi"): {"id-token": "write"},
    ("release.yml", "images"): {"contents": "read", "packages": "write"},
}
"""What single jobs may beside reading."""
ALL = ("aloha", "libero", "metaworld", "orchestrator", "policy-server", "pusht")


def test_only_changed_images_are_built_by_the_workflow() -> None:
    def changed(*files: str) -> list[str]:
        command = ["python3", str(ROOT / "docker/changed_images.py")]
        done = subprocess.run(command, input="\n".join(files), capture_output=True, text=True, timeout=30, check=True)
        return list(json.loads(done.stdout))

    assert changed("docs/results.md", "tests/support.py") == []
    assert changed("docker/libero.Dockerfile") == ["libero"]
    assert changed("docker/requirements/libero.txt", "docker/constraints/metaworld.txt") == ["libero", "metaworld"]
    assert changed("docker/requirements/build.txt") == sorted(ALL)
    assert changed("env_worker/environments/aloha/constraints.txt") == ["aloha"]
    assert changed("env_worker/environments/pusht/no-deps.txt", "env_worker/benchmarks/pusht.py") == ["pusht"]
    assert changed("orchestrator/run.py", "env_worker/benchmarks/metaworld.py") == ["metaworld", "orchestrator"]
    assert changed("protos/spec.py") == sorted(ALL)
    assert changed("--all") == sorted(ALL)


def test_the_tests_run_on_every_python_that_is_supported() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text())
    legs: list[dict[str, Any]] = workflow["jobs"]["tests"]["strategy"]["matrix"]["include"]
    assert [leg["python"] for leg in legs] == ["3.11", "3.12", "3.13"]
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for leg in legs:
        assert set(leg["targets"].split()) <= set(targets)
        assert set(leg["requires"].split(",")) <= set(requirements.REQUIREMENTS)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_by_commit_and_say_their_release(path: Path) -> None:
    used = re.findall(r"uses: *(.*)", path.read_text())
    assert used
    for line in used:
        assert re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), line


def test_one_release_of_an_action_is_one_commit() -> None:
    """A digit that was mistyped in one of two places would be seen here."""
    named = [line for path in WORKFLOWS for line in re.findall(r"uses: *(.*)", path.read_text())]
    assert len({line.split("@")[0] for line in named}) == len(set(named))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_may_read_and_keeps_no_credentials(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    for name, job in workflow["jobs"].items():
        assert job.get("permissions") == MORE.get((path.name, name))
        if "permissions" in job:
            assert job["environment"], "who publishes can be made to wait for somebody's consent"
        for step in job["steps"]:
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False
            assert "${{ github.event" not in step.get("run", ""), "what others write is passed as a variable"


def test_every_image_is_made_from_one_base_listed_and_scanned() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/images.yml").read_text())["jobs"]
    steps: list[dict[str, Any]] = jobs["smoke"]["steps"]
    builds = [step["with"] for step in steps if step.get("uses", "").startswith("docker/build-push-action@")]
    assert builds
    for build in builds:
        assert build["build-args"] == "BASE_IMAGE=${{ needs.changed.outputs.base }}"
    (listed,) = [step["with"] for step in steps if step.get("uses", "").startswith("anchore/sbom-action@")]
    (scanned,) = [step["with"] for step in steps if step.get("uses", "").startswith("anchore/scan-action@")]
    assert listed["image"] == builds[0]["tags"]
    assert scanned["sbom"] == listed["output-file"]
    assert scanned["fail-build"] is True


def test_a_release_is_of_a_tag_that_is_the_version_and_publishes_what_was_tried() -> None:
    text = (ROOT / ".github/workflows/release.yml").read_text()
    workflow = yaml.safe_load(text)
    assert workflow[True] == {"push": {"tags": ["v*"]}}, "and of nothing else"  # YAML reads `on` as a truth
    jobs = workflow["jobs"]
    assert jobs["pypi"]["needs"] == jobs["images"]["needs"] == "build"
    assert sorted(jobs["images"]["strategy"]["matrix"]["image"]) == sorted(ALL)
    order = [step.get("name", step.get("uses", "")).partition("@")[0] for step in jobs["images"]["steps"]]
    assert order.index("Build") < order.index("Smoke") < order.index("docker/login-action") < order.index("Push")
    assert "password" not in str(jobs["pypi"]), "trusted publishing needs none"
    (checked,) = [step["run"] for step in jobs["build"]["steps"] if step.get("id") == "version"]
    for line in re.findall(r"tools/[\w-]+ --[\w-]+", checked):
        subprocess.run(line.split(), cwd=ROOT, check=True, timeout=30, capture_output=True)


def test_ci_demands_what_tests_require() -> None:
    demanded = re.search(r"SPARRING_REQUIRE=(\S+)", (ROOT / ".ci/run").read_text())
    assert demanded is not None
    assert set(demanded[1].split(",")) <= set(requirements.REQUIREMENTS)

"""What runs elsewhere when something is pushed: which images are built, and which tests run."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any

import requirements
import yaml
from support import ROOT

ALL = ("libero", "metaworld", "orchestrator", "policy-server")


def test_only_changed_images_are_built_by_the_workflow() -> None:
    def changed(*files: str) -> list[str]:
        command = ["python3", str(ROOT / "docker/changed_images.py")]
        done = subprocess.run(command, input="\n".join(files), capture_output=True, text=True, timeout=30, check=True)
        return list(json.loads(done.stdout))

    assert changed("docs/results.md", "tests/support.py") == []
    assert changed("docker/libero.Dockerfile") == ["libero"]
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


def test_ci_demands_what_tests_require() -> None:
    demanded = re.search(r"SPARRING_REQUIRE=(\S+)", (ROOT / ".ci/run").read_text())
    assert demanded is not None
    assert set(demanded[1].split(",")) <= set(requirements.REQUIREMENTS)

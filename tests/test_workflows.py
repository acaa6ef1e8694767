"""What runs elsewhere when something is pushed: which images are built."""

from __future__ import annotations

import json
import subprocess

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

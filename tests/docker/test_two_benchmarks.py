"""Meta-World and LIBERO in one plan, each worker in a container of its own image; one of them is killed on the way."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
import yaml
from container_support import containers
from support import Sparring, read_csv, recorded

from sparring.orchestrator.launchers.docker.engine import Engine

pytestmark = pytest.mark.requires("docker", "libero", "libero-assets")

PLAN = {
    "evaluations": [
        {"benchmark": "metaworld", "task": "push-v3,pick-place-v3"},
        {"benchmark": "libero", "task": "libero_goal/1"},
    ],
    "policy": "expert",
    "episodes": 2,
    "slots": 2,
}


def test_two_images_one_plan_and_a_kill_change_no_number(
    sparring: Sparring, images: dict[str, str], engine: Engine, libero_assets: Path, tmp_path: Path
) -> None:
    (tmp_path / "both.yaml").write_text(yaml.safe_dump({**PLAN, "assets": str(libero_assets)}))
    killed = threading.Event()

    def kill_one() -> None:
        """As soon as the first episode is in the journal: another one is under way then."""
        deadline = time.monotonic() + 200
        while time.monotonic() < deadline and not killed.is_set():
            if recorded(tmp_path / "boxes"):
                for container in containers(engine, tmp_path):
                    if container.labels["dev.sparring.worker"].startswith("metaworld"):
                        container.kill()
                        killed.set()
            time.sleep(0.05)

    killer = threading.Thread(target=kill_one)
    killer.start()
    done = sparring("run", "--config", "both.yaml", "--launcher", "docker", "--output", "boxes", timeout=900)
    finished = killed.is_set()
    killed.set()
    killer.join()
    assert done.returncode == 0, done.stderr
    assert finished, "nothing was killed"
    assert containers(engine, tmp_path) == []
    assert "metaworld-1" in (tmp_path / "boxes" / "run.json").read_text(), "the killed worker was not replaced"
    plain = sparring("run", "--config", "both.yaml", "--output", "processes", timeout=900)
    assert plain.returncode == 0, plain.stderr
    assert read_csv(tmp_path / "boxes") == read_csv(tmp_path / "processes")
    assert {row["benchmark"] for row in read_csv(tmp_path / "boxes")} == {"metaworld", "libero"}
    assert (tmp_path / "boxes" / "logs" / "worker-libero.log").stat().st_size > 0

"""What containers cost: sizes, builds cold and warm, and the time from a worker's start to its first observation.

    python benchmarks/containers.py [--images metaworld orchestrator] [--cold]

`--cold` builds without any cache of layers (packages still come from the builder's own cache, if it has them). A warm
build is one after a line was added to our code. Start-up is measured with workers as processes and as containers:
from the moment that a policy which loads at once is loaded, workers having been started a moment before, to its first
look at an image.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from common import conclude, evaluate, show

from sparring.orchestrator.launchers.docker.engine import connect, release
from sparring.policy_server.policies.base import Array, Observation, Policy, PolicySpec

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ("metaworld", "libero", "policy-server", "orchestrator")
LOOKS = {"metaworld": ("reach-v3", "observation.image"), "libero": ("libero_goal/1", "observation.images.image")}


class FirstLook(Policy):
    """Writes down how long it took from its own start, just after workers were launched, to a first look."""

    def __init__(self, file: str, look: str, size: int) -> None:
        self.spec = PolicySpec([look], action_dim=size)
        self._file = Path(file)
        self._began = time.monotonic()

    def act(self, observations: Sequence[Observation], states: Sequence[Any]) -> Sequence[Array]:
        if not self._file.exists():
            self._file.write_text(str(time.monotonic() - self._began))
        return [np.zeros((1, self.spec.action_dim or 1), np.float32) for _ in observations]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", nargs="+", choices=IMAGES, default=IMAGES)
    parser.add_argument("--cold", action="store_true", help="also build without cached layers; minutes")
    parser.add_argument("--assets", help="of LIBERO")
    options = parser.parse_args()
    # The policy server is a process of its own, and must find FirstLook.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "benchmarks"), os.environ.get("PYTHONPATH", "")])
    engine = connect()
    rows = []
    for image in options.images:
        cold = f"{_build(image, '--no-cache'):.0f}" if options.cold else "-"
        _build(image)
        with _ChangedCode():
            warm = _build(image)
        _build(image)
        found = engine.image(f"sparring/{image}:{release()}")
        assert found is not None
        rows.append([image, f"{found.size / 1e6:.0f}", cold, f"{warm:.1f}"])
    show("images", ["image", "MB", "cold build, s", "after a change of code, s"], rows)
    starts: dict[str, tuple[float, float]] = {}
    for benchmark in (name for name in LOOKS if name in options.images):
        process, container = (_first_look(benchmark, launcher, options.assets) for launcher in ("process", "docker"))
        starts[benchmark] = process, container
    show(
        "from launch to the first image at the policy",
        ["benchmark", "process, s", "container, s", "ratio"],
        [[name, f"{p:.1f}", f"{c:.1f}", f"{c / p:.2f}×"] for name, (p, c) in starts.items()],
    )
    conclude("containers", target="none", met=True, images=rows, first_look_seconds=starts)


def _build(image: str, *options: str) -> float:
    began = time.monotonic()
    command = ["docker", "build", "--quiet", *options, "-f", f"docker/{image}.Dockerfile"]
    subprocess.run([*command, "-t", f"sparring/{image}:{release()}", "."], cwd=ROOT, check=True, capture_output=True)
    return time.monotonic() - began


class _ChangedCode:
    """Our code with one comment more."""

    _file = ROOT / "protos" / "__init__.py"

    def __enter__(self) -> None:
        self._before = self._file.read_text()
        self._file.write_text(f"{self._before}# {time.time()}\n")

    def __exit__(self, *_: object) -> None:
        self._file.write_text(self._before)


def _first_look(benchmark: str, launcher: str, assets: str | None) -> float:
    task, look = LOOKS[benchmark]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "first"
        settings = {
            "benchmark": benchmark,
            "task": task,
            "episodes": 1,
            "max_steps": 1,
            "slots": 1,
            "launcher": launcher,
            "policy": "containers:FirstLook",
            "policy_arg": {"file": str(file), "look": look, "size": 4 if benchmark == "metaworld" else 7},
            **({"assets": assets} if assets and benchmark == "libero" else {}),
        }
        evaluate(settings)
        return float(file.read_text())


if __name__ == "__main__":
    main()

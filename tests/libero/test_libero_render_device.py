"""LIBERO draws on the device that a slot is given, in robosuite's own way, whatever CUDA_VISIBLE_DEVICES says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from egl_drivers import DYING, MESA, compiled, have_drivers

_DRAWS = """
from sparring.env_worker.benchmarks._libero import robosuite_log
from sparring.env_worker.benchmarks.libero import Libero
benchmark = Libero()
settings = benchmark.read_settings({"resolution": 16})
benchmark.prepare(settings)
simulator = benchmark.make(benchmark.tasks("libero_goal/1")[0], settings)
simulator.reset(seed=1, index=0, look=frozenset({"agentview_image"}))
print("drawn by", simulator.meter.renderer)
"""


@pytest.mark.requires("libero-assets", "rendering", "mesa", "cc")
@pytest.mark.parametrize(("device", "draws"), [("1", True), ("0", False)])
def test_a_slot_draws_on_its_own_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str, draws: bool
) -> None:
    have_drivers(tmp_path, monkeypatch, compiled(tmp_path / "driver", DYING), MESA)
    monkeypatch.setenv("MUJOCO_GL", "egl")
    monkeypatch.setenv("MUJOCO_EGL_DEVICE_ID", device)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    done = subprocess.run([sys.executable, "-c", _DRAWS], capture_output=True, text=True, timeout=240, check=False)
    if draws:
        assert done.returncode == 0, done.stderr
        assert "drawn by llvmpipe" in done.stdout
    else:
        assert done.returncode == -6, "its driver aborts whoever draws on it"

"""Slots of a run are spread over the devices that there are: here two of Mesa's, which draw the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from egl_drivers import MESA, copy_of_mesa, have_drivers
from support import Sparring

from sparring.orchestrator.results.results import Results

pytestmark = [pytest.mark.requires("rendering", "mesa"), pytest.mark.processes]

MINE = '''
import os
import time
from dataclasses import replace
from pathlib import Path

from sparring.env_worker.benchmarks.metaworld import IMAGE, Metaworld, MetaworldSimulator

HERE = Path(__file__).parent


class Drawn(MetaworldSimulator):
    """Begins when slots draw on both devices; tells which one this is, and what its picture adds up to."""

    def reset(self, **episode):
        device = os.environ["MUJOCO_EGL_DEVICE_ID"]
        (HERE / f"device-{device}").touch()
        deadline = time.monotonic() + 120
        while len(list(HERE.glob("device-*"))) < 2:
            if time.monotonic() > deadline:
                raise TimeoutError("no slot draws on the other device")
            time.sleep(0.01)
        return super().reset(**episode)

    def step(self, action, *, look):
        step = super().step(action, look=look | {IMAGE})
        seen = {"device": float(os.environ["MUJOCO_EGL_DEVICE_ID"]), "pixels": float(step.observation[IMAGE].sum())}
        return replace(step, metrics=seen)


class Mine(Metaworld):
    name = "mine"

    def make(self, task, settings):
        return Drawn(task.name, settings)
'''


@pytest.mark.everything
def test_two_slots_draw_on_two_devices_and_the_same(
    sparring: Sparring, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    drivers = tmp_path / "drivers"
    drivers.mkdir()
    have_drivers(tmp_path, monkeypatch, MESA, str(copy_of_mesa(drivers)))
    monkeypatch.setenv("MUJOCO_GL", "egl")

    def rows(slots: int, out: str) -> dict[int, dict[str, float]]:
        done = sparring(
            "run", "--benchmark", "mine:Mine", "--task", "reach-v3", "--episodes", "2", "--slots", str(slots),
            "--benchmark-arg", "resolution=32", "--policy", "zero", "--max-steps", "1", "--render-device", "0,1",
            "--output", out, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        results = Results.load(tmp_path / out)
        assert list(results.warnings) == []
        assert len({row.renderer for row in results.rows}) == 1
        return {row.index: dict(row.metrics) for row in results.rows}

    spread = rows(2, "spread")
    assert {seen["device"] for seen in spread.values()} == {0.0, 1.0}
    one = rows(1, "one")  # both files are there already
    assert {seen["device"] for seen in one.values()} == {0.0}
    assert {index: seen["pixels"] for index, seen in spread.items()} == {
        index: seen["pixels"] for index, seen in one.items()
    }

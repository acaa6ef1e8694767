"""Which of EGL's devices draw: each is tried by itself, so that one that takes its process down is only named."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from egl_drivers import DYING, MESA, compiled, have_drivers
from support import Sparring

from sparring.env_worker.rendering.choice import ThisMachine, choose_devices
from sparring.env_worker.rendering.device import OSMESA, Device
from sparring.env_worker.rendering.probe import Drawn, NotDrawn, count_devices, try_device
from sparring.protos.errors import UsageError

PYTHON = Path(sys.executable)

pytestmark = [pytest.mark.requires("rendering"), pytest.mark.processes]


@pytest.fixture(scope="module")
def dying(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A driver that aborts whoever wants to draw on its device."""
    return compiled(tmp_path_factory.mktemp("egl"), DYING)


@pytest.mark.requires("mesa")
def test_software_is_a_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    have_drivers(tmp_path, monkeypatch, MESA)
    assert count_devices(PYTHON) == 1
    device = try_device(PYTHON, Device("egl", 0))
    assert isinstance(device, Drawn)
    assert device.software
    assert "in software: llvmpipe" in str(device)
    assert "Mesa" in device.version
    assert device.milliseconds > 0


@pytest.mark.requires("cc", "mesa")
def test_a_driver_that_aborts_is_named_and_the_next_one_is_taken(
    dying: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, usage: Sparring
) -> None:
    have_drivers(tmp_path, monkeypatch, dying, MESA)
    monkeypatch.setenv("MUJOCO_GL", "egl")
    said = " ".join(usage("doctor").stdout.split())
    assert "rendering egl does not work: its driver was ended by SIGABRT ok rendering osmesa" in said, (
        "MuJoCo itself takes the first device, and dies of it"
    )
    assert "EGL device 0 does not work: its driver was ended by SIGABRT" in said
    assert "EGL device 1 in software: llvmpipe" in said
    assert "slots draw on EGL device 1 with --render-device auto" in said

    machine = ThisMachine()
    assert choose_devices("auto", machine).chosen == [Device("egl", 1)]
    assert choose_devices("software", machine).chosen == [Device("egl", 1)]
    named = choose_devices("0,1,5", machine)
    assert named.chosen == [Device("egl", 1)]
    assert named.warnings == [
        "EGL device 0 does not work: its driver was ended by SIGABRT. It is left alone.",
        "EGL device 5 does not work: there is none of this number; EGL has 2 here. It is left alone.",
    ]
    with pytest.raises(UsageError, match="nothing that render_device= names draws"):
        choose_devices("0", machine)
    monkeypatch.setenv("MUJOCO_EGL_DEVICE_ID", "0")
    assert choose_devices("auto", machine).chosen == [Device("egl", 0)], "who has set it, has set it"
    assert "set MUJOCO_EGL_DEVICE_ID=1, or leave it out" in " ".join(usage("doctor").stdout.split())


def test_without_a_driver_there_are_no_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    have_drivers(tmp_path, monkeypatch, str(tmp_path / "missing.so"))
    monkeypatch.setenv("MUJOCO_GL", "egl")
    assert count_devices(PYTHON) == 0
    assert isinstance(try_device(PYTHON, Device("egl")), NotDrawn)
    assert choose_devices("software", ThisMachine()).chosen == [OSMESA]
    assert choose_devices("auto", ThisMachine()).spare == [OSMESA]

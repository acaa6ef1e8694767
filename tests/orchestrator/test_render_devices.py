"""Which of EGL's devices draw: each is tried by itself, so that one that takes its process down is only named."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support import ROOT, Sparring

from sparring.orchestrator.machine.rendering import Drawn, NotDrawn, try_backend, try_devices

PYTHON = Path(sys.executable)
MESA = "libEGL_mesa.so.0"

pytestmark = [pytest.mark.requires("rendering"), pytest.mark.processes]


def vendors(folder: Path, monkeypatch: pytest.MonkeyPatch, *libraries: str) -> None:
    """Makes these the EGL drivers of this machine, in this order."""
    files = []
    for number, library in enumerate(libraries):
        files.append(folder / f"{number}.json")
        files[-1].write_text(json.dumps({"file_format_version": "1.0.0", "ICD": {"library_path": library}}))
    monkeypatch.setenv("__EGL_VENDOR_LIBRARY_FILENAMES", ":".join(map(str, files)))


@pytest.fixture(scope="module")
def dying(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A driver that aborts whoever wants to draw on its device."""
    library = tmp_path_factory.mktemp("egl") / "libEGL_dying.so"
    source = ROOT / "tests" / "fixtures" / "egl" / "dying_vendor.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True, timeout=60)
    return str(library)


def test_software_is_a_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vendors(tmp_path, monkeypatch, MESA)
    (device,) = try_devices(PYTHON).values()
    assert isinstance(device, Drawn)
    assert device.software
    assert "in software: llvmpipe" in str(device)
    assert device.milliseconds > 0


@pytest.mark.requires("cc")
def test_a_driver_that_aborts_is_named_and_the_next_one_is_found(
    dying: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, usage: Sparring
) -> None:
    vendors(tmp_path, monkeypatch, dying, MESA)
    first, second = try_devices(PYTHON).values()
    assert first == NotDrawn("its driver was ended by SIGABRT")
    assert isinstance(second, Drawn)
    assert try_backend(PYTHON, "egl") == first, "MuJoCo itself takes the first device, and dies of it"
    said = " ".join(usage("doctor").stdout.split())
    assert "EGL device 0 does not work: its driver was ended by SIGABRT" in said
    assert "EGL device 1 in software: llvmpipe" in said
    assert "EGL works on device 1 alone: set MUJOCO_EGL_DEVICE_ID=1" in said
    monkeypatch.setenv("MUJOCO_EGL_DEVICE_ID", "1")
    assert isinstance(try_backend(PYTHON, "egl"), Drawn)


def test_without_a_driver_there_are_no_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vendors(tmp_path, monkeypatch, str(tmp_path / "missing.so"))
    assert try_devices(PYTHON) == {}
    assert isinstance(try_backend(PYTHON, "egl"), NotDrawn)

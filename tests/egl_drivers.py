"""EGL drivers for tests: which of them this machine has, and some of our own that die."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from support import ROOT

MESA = "libEGL_mesa.so.0"
DYING = "dying_vendor.c"
"""Aborts whoever wants to draw on its device."""
MORTAL = "mortal_vendor.c"
"""Draws with a copy of Mesa, until a file is there."""


def have_drivers(folder: Path, monkeypatch: pytest.MonkeyPatch, *libraries: str) -> None:
    """Makes these the EGL drivers of this machine, in this order."""
    files = []
    for number, library in enumerate(libraries):
        files.append(folder / f"driver-{number}.json")
        files[-1].write_text(json.dumps({"file_format_version": "1.0.0", "ICD": {"library_path": library}}))
    monkeypatch.setenv("__EGL_VENDOR_LIBRARY_FILENAMES", ":".join(map(str, files)))


def compiled(folder: Path, source: str) -> str:
    """Compiles a driver of our own, in a folder that nobody imports anything from."""
    folder.mkdir(exist_ok=True)
    library = folder / f"libEGL_{Path(source).stem}.so"
    file = ROOT / "tests" / "fixtures" / "egl" / source
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(file), "-ldl"], check=True, timeout=60)
    return str(library)


def find_mesa() -> Path | None:
    """Where the loader finds Mesa's driver; None: it is not installed."""
    # Not everybody has the folder of this program on their path: on Debian only root has.
    ldconfig = shutil.which("ldconfig", path=os.pathsep.join([os.environ.get("PATH", ""), "/sbin", "/usr/sbin"]))
    if ldconfig is None:
        return None
    found = subprocess.run([ldconfig, "-p"], capture_output=True, text=True, check=True, timeout=30).stdout
    places = [line.partition("=> ")[2] for line in found.splitlines() if line.strip().startswith(MESA)]
    return Path(places[0]) if places else None


def copy_of_mesa(folder: Path) -> Path:
    """Copies Mesa's driver, by another name in it, too: the loader would take one for the other."""
    mesa = find_mesa()
    assert mesa is not None, "a test that calls this requires mesa"
    copy = folder / "libEGL_mesb.so.0"
    copy.write_bytes(mesa.read_bytes().replace(MESA.encode(), copy.name.encode()))
    return copy

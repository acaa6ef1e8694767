"""Which GL backend MuJoCo shall use, decided before it is imported."""

from __future__ import annotations

import ctypes.util
import os
import sys

from sparring.protos.errors import UsageError

_BACKENDS = ("", "egl", "osmesa", "glfw", "glx", "cgl", "wgl", "on", "enable", "enabled", "true", "1")

SYSTEM_PACKAGES = ("libegl1", "libegl-mesa0", "libgl1-mesa-dri", "libopengl0", "libosmesa6")
"""Debian packages that software rendering needs."""


def choose_backend() -> str:
    """Sets MUJOCO_GL where the user has not, and returns what it is.

    EGL first: it uses a GPU where there is one and Mesa's software renderer where there is none.

    Raises:
        UsageError: If MUJOCO_GL names something that is no backend; MuJoCo could not even be imported.
    """
    chosen = os.environ.get("MUJOCO_GL", "")
    if chosen.lower() not in _BACKENDS:
        raise UsageError(f"MUJOCO_GL={chosen} is no GL backend of MuJoCo; set it to egl or osmesa, or unset it.")
    if not chosen and sys.platform.startswith("linux"):
        if ctypes.util.find_library("EGL"):
            chosen = "egl"
        elif ctypes.util.find_library("OSMesa"):
            chosen = "osmesa"
        if chosen:
            os.environ["MUJOCO_GL"] = chosen
    return chosen


def advice() -> str:
    """Returns what to do when nothing renders."""
    return f"install the libraries for software rendering: apt-get install {' '.join(SYSTEM_PACKAGES)}"

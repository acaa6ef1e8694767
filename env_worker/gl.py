"""Which GL backend MuJoCo shall use, decided before it is imported."""

from __future__ import annotations

import ctypes.util
import os
import sys

SYSTEM_PACKAGES = ("libegl1", "libegl-mesa0", "libgl1-mesa-dri", "libosmesa6")
"""Debian packages that software rendering needs."""


def choose_backend() -> str:
    """Sets MUJOCO_GL where the user has not, and returns what it is.

    EGL first: it uses a GPU where there is one and Mesa's software renderer where there is none.
    """
    chosen = os.environ.get("MUJOCO_GL", "")
    if not chosen and sys.platform.startswith("linux"):
        if ctypes.util.find_library("EGL"):
            chosen = "egl"
        elif ctypes.util.find_library("OSMesa"):
            chosen = "osmesa"
        if chosen:
            os.environ["MUJOCO_GL"] = chosen
    return chosen


def advice() -> str:
    """What to do when nothing renders."""
    return f"install the libraries for software rendering: apt-get install {' '.join(SYSTEM_PACKAGES)}"

"""Import this instead of robosuite: it imports it, and keeps it from writing to /tmp/robosuite.log.

robosuite opens that one file when it is imported, whoever imports it. On a machine that several people use, the file
belongs to the first of them, and nobody else's robosuite imports. What it has to say goes to the worker's log as well.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path

from sparring.env_worker.rendering.device import DEVICE_VARIABLE


def _without_file() -> None:
    found = None if "robosuite" in sys.modules else importlib.util.find_spec("robosuite")
    if found is None or found.origin is None:
        return
    # The setting is in a module of robosuite's that has to be there before the package is, or it comes too late.
    spec = importlib.util.spec_from_file_location("robosuite.macros", Path(found.origin).with_name("macros.py"))
    if spec is None or spec.loader is None:
        return
    macros = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(macros)
    macros.FILE_LOGGING_LEVEL = None  # type: ignore[attr-defined]
    sys.modules[spec.name] = macros
    # robosuite refuses to be imported where a device is named that is none of CUDA_VISIBLE_DEVICES: other numbers.
    device = os.environ.pop(DEVICE_VARIABLE, None)
    try:
        importlib.import_module("robosuite").macros = macros  # type: ignore[attr-defined]
    finally:
        if device is not None:
            os.environ[DEVICE_VARIABLE] = device


_without_file()

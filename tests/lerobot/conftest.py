from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent

# For this process, and for the ones that tests start (by sitecustomize.py): see torchvision_on_cpu.py and lerobot_on_311.py.
sys.path.insert(0, str(HERE))
os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
# Both sides of every comparison with one thread: torch's threads only get in each other's way on a small machine.
os.environ["OMP_NUM_THREADS"] = "1"
# Nothing may be fetched from a hub in tests, and a test that needs one says so with an address of its own.
os.environ["HF_HUB_OFFLINE"] = "1"
# The hub's cache is the tests' own: what is in there, tests have put there (tiny_models.py).
os.environ["HF_HOME"] = tempfile.mkdtemp(prefix="sparring-hub-")
atexit.register(shutil.rmtree, os.environ["HF_HOME"], ignore_errors=True)

import lerobot_on_311  # noqa: E402, F401
import torchvision_on_cpu  # noqa: E402, F401

import inspect  # noqa: E402
from functools import cache  # noqa: E402

# LeRobot's argument parser reads a configuration's source for every field of it, again and again: half a second each time.
inspect.getsource = cache(inspect.getsource)

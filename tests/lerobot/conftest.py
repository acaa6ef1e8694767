from __future__ import annotations

import atexit
import inspect
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).parent

# For this process, and for the ones that tests start (by sitecustomize.py): torchvision_on_cpu.py and lerobot_on_311.py
# say what for.
sys.path.insert(0, str(HERE))
os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
# Both sides of every comparison with one thread: torch's threads only get in each other's way on a small machine.
os.environ["OMP_NUM_THREADS"] = os.environ.get("SPARRING_TEST_THREADS", "1")
# Nothing may be fetched from a hub in tests, and a test that needs one says so with an address of its own.
os.environ["HF_HUB_OFFLINE"] = "1"
# The hub's cache is the tests' own: what is in there, tests have put there (tiny_models.py).
os.environ["HF_HOME"] = tempfile.mkdtemp(prefix="sparring-hub-")
atexit.register(shutil.rmtree, os.environ["HF_HOME"], ignore_errors=True)

import lerobot_on_311  # noqa: E402, F401
import torchvision_on_cpu  # noqa: E402, F401

# LeRobot's argument parser reads a configuration's source once for each field of it, which takes it half a second.
inspect.getsource = cache(inspect.getsource)


@pytest.fixture(scope="session", autouse=True)
def temporary_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A place that pytest clears away: every time LeRobot loads a configuration it leaves a file with a copy of it."""
    folder = str(tmp_path_factory.mktemp("temporary"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", folder)
        patch.setenv("TMPDIR", folder)
        yield

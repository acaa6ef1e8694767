"""Deterministic mode of every family on other processors than this one, and with other numbers of threads."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from support import ROOT, has_cpu_capability
from tiny_models import LEROBOT

FILES = [f"tests/lerobot/test_{name}.py" for name in ("families", "lerobot_policy", "own_loop", "xvla")]
CHOSEN = "(in_deterministic_mode and not 1-) or (do_together_what_they_do_alone and True)"

# What rounds is torch, the same below both LeRobots; the newer one has all families of the older one, and more.
KINDS = [("default", 1), ("avx2", 2)] if LEROBOT >= (0, 6) else []
# A minute or more each: where processors are what is looked at, SPARRING_TEST_CPUS=1.
MORE = [("avx2", 1), ("avx512", 2)] if os.environ.get("SPARRING_TEST_CPUS") == "1" else []


@pytest.mark.everything
@pytest.mark.processes
@pytest.mark.timeout(660)
@pytest.mark.parametrize(("capability", "threads"), [*KINDS, *MORE])
def test_the_families_on_other_processors_and_with_other_threads(capability: str, threads: int) -> None:
    """All other tests have the best that this processor has, and one thread. One process plays all families."""
    if not has_cpu_capability(capability):
        pytest.skip(f"this processor has no {capability}")
    # Threads that spin while they wait take each other's processor where others compute, too: minutes, not seconds.
    kind = {"ATEN_CPU_CAPABILITY": capability, "SPARRING_TEST_THREADS": str(threads), "OMP_WAIT_POLICY": "passive"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", CHOSEN, *FILES],
        cwd=ROOT,
        env={**os.environ, **kind},
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:]

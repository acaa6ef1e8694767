"""What the policy server imports: nothing of extras that it was installed without."""

from __future__ import annotations

import subprocess
import sys

import pytest

_EXTRAS = ("msgpack", "websockets", "zmq", "PIL", "torch", "prometheus_client")


@pytest.mark.processes
@pytest.mark.parametrize("module", ["sparring.policy_server.__main__", "sparring.policy_server.policies"])
def test_it_starts_without_what_only_bridges_and_extras_need(module: str) -> None:
    hidden = f"import sys; sys.modules.update(dict.fromkeys({_EXTRAS!r})); import {module}"
    done = subprocess.run([sys.executable, "-c", hidden], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr

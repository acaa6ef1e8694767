"""Our own policy server, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sparring.policy_server.compliance.wire import DEADLINE

HERE = Path(__file__).parent

OWN_SERVERS = {
    "zero": ["--policy=zero", '--policy-args={"chunk": 4, "observations": ["observation.image", "observation.state"]}'],
    "strict": ["--policy=strict_policy:StrictPolicy"],
    "blind": ["--policy=zero"],
}


@contextmanager
def own_server(name: str, *flags: str) -> Iterator[str]:
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "sparring.policy_server",
            "--listen=127.0.0.1:0",
            "--exit-with-parent",
            "--grace=0",
            *OWN_SERVERS[name],
            *flags,
        ],
        cwd=HERE.parent.parent,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin
    assert process.stdout
    try:
        yield json.loads(process.stdout.readline())["listening"][0]
        assert process.poll() is None, "the server did not survive the suite"
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(DEADLINE)

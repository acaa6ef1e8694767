"""`sparring serve` for tests that need a policy hosted elsewhere."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import TracebackType

import psutil


class PolicyProcess:
    """A policy server from its start to its end, in a folder that is not the test's: it is no part of the run."""

    def __init__(self, *flags: str, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        listen = () if "--listen" in flags else ("--listen", "127.0.0.1:0")
        self.log = (folder / "server.log").open("w")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "sparring", "serve", *flags, *listen],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"the server did not start: {(folder / 'server.log').read_text()}")
        self.address: str = json.loads(line)["listening"][0]

    def connections(self) -> int:
        """How many clients are connected now."""
        found = psutil.Process(self.process.pid).net_connections(kind="tcp")
        return sum(connection.status == psutil.CONN_ESTABLISHED for connection in found)

    def __enter__(self) -> PolicyProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.communicate()
        self.log.close()

"""Real policy servers for tests, each a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Any, Final

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parent.parent
TIMEOUT: Final = 60.0


def environment(*folders: Path) -> dict[str, str]:
    """One in which `sample_policies`, and whatever else lies in `folders`, can be imported."""
    path = [str(HERE), *map(str, folders), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}


class Server:
    """`python -m sparring.policy_server`, or another program that tells its address in the same way."""

    def __init__(
        self, *arguments: str, program: tuple[str, ...] = ("-m", "sparring.policy_server"), listen: str = "127.0.0.1:0"
    ) -> None:
        self._errors: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed in close()
        self.process = subprocess.Popen(
            [sys.executable, *program, f"--listen={listen}", *arguments],
            cwd=ROOT,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"the server did not start: {self.log}")
        self.told: dict[str, Any] = json.loads(line)
        self.address: str = self.told["listening"][0]

    @property
    def log(self) -> str:
        """All it has said on stderr."""
        self._errors.seek(0)
        return self._errors.read()

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self, seconds: float = TIMEOUT) -> int:
        return self.process.wait(seconds)

    def wait_for_log(self, text: str) -> None:
        deadline = time.monotonic() + TIMEOUT
        while text not in self.log:
            assert time.monotonic() < deadline, f"{text!r} was not logged: {self.log}"
            time.sleep(0.02)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(TIMEOUT)
        for stream in (self.process.stdin, self.process.stdout, self._errors):
            assert stream
            stream.close()


def refused_start(
    *arguments: str, program: tuple[str, ...] = ("-m", "sparring.policy_server"), timeout: float = TIMEOUT
) -> str:
    """What a server says that exits with 2 before it listens."""
    ended = subprocess.run(
        [sys.executable, *program, *arguments],
        cwd=ROOT,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert ended.returncode == 2, ended
    assert ended.stdout == ""
    assert "Traceback" not in ended.stderr
    return ended.stderr.strip()

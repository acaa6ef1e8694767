"""A worker in a container that does not turn any more ends, so that it is started again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sparring.env_worker.worker.heartbeat import VARIABLE

SCRIPT = """
import asyncio, time
from sparring.env_worker.worker import heartbeat

heartbeat._LIMIT = 3.0

async def work():
    beating = asyncio.create_task(heartbeat.beat())
    await asyncio.sleep(0.1)
    {}
    beating.cancel()
    await asyncio.sleep(4.0)

asyncio.run(work())
"""


def run(line: str, heart: Path, monkeypatch: pytest.MonkeyPatch) -> subprocess.CompletedProcess[str]:
    monkeypatch.setenv(VARIABLE, str(heart))
    command = [sys.executable, "-c", SCRIPT.format(line)]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)


@pytest.mark.processes
@pytest.mark.parametrize("line", ["time.sleep(1000)", "sum(range(10**14))"], ids=["waits", "never lets go of Python"])
def test_a_worker_whose_loop_hangs_ends_and_says_where(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = run(line, tmp_path / "heart", monkeypatch)
    assert done.returncode == 1
    assert "Timeout" in done.stderr
    assert " in work" in done.stderr
    assert (tmp_path / "heart").exists()


@pytest.mark.processes
def test_a_worker_that_has_stopped_beating_in_order_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = run("pass", tmp_path / "heart", monkeypatch)
    assert (done.returncode, done.stderr) == (0, "")

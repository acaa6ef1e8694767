"""A policy server on a node ends by itself when its run is gone, also if nobody is left to tell it."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sparring.orchestrator.launchers.slurm.server_news import ServerNews
from sparring.orchestrator.launchers.slurm.server_program import ServedRun
from sparring.protos.net.access import new_token
from sparring.protos.net.address import Address


def test_a_run_is_there_while_its_file_changes_and_gone_some_time_after(tmp_path: Path) -> None:
    alive = tmp_path / "alive"

    async def watch() -> None:
        alive.write_text("0")
        gone = asyncio.ensure_future(ServedRun(alive, alone=2.0).until_gone())
        for beat in range(30):
            alive.write_text(str(beat))
            await asyncio.sleep(0.1)
        assert not gone.done(), "heard of for longer than it may be silent"
        async with asyncio.timeout(60):
            await gone
        assert alive.exists(), "it was killed, and took nothing away"

    asyncio.run(watch())


def test_a_run_that_has_ended_is_gone_at_once(tmp_path: Path) -> None:
    async def watch() -> None:
        async with asyncio.timeout(60):
            await ServedRun(tmp_path / "alive", alone=600.0, look=0.01).until_gone()

    asyncio.run(watch())


@pytest.mark.processes
def test_a_server_whose_run_was_killed_ends_with_all_that_it_has_started(tmp_path: Path) -> None:
    news, alive, token = tmp_path / "news", tmp_path / "alive", tmp_path / "token"
    news.touch()
    token.write_text(new_token())
    token.chmod(0o600)
    files = [f"--news={news}", f"--alive={alive}", f"--log={tmp_path / 'log'}"]
    program = [sys.executable, "-P", "-m", "sparring.orchestrator.launchers.slurm.server_program"]
    policy = ["--policy=zero", f"--token-file={token}"]
    alive.write_text("0")
    with subprocess.Popen(
        [*program, "--towards=127.0.0.1", *files, "--alone=3", "--", *policy], stderr=subprocess.PIPE, text=True
    ) as server:
        try:
            deadline, beat = time.monotonic() + 60, 0
            while not (told := ServerNews.of(news, known=0)) and server.poll() is None:
                assert time.monotonic() < deadline
                beat += 1
                alive.write_text(str(beat))
                time.sleep(0.1)
            assert told, server.stderr and server.stderr.read()
            _, said = server.communicate(timeout=60)  # nothing is written any more, and nobody says that it may go
        finally:
            server.kill()
    assert server.returncode == 0, said
    assert "the run that this is for has ended, or is gone" in said
    address = Address.parse(told[0].address)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((address.host, address.port), timeout=60)

"""The file with a run's join token, which a worker may be told of before the run has written it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from certificates import write_secret

from sparring.env_worker.__main__ import _parser, _token_written
from sparring.protos.errors import UsageError


def waited(file: Path, *more: str, told_to_stop: bool = False, written: bool = False) -> None:
    options = _parser().parse_args(["--orchestrator=127.0.0.1:1", f"--join-token-file={file}", *more])

    async def wait() -> None:
        stop = asyncio.Event()
        if told_to_stop:
            stop.set()
        waiting = asyncio.create_task(_token_written(options, stop))
        await asyncio.sleep(0)  # it has looked once
        if written:
            assert not waiting.done()
            write_secret(file, "a-secret-of-those-who-join")
        async with asyncio.timeout(60):
            await waiting

    asyncio.run(wait())


def test_a_worker_waits_for_a_token_that_the_run_is_about_to_write(tmp_path: Path) -> None:
    waited(tmp_path / "token", written=True)


def test_it_does_not_wait_for_ever_and_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no run has written one there in 0.1 s. Start the run, name the file"):
        waited(tmp_path / "token", "--connect-timeout=0.1")


def test_it_ends_when_it_is_told_to(tmp_path: Path) -> None:
    waited(tmp_path / "token", told_to_stop=True)


def test_the_worker_of_a_persistent_one_does_not_wait(tmp_path: Path) -> None:
    waited(tmp_path / "token", "--report-to=1")

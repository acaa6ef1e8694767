"""A worker that waits for runs, in this process: the runs are a socket, the workers a script that says how they end.

The script stands for `python -P -m sparring.env_worker`, which takes a second to start; tests/e2e has the real one.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import free_port

from sparring.env_worker.worker import persistent
from sparring.env_worker.worker.persistent import PersistentWorker, Reporter
from sparring.protos.net.address import Address

# The pipe's number is in the last argument: --report-to=N.
WORKER = """#!/bin/sh
echo "$@" >> {folder}/arguments
for last; do :; done
report="/dev/fd/${{last#--report-to=}}"
{then}
"""


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(persistent, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(persistent, "LONGEST_PAUSE", 0.05)
    caplog.set_level(logging.INFO, "sparring")


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Says what the worker of each run does from now on."""
    script = tmp_path / "python"
    monkeypatch.setattr(sys, "executable", str(script))

    def does(then: str) -> None:
        successor = tmp_path / "next"
        successor.write_text(WORKER.format(folder=tmp_path, then=then))
        successor.chmod(0o755)
        successor.rename(script)  # at once: one may be about to be started

    return does


def started(tmp_path: Path) -> int:
    path = tmp_path / "arguments"
    return len(path.read_text().splitlines()) if path.exists() else 0


def serve(port: int, until: Callable[[], bool], *, listen: bool = True, token_file: Path | None = None) -> int:
    """Works until something is true, with somebody who listens at the address."""

    async def work() -> int:
        stop = asyncio.Event()
        knocks = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", port) if listen else None
        persistent = PersistentWorker(Address("tcp", "127.0.0.1", port), ["--slots=2"], token_file=token_file)
        working = asyncio.create_task(persistent.run(stop))
        deadline = time.monotonic() + 60
        while not until() and not working.done():
            assert time.monotonic() < deadline, "it never came to that"
            await asyncio.sleep(0.01)
        stop.set()
        code = await asyncio.wait_for(working, 60)
        if knocks is not None:
            knocks.close()
        return code

    return asyncio.run(work())


def test_run_after_run_is_served_by_a_worker_of_its_own(
    worker: Callable[[str], None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    worker("""echo '{"kind": "joined", "text": "2 slots for toy"}' > $report""")
    assert serve(free_port(), lambda: started(tmp_path) >= 3) == 0
    arguments = (tmp_path / "arguments").read_text().splitlines()[0]
    assert arguments.startswith("-P -m sparring.env_worker --slots=2 --exit-with-parent --report-to=")
    assert caplog.messages[1].endswith("with 2 slots for toy")
    assert caplog.messages[2].endswith("has ended; waiting for the next")


def test_nobody_is_started_while_nobody_listens(
    worker: Callable[[str], None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    worker("exit 0")
    waited = time.monotonic() + 0.3
    assert serve(free_port(), lambda: time.monotonic() > waited, listen=False) == 0
    assert started(tmp_path) == 0
    assert len(caplog.messages) == 2, "it says once that it waits, and then that it stops"


def test_what_is_the_same_each_time_is_said_once(
    worker: Callable[[str], None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    worker("""echo '{"kind": "refused", "text": "this run is of libero."}' > $report; exit 2""")
    assert serve(free_port(), lambda: started(tmp_path) >= 4) == 0
    assert sum("not wanted at" in line and line.endswith("this run is of libero.") for line in caplog.messages) == 1


def test_one_that_lost_its_run_waits_for_the_next(
    worker: Callable[[str], None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    worker("""echo '{"kind": "lost", "text": "the orchestrator went away."}' > $report; exit 1""")
    assert serve(free_port(), lambda: started(tmp_path) >= 2) == 0
    assert any(line.startswith("the orchestrator went away. Waiting for a run at") for line in caplog.messages)


def test_one_that_cannot_be_what_it_is_told_to_be_ends_it(worker: Callable[[str], None], tmp_path: Path) -> None:
    worker("exit 2")
    assert serve(free_port(), lambda: False) == 2
    assert started(tmp_path) == 1


def test_one_that_breaks_is_told_and_not_hurried(
    worker: Callable[[str], None], tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    sleep = persistent._sleep

    async def noted(seconds: float, stop: asyncio.Event) -> None:
        pauses.append(seconds)
        await sleep(seconds, stop)

    monkeypatch.setattr(persistent, "_sleep", noted)
    worker("""echo '{"kind": "joined", "text": "2 slots for toy"}' > $report; exit 7""")
    assert serve(free_port(), lambda: started(tmp_path) >= 4) == 0
    assert any("ended with exit code 7; its last words are above" in line for line in caplog.messages)
    assert pauses[:4] == [0.01, 0.02, 0.04, 0.05], "twice as long each time, up to a limit"


def test_after_a_run_it_is_quick_again(
    worker: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    async def noted(seconds: float, stop: asyncio.Event) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            worker("""echo '{"kind": "joined", "text": "2 slots for toy"}' > $report""")

    monkeypatch.setattr(persistent, "_sleep", noted)
    worker("""echo '{"kind": "lost", "text": "gone."}' > $report; exit 1""")
    assert serve(free_port(), lambda: len(pauses) >= 3) == 0
    assert pauses[:3] == [0.01, 0.02, 0.01]


def test_told_to_stop_it_ends_its_worker_first(worker: Callable[[str], None], tmp_path: Path) -> None:
    bye = f"echo bye > {tmp_path}/bye; exit 0"
    worker(f"""trap '{bye}' TERM; echo on > {tmp_path}/on; while :; do sleep 0.05; done""")
    assert serve(free_port(), (tmp_path / "on").exists) == 0
    assert (tmp_path / "bye").exists()
    assert started(tmp_path) == 1


def test_told_to_stop_in_the_moment_in_which_its_worker_ends_it_just_stops(
    worker: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, asked = asyncio.create_subprocess_exec, []

    async def starts(*command: str, **more: Any) -> asyncio.subprocess.Process:
        process = await start(*command, **more)

        def terminate() -> None:  # as asyncio's does between the end of a process and the news of it, too short to hit
            asked.append(process.pid)
            process.kill()
            raise ProcessLookupError

        monkeypatch.setattr(process, "terminate", terminate)
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", starts)
    worker("exec sleep 60")
    assert serve(free_port(), lambda: started(tmp_path) >= 1) == 0
    assert len(asked) == 1


def test_a_worker_that_does_not_stop_is_killed(
    worker: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(persistent, "_STOP_SECONDS", 0.2)
    worker(f"""trap '' TERM; echo on > {tmp_path}/on; while :; do sleep 0.05; done""")
    assert serve(free_port(), (tmp_path / "on").exists) == 0
    assert any("did not stop within 0.2 s and is killed" in line for line in caplog.messages)


def test_ctrl_c_in_the_terminal_does_not_reach_its_worker(worker: Callable[[str], None], tmp_path: Path) -> None:
    worker(f"""cut -d' ' -f 1,5 /proc/$$/stat >> {tmp_path}/group""")
    assert serve(free_port(), lambda: started(tmp_path) >= 2) == 0
    process, group = (tmp_path / "group").read_text().splitlines()[0].split()
    assert process == group, "it leads a group of its own"


def test_what_a_worker_reports_is_what_is_heard(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    reporter = Reporter(writing)
    assert not os.get_inheritable(writing), "slots have no business with it"
    reporter.joined("toy", 1)
    reporter.refused("no room.")
    reporter.lost("gone.")
    os.close(writing)
    with os.fdopen(reading) as pipe:
        assert [json.loads(line) for line in pipe] == [
            {"kind": "joined", "text": "1 slot for toy"},
            {"kind": "refused", "text": "no room."},
            {"kind": "lost", "text": "gone."},
        ]


def test_while_a_runs_token_is_not_there_it_waits_and_says_so(
    worker: Callable[[str], None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    token = tmp_path / "join-token"
    token.touch()
    worker(f"""rm {token}; echo '{{"kind": "joined", "text": "2 slots for toy"}}' > $report""")
    waiting = f"there is no join token at {token}; waiting for a run that writes one"
    assert serve(free_port(), lambda: waiting in caplog.messages, token_file=token) == 0
    assert started(tmp_path) == 1, "nobody is started without one"
    token.touch()
    assert serve(free_port(), lambda: started(tmp_path) >= 2, token_file=token) == 0


def test_a_token_that_goes_while_its_worker_starts_is_no_mistake_of_the_user(
    worker: Callable[[str], None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    token = tmp_path / "join-token"
    token.touch()
    worker(f"rm {token}; exit 2")
    assert serve(free_port(), lambda: any("no join token" in line for line in caplog.messages), token_file=token) == 0

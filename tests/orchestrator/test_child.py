"""Child processes: real ones, that are small and start at once."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import psutil
import pytest
from support import wait_for

from sparring.orchestrator.machine import child as child_module
from sparring.orchestrator.machine.child import Child
from sparring.orchestrator.machine.logs import last_words


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is imported from the current folder, unless it is said that it may be."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


def within(seconds: float, work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(work, seconds))


async def start(tmp_path: Path, program: str, *arguments: str, **settings: Any) -> Child:
    (tmp_path / "program.py").write_text(program)
    return await Child.start(
        "program", arguments, python=Path(sys.executable), log=tmp_path / "logs" / "program.log", **settings
    )


def test_what_it_says_is_in_its_log_and_its_exit_code_is_told(tmp_path: Path) -> None:
    async def work() -> None:
        said = "import sys; print(sys.argv[1:], flush=True); sys.stderr.write('and this\\n'); sys.exit(3)"
        child = await start(tmp_path, said, "--one", "two")
        assert await child.wait() == 3
        assert child.log.read_text().splitlines() == ["['--one', 'two', '--exit-with-parent']", "and this"]

    within(60, work())


def test_the_log_of_the_one_before_is_kept(tmp_path: Path) -> None:
    async def work() -> None:
        for word in ("first", "second"):
            child = await start(tmp_path, f"print({word!r})")
            await child.wait()
        assert child.log.read_text() == "first\nsecond\n"

    within(60, work())


def test_its_first_line_can_be_waited_for_and_is_empty_if_it_ends_without_one(tmp_path: Path) -> None:
    async def work() -> None:
        child = await start(tmp_path, "print('ready', flush=True); input()", capture_stdout=True)
        assert await child.first_line() == b"ready\n"
        await child.end()
        child = await start(tmp_path, "", capture_stdout=True)
        assert await child.first_line() == b""
        assert await child.wait() == 0

    within(60, work())


def test_temporary_files_are_where_it_is_told(tmp_path: Path) -> None:
    async def work() -> None:
        program = "import os; print(os.environ['TMPDIR'], 'PATH' in os.environ)"
        child = await start(tmp_path, program, temporary=tmp_path / "mine")
        await child.wait()
        assert child.log.read_text() == f"{tmp_path / 'mine'} True\n"

    within(60, work())


def test_its_standard_input_closes_when_its_parent_is_gone(tmp_path: Path) -> None:
    """The pipe is what ties it to us: whoever holds its other end, and nobody else, keeps it alive."""

    async def work() -> None:
        child = await start(tmp_path, "import sys; sys.stdin.read(); sys.exit(5)")
        assert child._process.stdin is not None
        child._process.stdin.close()  # as the kernel does when this process ends in whatever way
        assert await child.wait() == 5

    within(60, work())


FAMILY = """
import subprocess, sys, time
if "grandchild" not in sys.argv:
    subprocess.Popen([sys.executable, "-m", "program", "grandchild"])
    {then}
print("here", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("how", ["wait", "end"])
def test_its_whole_group_ends_with_it(tmp_path: Path, how: str) -> None:
    async def work() -> None:
        program = FAMILY.format(then="time.sleep(0.2); sys.exit(0)" if how == "wait" else "time.sleep(60)")
        child = await start(tmp_path, program)
        await asyncio.to_thread(wait_for, lambda: "here" in child.log.read_text())
        (grandchild,) = [p for p in psutil.process_iter() if "grandchild" in _words(p) and _folder(p) == tmp_path]
        await (child.wait() if how == "wait" else child.end())
        await asyncio.to_thread(wait_for, lambda: not _alive(grandchild), seconds=30)

    within(60, work())


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def _folder(process: psutil.Process) -> Path | None:
    try:
        return Path(process.cwd())
    except psutil.Error:
        return None


def _alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def test_one_that_does_not_listen_is_killed_after_a_grace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_module, "_END_GRACE", 0.3)

    async def work() -> None:
        deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True)"
        child = await start(tmp_path, f"{deaf}; time.sleep(60)")
        await asyncio.to_thread(wait_for, lambda: "deaf" in child.log.read_text())
        began = time.monotonic()
        await child.end()
        assert 0.3 <= time.monotonic() - began < 30
        assert not psutil.pid_exists(child.pid)

    within(60, work())


def test_one_that_listens_is_ended_politely(tmp_path: Path) -> None:
    async def work() -> None:
        polite = (
            "import signal, sys, time\n"
            "def bye(*_): print('good bye', flush=True); sys.exit(0)\n"
            "signal.signal(signal.SIGTERM, bye); print('hello', flush=True); time.sleep(60)"
        )
        child = await start(tmp_path, polite)
        await asyncio.to_thread(wait_for, lambda: "hello" in child.log.read_text())
        await child.end()
        assert child.log.read_text() == "hello\ngood bye\n"
        await child.end()  # who has ended can be ended again

    within(60, work())


def test_ctrl_c_in_the_terminal_does_not_reach_it(tmp_path: Path) -> None:
    async def work() -> None:
        child = await start(tmp_path, "input()")
        assert os.getsid(child.pid) == child.pid != os.getsid(0)
        await child.end()

    within(60, work())


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("", ""),
        ("one\ntwo\nthree\n", "two\nthree"),
        ("12:00:00 starts\nerror: no such policy.\nTry another.\n", "no such policy.\nTry another."),
        ("error: of the one before\nerror: of this one\nbye\n", "of this one\nbye"),
        ("an error: in the middle\n", "an error: in the middle"),
    ],
)
def test_its_last_words_are_the_sentence_for_people_if_there_is_one(tmp_path: Path, written: str, told: str) -> None:
    (tmp_path / "log").write_text(written)
    assert last_words(tmp_path / "log", lines=2) == told


def test_last_words_that_are_no_text_are_told_as_far_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"fine\n\xff\xfe\n")
    assert last_words(tmp_path / "log").startswith("fine\n")

"""Logs of children: read from their end, and kept from growing, whoever writes to them at the time."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
from support import wait_for

from sparring.orchestrator.machine import child as child_module
from sparring.orchestrator.machine import logs
from sparring.orchestrator.machine.child import Child
from sparring.orchestrator.machine.logs import last_words, shorten, tail_of

WRITER = """
import os, sys, time
n = 0
while os.getppid() == int(sys.argv[1]):
    sys.stdout.write("".join(f"line {i} {'x' * 80}\\n" for i in range(n, n + 200))); sys.stdout.flush()
    n += 200
    time.sleep(0.002)
"""


def test_of_a_log_that_is_larger_than_memory_only_the_end_is_read(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("wb") as file:
        file.truncate(4 << 30)  # a file with a hole: it takes no room
        file.seek(0, 2)
        file.write(b"\nsome line\nerror: the policy has no arms.\nGive it some.\n")
    tracemalloc.start()
    try:
        assert last_words(path) == "the policy has no arms.\nGive it some."
        assert len(tail_of(path)) < 200
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def test_a_log_without_lines_and_one_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"x" * 1_000_000)
    assert tail_of(tmp_path / "log", most=1000) == "x" * 1000
    assert last_words(tmp_path / "none") == ""


def test_the_middle_is_taken_out_and_beginning_and_end_are_whole(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("".join(f"line {n}\n" for n in range(20_000)))
    size = path.stat().st_size
    assert not shorten(path, limit=size)
    assert shorten(path, limit=size // 2)
    lines = path.read_text().splitlines()
    assert lines[0] == "line 0"
    assert lines[-1] == "line 19999"
    assert path.stat().st_size < size // 2
    at = next(number for number, line in enumerate(lines) if "bytes were left out here" in line)
    before, after = lines[: at - 1], lines[at + 2 :]
    assert before == [f"line {n}" for n in range(len(before))]
    assert after == [f"line {n}" for n in range(20_000 - len(after), 20_000)]
    assert len(before) > 500
    assert len(after) > 2000
    assert not shorten(path, limit=size // 2), "once is enough"


def test_it_is_cut_again_and_again_while_somebody_writes(tmp_path: Path) -> None:
    path, limit = tmp_path / "log", 400_000
    with path.open("ab") as sink:
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(os.getpid())], stdout=sink)
    with writer:
        try:
            cuts = 0

            def cut_often() -> bool:
                nonlocal cuts
                cuts += shorten(path, limit)
                return cuts >= 5

            wait_for(cut_often)
            assert writer.poll() is None, "it did not survive"
        finally:
            writer.kill()
    shorten(path, limit)
    assert path.stat().st_size <= limit
    lines = path.read_text().splitlines()
    assert lines[0].startswith("line 0 ")
    numbers = [int(line.split()[1]) for line in lines if line.startswith("line ") and line.endswith("x" * 80)]
    assert numbers == sorted(numbers), "what is newer stands further down"
    assert len(numbers) > 1000


def test_a_log_that_cannot_be_shortened_harms_nobody(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    assert not shorten(tmp_path / "log", limit=1)
    assert not shorten(tmp_path / "none", limit=1)


def test_the_log_of_a_child_that_says_too_much_is_kept_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "LIMIT", 500_000)
    monkeypatch.setattr(child_module, "_LOG_SECONDS", 0.05)
    program = (
        "import sys\n"
        "for n in range(40_000): print(f'line {n}', 'x' * 90)\n"
        "print('error: that was too much.', flush=True); sys.stdin.read()"
    )

    async def work() -> None:
        child = await Child.start_command([sys.executable, "-c", program], log=tmp_path / "log")
        await asyncio.to_thread(wait_for, lambda: "too much" in tail_of(child.log))
        await asyncio.to_thread(wait_for, lambda: child.log.stat().st_size <= 500_000)
        assert child.log.read_text().startswith("line 0 ")
        assert child.last_words() == "that was too much."
        await child.end()

    asyncio.run(asyncio.wait_for(work(), 60))

"""A run whose standard error is closed, broken or full goes on: what is shown of it is not the run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support import sampled

from sparring import Results

RUN = ("run", "--benchmark", "toy", "--task", "good,raises", "--retries", "1", "--policy", "toy_policies:Forward",
       "--episodes", "4", "--output", "out", "--json")  # fmt: skip


# As most people have it: with it set, nothing that cannot be written is left for the end.
BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}


def full() -> int:
    return os.open("/dev/full", os.O_WRONLY)


def broken() -> int:
    reading, writing = os.pipe()
    os.close(reading)
    return writing


def closed() -> int:
    return os.open(os.devnull, os.O_WRONLY)


@pytest.mark.processes
@pytest.mark.parametrize(
    ("stream", "how"),
    sampled(
        [(stream, how) for stream in (full, broken, closed) for how in ("--in-process", "--slots=2")],
        *((full, "--slots=2"), (broken, "--in-process"), (closed, "--in-process")),
    ),
)
def test_a_run_goes_on_when_nobody_can_see_it(tmp_path: Path, stream: Callable[[], int], how: str) -> None:
    descriptor = stream()
    close = 'import os, sys; os.close(2); os.execv(sys.executable, [sys.executable, "-m", "sparring", *sys.argv[1:]])'
    start = ["-c", close] if stream is closed else ["-m", "sparring"]
    try:
        done = subprocess.run(
            [sys.executable, *start, *RUN, how],
            cwd=tmp_path,
            env=BUFFERED,
            stdout=subprocess.PIPE,
            stderr=descriptor,
            timeout=120,
            check=False,
        )
    finally:
        os.close(descriptor)
    assert done.returncode == 3, "some episodes ended in an error, and that is all"
    results = Results.load(tmp_path / "out")
    assert (results.status, results.overall.n, results.overall.errors) == ("finished", 8, 4)
    assert b'"errors": 4' in done.stdout


@pytest.mark.processes
def test_what_is_wrong_with_a_command_has_its_exit_code_though_nobody_can_read_it(tmp_path: Path) -> None:
    descriptor = full()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "sparring", "show", "none"],
            cwd=tmp_path,
            env=BUFFERED,
            stderr=descriptor,
            timeout=60,
            check=False,
        )
    finally:
        os.close(descriptor)
    assert done.returncode == 2

"""Helpers of the tests: who is running, and what a run wrote."""

from __future__ import annotations

import csv
import json
import os
import re
import socket
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from _pytest.mark import ParameterSet

ROOT = Path(__file__).resolve().parent.parent
TIMING_COLUMNS = {"seconds", "physics_s", "render_s", "policy_s", "transport_s"}
MAKER_COLUMNS = {"worker", "host", "maker"}
"""Who has played an episode, which is not the same in two runs of one plan either."""

EVERYTHING = os.environ.get("SPARRING_TEST_ALL") == "1"
"""Whether `make test-all` runs: all tasks and episodes of what other runs of the tests only sample."""


def sampled(values: Iterable[object], *always: object) -> list[ParameterSet]:
    """What a test is parametrized with: some of it in every run of the tests, all of it in `make test-all`."""
    values = list(values)
    assert set(always) <= set(values), "what is always tried is there"
    return [
        pytest.param(
            *(value if isinstance(value, tuple) else (value,)), marks=() if value in always else pytest.mark.everything
        )
        for value in values
    ]


Sparring = Callable[..., subprocess.CompletedProcess[str]]
StartSparring = Callable[..., subprocess.Popen[str]]
Undisturbed = Callable[..., list[dict[str, str]]]


def processes_of(folder: Path) -> list[psutil.Process]:
    """Every process that was started in a folder: workers, slots, fork servers, policy servers."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.cwd() == str(folder) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def children_with(word: str, parent: int) -> list[psutil.Process]:
    """The children of a process with a word among their arguments; others come and go meanwhile."""
    found = []
    for child in psutil.Process(parent).children():
        with suppress(psutil.NoSuchProcess):
            if word in child.cmdline():
                found.append(child)
    return found


def orphans(folder: Path, seconds: float = 10.0) -> list[str]:
    """What is still running in a folder after a moment to end in."""
    _, alive = psutil.wait_procs(processes_of(folder), timeout=seconds)
    left = []
    for process in alive:
        with suppress(psutil.NoSuchProcess):  # it has ended after all
            left.append(" ".join(process.cmdline()))
    return left


def read_csv(folder: Path) -> list[dict[str, str]]:
    """episodes.csv without the columns that are not comparable: times, and who has played an episode."""
    other = TIMING_COLUMNS | MAKER_COLUMNS
    with (folder / "episodes.csv").open() as file:
        return [{k: v for k, v in row.items() if k not in other} for row in csv.DictReader(file)]


def recorded(folder: Path) -> int:
    """How many episodes a run has in its journal so far."""
    if not (folder / "journal.sqlite").exists():
        return 0
    with sqlite3.connect(folder / "journal.sqlite", timeout=10) as journal:
        try:
            return int(journal.execute("SELECT count(*) FROM episodes").fetchone()[0])
        except sqlite3.OperationalError:
            return 0  # not made yet


def wait_for(condition: Callable[[], object], *, seconds: float = 90.0) -> None:
    """Waits until something is true.

    Raises:
        TimeoutError: If it never is.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not true within {seconds} s")
        time.sleep(0.05)


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def page_content(page: Path) -> dict[str, Any]:
    """What a page that is one file shows, as it has it."""
    found = re.search(r'<script id="content" type="application/json">(.*?)</script>', page.read_text())
    assert found is not None
    return json.loads(found[1])  # type: ignore[no-any-return]


def pins(path: Path) -> dict[str, str]:
    """The versions in a constraint file, by the name of the package."""
    lines = [line for line in path.read_text().splitlines() if "==" in line and not line.startswith("#")]
    return {name.lower().replace("_", "-"): version for name, _, version in (line.partition("==") for line in lines)}


def has_cpu_capability(name: str) -> bool:
    """Whether torch's kernels of a kind (`ATEN_CPU_CAPABILITY`) run on this processor; torch itself does not look."""
    import torch

    kinds = ["default", "avx2", "avx512"]
    own = torch.backends.cpu.get_cpu_capability().lower()
    return name in kinds[: kinds.index(own) + 1] if own in kinds else name == "default"

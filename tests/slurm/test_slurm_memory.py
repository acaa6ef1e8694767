"""A job that takes more memory than it has asked for, on a real Slurm that does not allow it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from memory_cluster import memory_cluster
from slurm_cluster import PLAN, SLOW, ended
from support import StartSparring, Undisturbed, orphans, read_csv, recorded, wait_for

pytestmark = pytest.mark.requires("memory-cgroup")

GREEDY_WORKER = """
import os, sys, threading, time

def take_all():
    while not os.path.exists({mark!r}):
        time.sleep(0.1)
    os.remove({mark!r})
    held = []
    while True:
        held.append(b"x" * 2**24)

if any(word.startswith("--name=") for word in sys.orig_argv):
    threading.Thread(target=take_all, daemon=True).start()
"""


@pytest.fixture
def strict_cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with memory_cluster() as conf:
        monkeypatch.setenv("SLURM_CONF", str(conf))
        yield


@pytest.mark.usefixtures("strict_cluster")
def test_a_job_that_runs_out_of_memory_is_replaced(
    start_sparring: StartSparring, undisturbed: Undisturbed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = undisturbed(*PLAN)
    mark = tmp_path / "take-all"
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(GREEDY_WORKER.format(mark=str(mark)))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'site'}:{os.environ.get('PYTHONPATH', '')}")
    one = ("--launcher", "slurm", "--workers", "1", "--slots-per-worker", "1", "--slurm", "mem=400M")
    run = start_sparring(*SLOW, *one, "--output", "greedy")
    wait_for(lambda: recorded(tmp_path / "greedy") >= 1)
    mark.touch()
    said = ended(run)
    assert re.search(r"job \S+ ran out of memory on m1 after \S+ \(OUT_OF_MEMORY.*\); another is submitted", said), said
    assert read_csv(tmp_path / "greedy") == expected
    assert not (tmp_path / "greedy" / "slurm").exists()
    assert orphans(tmp_path) == []

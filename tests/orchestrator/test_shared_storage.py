"""Storage that several machines share is found out, and a run that keeps its journal there says so."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import Sparring

from sparring.orchestrator.machine import shared_storage as storage
from sparring.orchestrator.machine.shared_storage import shared_storage
from sparring.orchestrator.results.journal import Journal


def mounts(tmp_path: Path, *others: str) -> Path:
    file = tmp_path / "mountinfo"
    lines = ["22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw", *others, "garbage", ""]
    file.write_text("\n".join(lines))
    return file


def mounted(point: Path, kind: str) -> str:
    place = str(point).replace(" ", r"\040")
    return f"41 22 0:35 / {place} rw,relatime shared:20 - {kind} server:/export rw,vers=4.2"


@pytest.mark.parametrize("kind", ["nfs4", "lustre", "gpfs", "beegfs", "cifs", "fuse.sshfs", "fuse.ceph-fuse"])
def test_it_is_told_from_a_disk_by_the_nearest_mount(tmp_path: Path, kind: str) -> None:
    home, scratch = tmp_path / "ho me", tmp_path / "ho me" / "scratch"
    scratch.mkdir(parents=True)
    found = mounts(tmp_path, mounted(home, kind), mounted(scratch, "xfs"))
    assert shared_storage(home / "not" / "there" / "yet", found) == kind
    assert shared_storage(scratch / "run", found) == ""
    assert shared_storage(tmp_path, found) == ""


def test_what_is_mounted_over_something_hides_it(tmp_path: Path) -> None:
    assert shared_storage(tmp_path, mounts(tmp_path, mounted(tmp_path, "nfs"), mounted(tmp_path, "tmpfs"))) == ""
    assert shared_storage(tmp_path, mounts(tmp_path, mounted(tmp_path, "tmpfs"), mounted(tmp_path, "nfs"))) == "nfs"


def test_what_is_mounted_when_somebody_looks_into_it_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # There is no automounter in a test: this does what one does.
    home, stat = tmp_path / "home", os.stat
    home.mkdir()
    found = mounts(tmp_path, mounted(home, "autofs"))

    def looked_at(path: Any, *arguments: Any, **more: Any) -> os.stat_result:
        if str(path).startswith(f"{home}/"):
            found.write_text(f"{found.read_text()}{mounted(home, 'nfs4')}\n")
        return stat(path, *arguments, **more)

    monkeypatch.setattr(os, "stat", looked_at)
    assert shared_storage(home, found) == "nfs4"


def test_where_nobody_can_tell_it_is_taken_for_a_disk(tmp_path: Path) -> None:
    assert shared_storage(tmp_path, tmp_path / "no such file") == ""


@pytest.fixture
def in_memory() -> Iterator[Path]:
    """A folder on no disk, of this test alone: another user may have run it here before."""
    folder = Path(tempfile.mkdtemp(dir="/dev/shm"))
    yield folder
    shutil.rmtree(folder)


def test_on_shared_storage_the_journal_needs_no_shared_memory(
    tmp_path: Path, in_memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No file system of several machines can be had in a test: the kernel's list is a made-up one.
    monkeypatch.setattr(storage, "_MOUNTS", mounts(tmp_path, mounted(tmp_path, "nfs4")))
    for folder, mode in ((tmp_path / "shared", "delete"), (in_memory, "wal")):
        journal = Journal(folder)
        try:
            with sqlite3.connect(journal.path) as connection:
                assert connection.execute("PRAGMA journal_mode").fetchone() == (mode,)
        finally:
            journal.close()


def test_a_run_with_its_journal_there_says_so_and_plays(
    usage: Sparring, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As above: a made-up list of what is mounted.
    monkeypatch.setattr(storage, "_MOUNTS", mounts(tmp_path, mounted(tmp_path, "lustre")))
    done = usage("run", "--benchmark", "toy", "--task", "short", "--policy", "zero", "--episodes", "1",
                 "--in-process", "--output", "out")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "is on lustre, which machines share" in done.stderr
    assert "--output" in done.stderr

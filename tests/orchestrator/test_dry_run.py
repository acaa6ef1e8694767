"""`sparring run --dry-run`: all that a run would do, and nothing of it is done."""

from __future__ import annotations

import shutil
import sqlite3
import sys
from pathlib import Path

import pytest
from certificates import Certificates
from support import ROOT, Sparring

from sparring.orchestrator.machine.capacity import Capacity

TOY = ("run", "--benchmark", "toy", "--task", "good", "--policy", "expert", "--dry-run")
GIB = 2**30


def test_it_says_what_would_be_done_and_does_nothing(usage: Sparring, tmp_path: Path) -> None:
    done = usage(
        *TOY, "--episodes", "3", "--seed", "7", "--max-steps", "9", "--slots", "2", "--slot-memory", "3g",
        "--benchmark-arg", "noise=4", "--output", "out", "--record", "records",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    memory = lines.pop(6)
    each = "1.0 GiB each, and replaced between episodes above 3.0 GiB"
    assert memory.startswith(f"memory: 2.0 GiB for simulators ({each})")
    assert lines == [
        "plan: 2 tasks × 3 episodes = 6 episodes",
        "  seeds of each task's episodes: 7 to 9",
        "  toy noise=4: short, long",
        "  at most 54 steps",
        "output: out",
        "slots: 2: as --slots says",
        f"policy: expert, served by a process of {sys.executable} at a unix socket and a TCP port",
        "workers: by the launcher process",
        f"  toy: a process of {sys.executable}, with 2 slots",
        "nothing was started, nothing was written",
    ]
    assert list(tmp_path.iterdir()) == []


def test_it_knows_what_is_done_already(usage: Sparring, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(ROOT / "tests" / "fixtures" / "release-0.1.0" / "unfinished", tmp_path / "out"))
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    plan = ("--episodes", "13", "--seed", "7", "--benchmark-arg", "step_seconds=0.03", "--output", "out")
    done = usage(*TOY, *plan)
    assert done.returncode == 0, done.stderr
    assert "output: out, which has 17 episodes; 9 are left" in done.stdout
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_the_folder_of_another_plan_is_refused_as_by_the_run(usage: Sparring, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(ROOT / "tests" / "fixtures" / "release-0.1.0" / "unfinished", tmp_path / "out"))
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    plan = ("--episodes", "12", "--benchmark-arg", "step_seconds=0.03", "--output", "out")
    done = usage(*TOY, *plan, "--seed", "8")
    assert done.returncode == 2, done.stdout
    assert "'out' holds the results of another plan:\n  seed: 7 there, 8 now\n" in done.stderr
    assert usage(*TOY, "--episodes", "12", "--seed", "7", "--output", "out").returncode == 2
    accepted = usage(*TOY, "--episodes", "12", "--seed", "7", "--output", "out", "--accept-changes")
    assert accepted.returncode == 0, accepted.stderr
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_slots_are_shared_by_what_is_left(usage: Sparring, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(
        "policy: toy_policies:Forward\nepisodes: 2\noutput: out\nevaluations:\n"
        "- {benchmark: toy, task: short, name: done}\n- {benchmark: toy, task: long, name: left}\n"
    )
    assert usage("run", "--config", "run.yaml", "--in-process").returncode == 0
    with sqlite3.connect(tmp_path / "out" / "journal.sqlite") as journal:
        journal.execute("DELETE FROM episodes WHERE benchmark = 'left'")
    said = usage("run", "--config", "run.yaml", "--slots", "3", "--dry-run").stdout
    assert "which has 2 episodes; 2 are left" in said
    assert f"  left: a process of {sys.executable}, with 3 slots\n" in said
    assert "  done: a process" not in said


def test_workers_that_come_by_themselves_are_told_how(usage: Sparring, tmp_path: Path) -> None:
    done = usage(*TOY, "--launcher", "none", "--output", "my run")
    assert (
        "  toy: started by you: sparring worker --benchmark toy --orchestrator 127.0.0.1:50052 "
        f"--join-token-file '{tmp_path}/my run/join-token'\n"
    ) in done.stdout
    unnamed = usage(*TOY, "--launcher", "none")
    assert " --join-token-file OUTPUT/join-token\n" in unnamed.stdout
    assert "  OUTPUT: the run's new folder, whose name has the time in it\n" in unnamed.stdout
    open_to_all = usage(*TOY, "--launcher", "none", "--listen", "0.0.0.0:50052", "--insecure")
    (line,) = [line for line in open_to_all.stdout.splitlines() if "started by you" in line]
    assert "--join-token-file" not in line, "nobody needs it"
    assert "OUTPUT" not in open_to_all.stdout


def test_an_encrypted_run_is_told_of_as_such(usage: Sparring, tmp_path: Path) -> None:
    cert, key = Certificates.make(tmp_path).pair()
    tls = ("--listen-tls-cert", str(cert), "--listen-tls-key", str(key))
    by_themselves = usage(*TOY, "--launcher", "none", "--listen", "127.0.0.1:50052", *tls)
    assert "--orchestrator tls://127.0.0.1:50052 " in by_themselves.stdout, by_themselves.stderr
    beside_others = usage(*TOY, "--listen", "127.0.0.1:50052", *tls)
    assert "others may dial in at tls://127.0.0.1:50052\n" in beside_others.stdout, beside_others.stderr


def test_in_process_and_elsewhere(usage: Sparring) -> None:
    assert "policy: expert, made in this process\n" in usage(*TOY, "--in-process").stdout
    elsewhere = ("run", "--benchmark", "toy", "--task", "good", "--policy-server", "gpu-1:50051", "--dry-run")
    assert "policy: at gpu-1:50051, which was not asked\n" in usage(*elsewhere).stdout


def test_what_would_be_refused_is_refused(usage: Sparring, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert usage(*TOY, "--output", ".").returncode == 2
    assert usage(*TOY, "--benchmark-arg", "no_such=1").returncode == 2


@pytest.mark.parametrize(
    ("found", "episodes", "slots", "why"),
    [
        (Capacity(2, 64 * GIB), 100, 2, "one for each of the 2 cores that may be used here"),
        (Capacity(20, 64 * GIB), 100, 14, "0.7 of the 20 cores that may be used here"),
        (Capacity(20, 3 * GIB), 100, 3, "3.0 GiB of memory may be used here, 1 GiB each"),
        (Capacity(20), 5, 5, "one for each episode that is left"),
        (Capacity(200), 500, 64, "64 are the most that are taken without being asked for"),
        (Capacity(1, GIB // 2), 9, 1, "0.5 GiB of memory may be used here, 1 GiB each"),
    ],
)
def test_why_there_are_so_many_slots(found: Capacity, episodes: int, slots: int, why: str) -> None:
    assert (found.slots(episodes), found.reason(episodes)) == (slots, why)

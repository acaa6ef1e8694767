"""What a run survives: killed workers, killed slots, killed servers, Ctrl-C, a full disk."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from support import Sparring, StartSparring, Undisturbed, free_port, orphans, processes_of, read_csv, recorded, wait_for

PLAN = ("run", "--benchmark", "toy", "--task", "good", "--policy", "toy_policies:Wanderer", "--episodes", "6")
SLOW = (*PLAN, "--benchmark-arg", "step_seconds=0.01")


def processes(folder: Path, module: str) -> list[psutil.Process]:
    return [p for p in processes_of(folder) if module in " ".join(p.cmdline())]


@pytest.mark.everything
def test_random_kills_change_no_number_and_leave_no_file(
    undisturbed: Undisturbed,
    start_sparring: StartSparring,
    tmp_path: Path,
    short_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TMPDIR", str(short_folder))
    slower = (*SLOW, "--benchmark-arg", "step_seconds=0.03", "--slots", "2")
    process = start_sparring(*slower, "--output", "stormy")
    rng = random.Random(0)
    wait_for(lambda: recorded(tmp_path / "stormy") >= 1)
    kills = 0
    while process.poll() is None:
        # The worker itself, its slots or its fork server: whoever is hit.
        targets = processes(tmp_path, "env_worker") + processes(tmp_path, "multiprocessing")
        if targets:
            rng.choice(targets).kill()
            kills += 1
        # Not by the clock: where a worker takes longer to start than the pause between two kills, none would ever
        # finish an episode, and giving up is then right.
        seen = recorded(tmp_path / "stormy")
        wait_for(lambda seen=seen: process.poll() is not None or recorded(tmp_path / "stormy") > seen, seconds=60)
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    assert kills >= 3
    assert orphans(tmp_path) == []
    assert list(short_folder.iterdir()) == []
    assert read_csv(tmp_path / "stormy") == undisturbed(*PLAN)


def test_a_policy_server_that_dies_in_the_middle_is_started_again(
    sparring: Sparring, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    base = ("run", "--benchmark", "toy", "--task", "good", "--episodes", "4")
    flag = tmp_path / "died"
    done = sparring(
        *base, "--policy", "toy_policies:DiesOnce", "--policy-arg", f"flag={flag}", "--slots", "2",
        "--output", "stormy",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert flag.exists()
    assert read_csv(tmp_path / "stormy") == undisturbed(*base, "--policy", "toy_policies:Forward")


def test_ctrl_c_leaves_a_whole_journal_the_resume_command_and_nobody(
    sparring: Sparring, undisturbed: Undisturbed, start_sparring: StartSparring, tmp_path: Path
) -> None:
    process = start_sparring(*SLOW, "--slots", "2", "--output", "cut")
    wait_for(lambda: recorded(tmp_path / "cut") >= 3)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the whole group
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "trying again" not in errors, "nobody tries anything after Ctrl-C"
    assert "sparring resume cut" in errors
    assert "Traceback" not in errors
    assert orphans(tmp_path) == []
    before = recorded(tmp_path / "cut")
    assert 3 <= before < 12
    assert len(read_csv(tmp_path / "cut")) == before, "the table of what there is"
    done = sparring("resume", "cut")
    assert done.returncode == 0, done.stderr
    assert read_csv(tmp_path / "cut") == undisturbed(*PLAN)


def test_a_killed_orchestrator_leaves_nobody_behind(start_sparring: StartSparring, tmp_path: Path) -> None:
    process = start_sparring(*SLOW, "--slots", "2", "--output", "cut")
    wait_for(lambda: recorded(tmp_path / "cut") >= 1)
    process.kill()
    process.communicate()
    assert orphans(tmp_path) == []


@pytest.mark.everything
def test_ctrl_c_while_the_policy_loads(start_sparring: StartSparring, tmp_path: Path) -> None:
    (tmp_path / "slow_policy.py").write_text("import time\ntime.sleep(600)\n")
    process = start_sparring(
        "run", "--benchmark", "toy", "--task", "short", "--policy", "slow_policy:X", "--output", "o"
    )
    wait_for(lambda: processes(tmp_path, "policy_server"))
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert orphans(tmp_path) == []


def test_workers_that_cannot_live_are_given_up_with_their_last_words(
    sparring: Sparring, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\nif 'sparring.env_worker' in sys.orig_argv:\n    os.write(2, b'no air\\n')\n    os._exit(7)\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ['PYTHONPATH']}")
    done = sparring("run", "--benchmark", "toy", "--task", "short", "--policy", "zero", "--output", "out")
    assert done.returncode == 1
    assert "workers die before they finish an episode" in done.stderr
    assert "no air" in done.stderr
    assert "sparring resume out" in done.stderr


def test_a_worker_from_elsewhere_and_a_policy_from_elsewhere(
    undisturbed: Undisturbed, start_sparring: StartSparring, tmp_path: Path
) -> None:
    server = start_sparring("serve", "--policy", "toy_policies:Wanderer", "--listen", "127.0.0.1:0")
    assert server.stdout is not None
    address = json.loads(server.stdout.readline())["listening"][0]
    flags = [a for a in SLOW if a not in ("--policy", "toy_policies:Wanderer")]
    here = f"127.0.0.1:{free_port()}"
    run = start_sparring(
        *flags, "--policy-server", address, "--launcher", "none", "--listen", here, "--output", "remote"
    )
    token = tmp_path / "remote" / "join-token"
    wait_for(token.exists)
    assert token.stat().st_mode & 0o777 == 0o600
    worker = start_sparring("worker", "--orchestrator", here, "--slots", "2", "--join-token-file", "remote/join-token")
    _, errors = run.communicate(timeout=100)
    assert run.returncode == 0, errors
    assert worker.wait(60) == 0, "a worker ends well when the run does"
    server.terminate()
    assert server.wait(60) == 0
    assert read_csv(tmp_path / "remote") == undisturbed(*PLAN)
    assert f"sparring worker --benchmark toy --orchestrator {here} --join-token-file {token}" in errors
    assert not token.exists(), "it was of this run"


def test_a_remote_policy_that_goes_away_stops_the_run_with_a_sentence(
    start_sparring: StartSparring, tmp_path: Path
) -> None:
    server = start_sparring("serve", "--policy", "toy_policies:Wanderer", "--listen", "127.0.0.1:0")
    assert server.stdout is not None
    address = json.loads(server.stdout.readline())["listening"][0]
    flags = [a for a in SLOW if a not in ("--policy", "toy_policies:Wanderer")]
    run = start_sparring(*flags, "--policy-server", address, "--policy-timeout", "5", "--output", "out")
    wait_for(lambda: recorded(tmp_path / "out") >= 1)
    server.kill()
    _, errors = run.communicate(timeout=60)
    assert run.returncode == 1, errors
    assert "no policy server answered" in errors
    assert "sparring resume out" in errors
    assert orphans(tmp_path) == []


def test_a_worker_without_a_run_gives_up(sparring: Sparring) -> None:
    done = sparring("worker", "--orchestrator", "127.0.0.1:9", "--connect-timeout", "1")
    assert done.returncode == 1
    assert "no orchestrator answered at 127.0.0.1:9 within 1 s" in done.stderr


def test_a_disk_that_fills_up_stops_the_run_and_loses_nothing(
    start_sparring: StartSparring, sparring: Sparring, tmp_path: Path
) -> None:
    # No file of the run may grow beyond some size: to SQLite that is a disk that takes no more.
    limited = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, resource.RLIM_INFINITY));"
        "sys.argv[0] = 'sparring'; from sparring.orchestrator.cli import main; main()"
    )
    command = [sys.executable, "-c", limited, *SLOW, "--slots", "2", "--episodes", "500", "--output", "out"]
    began = time.monotonic()
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1, done.stderr
    assert "Is the disk full" in done.stderr, done.stderr
    assert "sparring resume out" in done.stderr
    assert time.monotonic() - began < 100
    assert orphans(tmp_path) == []
    with sqlite3.connect(tmp_path / "out" / "journal.sqlite") as journal:
        assert journal.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert journal.execute("SELECT count(*) FROM episodes").fetchone()[0] > 0

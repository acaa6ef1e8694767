"""What a run survives of those who neither answer nor die, and of policies that take their server down."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from chaos.proxy import Proxy
from support import (
    Sparring,
    StartSparring,
    Undisturbed,
    free_port,
    orphans,
    processes_of,
    read_csv,
    recorded,
    wait_for,
)

BASE = ("run", "--benchmark", "toy", "--task", "short", "--episodes", "8")
PLAN = ("run", "--benchmark", "toy", "--task", "good", "--policy", "toy_policies:Wanderer", "--episodes", "4")
SLOW = (*PLAN, "--benchmark-arg", "step_seconds=0.02", "--slots", "2")
IMPATIENT = (
    "import sys; from sparring.orchestrator.coordination import work_service;"
    "work_service.SILENCE_SECONDS, work_service._LAST_SECONDS = 4.0, 1.0;"
    "sys.argv[0] = 'sparring'; from sparring.orchestrator.cli import main; main()"
)
"""A run to which four seconds are silence."""
ERRORS = 3
"""What a run ends with that has episodes which are errors."""


def processes(folder: Path, module: str) -> list[psutil.Process]:
    return [p for p in processes_of(folder) if module in " ".join(p.cmdline())]


@pytest.mark.parametrize(
    ("how", "slots", "kind", "sentence"),
    [
        ("exit", 3, "policy", "the policy server ended with exit code 9 each time this episode was played"),
        pytest.param(
            *("segfault", 1, "policy", "the policy server was ended by SIGSEGV each time this episode was played"),
            marks=pytest.mark.everything,
        ),
        pytest.param(
            *("hang", 2, "limit", "the policy server did not answer within 5 s and was killed each time this episode"),
            marks=pytest.mark.everything,
        ),
    ],
)
def test_a_policy_that_takes_its_server_down_on_one_episode_is_that_episodes_error(
    sparring: Sparring, tmp_path: Path, how: str, slots: int, kind: str, sentence: str
) -> None:
    policy = ("--policy", "toy_policies:TakesDown", "--policy-arg", f"how={how}", "--slots", str(slots))
    done = sparring(
        *BASE, *policy, "--policy-arg", "episodes=[3]", "--policy-timeout", "5", "--output", "out"
    )  # fmt: skip
    assert done.returncode == ERRORS, done.stderr
    rows = read_csv(tmp_path / "out")
    assert [row["outcome"] for row in rows] == ["success"] * 3 + ["error"] + ["success"] * 4
    assert rows[3]["error_kind"] == kind
    assert sentence in rows[3]["error"]
    assert {row["attempts"] for row in rows} == {"1"}, "no other is charged"
    assert orphans(tmp_path) == []


@pytest.mark.everything
def test_a_policy_that_takes_its_server_down_whatever_is_played_ends_the_run(
    sparring: Sparring, tmp_path: Path
) -> None:
    everything = list(range(8))
    policy = ("--policy", "toy_policies:TakesDown", "--policy-arg", "how=exit", "--slots", "2")
    done = sparring(*BASE, *policy, "--policy-arg", f"episodes={everything}", "--output", "out")
    assert done.returncode == 1, done.stderr
    assert "the policy server ended with exit code 9, again and again, whatever is played" in done.stderr
    assert "sparring resume out" in done.stderr


def test_a_policy_server_that_is_stopped_is_replaced_and_nobody_charged(
    undisturbed: Undisturbed, start_sparring: StartSparring, tmp_path: Path
) -> None:
    process = start_sparring(*SLOW, "--policy-timeout", "5", "--output", "stormy")
    wait_for(lambda: recorded(tmp_path / "stormy") >= 1)
    (server,) = processes(tmp_path, "sparring.policy_server")
    server.send_signal(signal.SIGSTOP)
    _, errors = process.communicate(timeout=100)
    assert process.returncode == 0, errors
    assert not server.is_running()
    assert read_csv(tmp_path / "stormy") == undisturbed(*PLAN)


def start_impatient(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", IMPATIENT, *arguments]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_worker_that_is_stopped_is_killed_and_replaced(undisturbed: Undisturbed, tmp_path: Path) -> None:
    run = start_impatient(tmp_path, *SLOW, "--output", "stormy")
    try:
        wait_for(lambda: recorded(tmp_path / "stormy") >= 1)
        (worker,) = processes(tmp_path, "-m sparring.env_worker")
        worker.send_signal(signal.SIGSTOP)
        _, errors = run.communicate(timeout=100)
    finally:
        run.kill()
    assert run.returncode == 0, errors
    assert "was silent for 4 s" in errors
    assert not worker.is_running()
    assert orphans(tmp_path) == []
    assert read_csv(tmp_path / "stormy") == undisturbed(*PLAN)


@pytest.mark.everything
def test_an_orchestrator_that_was_frozen_throws_nobody_out(undisturbed: Undisturbed, tmp_path: Path) -> None:
    run = start_impatient(tmp_path, *SLOW, "--output", "stormy")
    try:
        wait_for(lambda: recorded(tmp_path / "stormy") >= 1)
        before = processes(tmp_path, "-m sparring.env_worker")
        os.kill(run.pid, signal.SIGSTOP)
        time.sleep(7)  # which is longer than silence may last
        os.kill(run.pid, signal.SIGCONT)
        wait_for(lambda: recorded(tmp_path / "stormy") >= 5)
        assert processes(tmp_path, "-m sparring.env_worker") == before
        _, errors = run.communicate(timeout=100)
    finally:
        run.kill()
    assert run.returncode == 0, errors
    assert "silent" not in errors
    assert "lost" not in errors
    assert read_csv(tmp_path / "stormy") == undisturbed(*PLAN)


@pytest.mark.everything
def test_a_worker_that_was_cut_off_comes_back_and_goes_on(
    undisturbed: Undisturbed, start_sparring: StartSparring, tmp_path: Path
) -> None:
    plan = ("run", "--benchmark", "toy", "--task", "long", "--policy", "toy_policies:Forward", "--episodes", "2",
            "--policy-arg", "gain=0.01")  # fmt: skip
    flags = ("--benchmark-arg", "step_seconds=0.05", "--benchmark-arg", f"flag_folder={tmp_path}")
    slow = (*plan, *flags, "--slots", "2")
    here = free_port()
    run = start_sparring(*slow, "--launcher", "none", "--listen", f"127.0.0.1:{here}", "--output", "stormy")
    wait_for((tmp_path / "stormy" / "join-token").exists)
    wire = Proxy(here)
    try:
        worker = start_sparring(
            *("worker", "--orchestrator", f"127.0.0.1:{wire.port}", "--slots", "2"),
            *("--join-token-file", "stormy/join-token"),
        )
        wait_for(lambda: len(list(tmp_path.glob("begun-*"))) == 2)  # they are in the middle of episodes of ten seconds
        wire.cut()
        _, errors = run.communicate(timeout=100)
        _, said = worker.communicate(timeout=60)
    finally:
        wire.close()
    assert run.returncode == 0, errors
    assert worker.returncode == 0, said
    assert "back at the orchestrator; of what was being played, 2 go on, 0 do not" in said
    assert read_csv(tmp_path / "stormy") == undisturbed(*plan)

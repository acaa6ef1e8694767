"""What containers lean on: health that can be asked for, a heartbeat, and no waiting for ever."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support import Sparring, StartSparring, free_port, wait_for

TOY = ("run", "--benchmark", "toy", "--task", "short", "--policy", "toy_policies:Wanderer", "--output", "out")


def probe(address: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sparring.protos.net.probe", address]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


def test_an_orchestrator_that_waits_for_workers_is_healthy(start_sparring: StartSparring) -> None:
    address = f"127.0.0.1:{free_port()}"
    start_sparring(*TOY, "--launcher", "none", "--listen", address)
    wait_for(lambda: probe(address).returncode == 0)


def test_an_orchestrator_may_listen_at_a_socket_and_nowhere_else(
    start_sparring: StartSparring, short_folder: Path
) -> None:
    address = f"unix://{short_folder}/work.sock"
    start_sparring(*TOY, "--launcher", "none", "--listen", address)
    wait_for(lambda: probe(address).returncode == 0)


def test_a_policy_server_is_healthy_on_each_of_its_addresses(start_sparring: StartSparring, tmp_path: Path) -> None:
    addresses = [f"127.0.0.1:{free_port()}", f"unix://{tmp_path}/policy.sock"]
    serving = [f"--listen={address}" for address in addresses]
    start_sparring("serve", "--policy", "toy_policies:Wanderer", *serving)
    for address in addresses:
        wait_for(lambda address=address: probe(address).returncode == 0)


def test_nobody_there_is_not_healthy_and_says_why() -> None:
    address = f"127.0.0.1:{free_port()}"
    asked = probe(address)
    assert asked.returncode == 1
    assert address in asked.stderr


def test_a_run_that_nobody_comes_to_work_for_is_given_up(sparring: Sparring) -> None:
    done = sparring(*TOY, "--launcher", "none", "--listen", f"127.0.0.1:{free_port()}", "--worker-timeout", "1")
    assert done.returncode == 1
    assert "no worker of toy has been here for 1 s" in done.stderr
    assert "sparring resume out" in done.stderr


def test_a_worker_at_work_has_a_heartbeat(
    start_sparring: StartSparring, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heart = tmp_path / "heart"
    monkeypatch.setenv("SPARRING_HEARTBEAT", str(heart))
    start_sparring("worker", "--orchestrator", f"127.0.0.1:{free_port()}", "--benchmark", "toy")
    wait_for(heart.exists)
    first = heart.stat().st_mtime_ns
    wait_for(lambda: heart.stat().st_mtime_ns > first, seconds=5)


def test_a_policy_server_that_hangs_ends_and_says_where(
    start_sparring: StartSparring, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARRING_WATCHDOG", "8")
    (tmp_path / "hanging.py").write_text(
        "import toy_policies\n\nclass Hanging(toy_policies.Wanderer):\n"
        "    def new_session(self, *given, **named):\n        sum(range(10**14))\n"
    )
    address = f"unix://{tmp_path}/policy.sock"
    server = start_sparring("serve", "--policy", "hanging:Hanging", "--listen", address)
    wait_for(lambda: probe(address).returncode == 0)
    run = ("run", "--benchmark", "toy", "--task", "short", "--policy-server", address, "--output", "out")
    client = start_sparring(*run)
    _, errors = server.communicate(timeout=60)
    assert server.returncode == 1, errors
    assert "Timeout" in errors
    assert "in new_session" in errors
    client.terminate()

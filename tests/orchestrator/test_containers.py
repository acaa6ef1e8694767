"""The container engine, where there is none; and whose containers are whose. Needs no engine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import Sparring

from sparring.orchestrator.launchers.docker import engine as containers
from sparring.orchestrator.launchers.docker.engine import EngineFailed, connect
from sparring.orchestrator.machine.memory import parse_memory
from sparring.orchestrator.machine.owner import owner, owner_state

RUN = ("run", "--benchmark", "toy", "--task", "short", "--policy", "zero", "--launcher", "docker", "--output", "out")


@pytest.mark.processes
def test_no_engine_is_a_sentence_before_anything_starts(
    usage: Sparring, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody.sock")
    done = usage(*RUN)
    assert done.returncode == 1
    assert f"no container engine answers at unix://{tmp_path}/nobody.sock (No such file or directory)" in done.stderr
    assert "DOCKER_HOST" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()
    assert "no container engine answers" in usage("clean").stderr
    assert "no container engine answers" in " ".join(usage("doctor").stdout.split())


def test_neither_docker_nor_podman(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setattr(containers, "sockets", lambda: [tmp_path / "docker.sock", tmp_path / "podman.sock"])
    with pytest.raises(EngineFailed, match=r"docker\.sock, .*podman\.sock exists. Install and start Docker"):
        connect()


@pytest.mark.parametrize("lacking", ["engine", "package"])
def test_clean_has_nothing_to_remove_where_there_are_no_containers(
    lacking: str, usage: Sparring, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on the login node of a cluster."""
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(containers, "sockets", lambda: [tmp_path / "docker.sock"])
    if lacking == "package":
        (tmp_path / "docker.sock").touch()
        there = containers.version
        monkeypatch.setattr(containers, "version", lambda name: there("no-docker" if name == "docker" else name))
    done = usage("clean")
    assert (done.returncode, done.stdout) == (0, "There is nothing to remove.\n")


def test_podman_is_found_where_it_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/7")
    found = [str(path) for path in containers.sockets()]
    assert found[0] == "/var/run/docker.sock"
    assert found[-2:] == ["/run/user/7/podman/podman.sock", "/run/podman/podman.sock"]


def test_an_engine_that_one_may_not_use(tmp_path: Path) -> None:
    # Root may use everything, and so becomes nobody first; imported before, as nobody may read next to nothing.
    script = (
        "import os, socket, sys; s = socket.socket(socket.AF_UNIX); s.bind('/tmp/' + sys.argv[1]); s.listen();"
        "os.chmod('/tmp/' + sys.argv[1], 0); import docker.client;"
        "from sparring.orchestrator.launchers.docker.engine import connect;"
        "os.getuid() or os.setuid(65534); os.environ['DOCKER_HOST'] = 'unix:///tmp/' + sys.argv[1]; connect()"
    )
    name = f"sparring-test-{os.getpid()}.sock"
    try:
        done = subprocess.run(
            [sys.executable, "-c", script, name], capture_output=True, text=True, timeout=60, check=False
        )
    finally:
        Path("/tmp", name).unlink(missing_ok=True)
    assert "you may not use the container engine" in done.stderr
    assert "group docker" in done.stderr


def test_an_owner_is_alive_dead_or_of_another_machine() -> None:
    assert owner_state(owner()) == "alive"
    ended = subprocess.run(
        [
            sys.executable,
            "-c",
            "from sparring.orchestrator.machine.owner import owner; import sys; sys.stdout.write(owner())",
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert owner_state(ended.stdout) == "dead"
    host, boot, number, started = owner().split("/")
    assert owner_state(f"{host}/{boot}/{number}/{int(started) + 1}") == "dead", "the number was given out again"
    assert owner_state(f"{host}/another-boot/{number}/{started}") == "dead"
    assert owner_state(f"elsewhere/{boot}/{number}/{started}") == "unknown"
    assert owner_state("") == "unknown"


@pytest.mark.parametrize(
    ("amount", "count"), [("auto", 0), ("512m", 2**29), ("1.5g", 3 * 2**29), ("2GiB", 2**31), ("33554432", 2**25)]
)
def test_amounts_of_memory(amount: str, count: int) -> None:
    assert parse_memory(amount) == count


@pytest.mark.parametrize("amount", ["", "4", "lots", "-1g", "1x"])
def test_what_is_no_amount_of_memory(amount: str) -> None:
    with pytest.raises(ValueError, match="at least 16m"):
        parse_memory(amount)

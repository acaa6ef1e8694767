"""How containers reach the policy: which sockets they are shown, and what they cannot reach."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from sparring.orchestrator.launchers.docker.engine import Engine
from sparring.orchestrator.launchers.docker.launcher import DockerLauncher
from sparring.orchestrator.launchers.docker.route import HOST_NAME, Route, find_route
from sparring.orchestrator.settings import read_settings
from sparring.protos.errors import UsageError
from sparring.protos.net.address import Address

# No engine is asked anything here: nothing of this depends on what one says, and most machines have none.
HERE = Engine(None, "unix:///var/run/docker.sock")
ELSEWHERE = Engine(None, "ssh://gpu-box")


def route(servers: str, engine: Engine = HERE, **settings: str) -> Route:
    base = {"benchmark": "toy", "task": "short", "launcher": "docker", "policy_server": servers}
    run = read_settings({**base, **settings})
    return find_route(run, DockerLauncher().own(run), engine)


def test_the_folder_of_every_socket_is_shown_to_containers() -> None:
    assert route("gpu:1, unix:///srv/policy/p.sock").folders == (Path("/srv/policy"),)
    assert route("unix:///srv/policy/p.sock").folders == (Path("/srv/policy"),)
    assert route("unix:///tmp/p.sock").folders == (Path("/tmp/p.sock"),), "not everybody's folder"
    assert route("gpu:1,gpu:2").folders == ()


def test_what_lies_beside_a_socket_is_not_shown_to_containers(short_folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(short_folder / "p.sock"))
        assert route(f"unix://{short_folder}/p.sock").folders == (short_folder,)
        (short_folder / "id_ed25519").touch()
        assert route(f"unix://{short_folder}/p.sock").folders == (short_folder / "p.sock",)


def test_a_socket_needs_no_name_for_this_machine() -> None:
    assert not route("unix:///srv/policy/p.sock").needs_name


@pytest.mark.parametrize("server", ["tls://localhost:5", "gpu:1, tls://127.0.0.1:5", "tls://[::1]:5"])
def test_tls_with_a_name_that_means_the_container_is_refused(server: str) -> None:
    with pytest.raises(UsageError, match="means the container itself"):
        route(server)


def test_an_engine_elsewhere_needs_names_that_mean_something_there() -> None:
    with pytest.raises(UsageError, match="means another machine to containers"):
        route("gpu:1, localhost:5", ELSEWHERE, listen="box:50052")
    with pytest.raises(UsageError, match=r'listen="0\.0\.0\.0:50052" means nothing'):
        route("gpu:1", ELSEWHERE, listen="0.0.0.0:50052")
    assert route("gpu:1", ELSEWHERE, listen="box:50052").kind == "tcp"


def test_by_tcp_a_local_address_is_dialled_by_the_machines_name_in_containers() -> None:
    way = Route("tcp", None, True, ())
    local = Address.parse("unix:///s/work.sock")
    assert way.dial(local, Address.parse("0.0.0.0:7")) == Address("tcp", HOST_NAME, 7)
    assert way.dial(local, Address.parse("box:7")) == Address("tcp", "box", 7)
    assert Route("unix", None, False, ()).dial(local, Address.parse("box:7")) == local

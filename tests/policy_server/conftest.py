from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))  # for the helpers beside this file, whatever pytest's import mode

from policy_serving import Server


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    """Starts servers and ends them after the test, whatever happened."""
    servers: list[Server] = []

    def start(*arguments: str, **settings: str | tuple[str, ...]) -> Server:
        servers.append(Server(*arguments, **settings))  # type: ignore[arg-type]
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture(scope="module")
def fragile() -> Iterator[Server]:
    """One server with the Fragile policy for a whole module: that it outlives every test is part of the test."""
    server = Server("--policy=sample_policies:Fragile", "--grace=0")
    yield server
    assert server.process.poll() is None, server.log
    server.close()

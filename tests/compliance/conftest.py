"""The servers that the compliance suite is tried on."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))  # for the helpers beside this file, whatever pytest's import mode

from own_servers import own_server

from sparring.policy_server.compliance import reached
from sparring.policy_server.compliance.wire import Target, Way


@pytest.fixture(scope="session", params=["zero", "strict"])
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    """Our own server, with an open and with a strict policy."""
    with own_server(request.param) as address, reached(Way(address)) as found:
        yield found


@pytest.fixture(scope="session")
def blind_server() -> Iterator[str]:
    """The address of our own server with a policy that looks at nothing."""
    with own_server("blind") as address:
        yield address

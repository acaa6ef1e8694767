"""Where a slot's sessions go when there are several servers, with real ones that come and go."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial

import pytest
from support import free_port

from sparring.env_worker.worker import replicas
from sparring.env_worker.worker.replicas import PolicyServers
from sparring.policy_server.client import Offer, PolicyClient, PolicyRefused, PolicyUnreachable
from sparring.protos.net.address import Address

pytestmark = pytest.mark.processes

OFFER = Offer({}, (-1.0,), (1.0,))


class Server:
    def __init__(self, listen: str = "127.0.0.1:0", *flags: str) -> None:
        command = [
            sys.executable,
            "-m",
            "sparring.policy_server",
            "--policy=zero",
            f"--listen={listen}",
            "--grace=0",
            *flags,
        ]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert self.process.stdout is not None
        self.address: str = json.loads(self.process.stdout.readline())["listening"][0]

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def pair() -> Iterator[list[Server]]:
    servers = [Server(), Server()]
    yield servers
    for server in servers:
        server.kill()


def slot(addresses: list[str], home: int, timeout: float = 20.0) -> PolicyServers:
    parsed = [Address.parse(address) for address in addresses]
    return PolicyServers(parsed, home=home, timeout=timeout, connect=partial(PolicyClient, timeout=timeout))


def opened(servers: PolicyServers) -> str:
    """Where the next session is."""
    with servers.open(OFFER, benchmark="", client="test") as session:
        session.start()
        return str(session._address)


def test_each_slot_stays_with_its_own(pair: list[Server]) -> None:
    addresses = [server.address for server in pair]
    for number in range(4):
        servers = slot(addresses, number)
        assert [opened(servers), opened(servers)] == [addresses[number % 2]] * 2
        servers.close()


def test_one_that_is_gone_is_left_at_once_and_returned_to_when_it_is_back(
    pair: list[Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses = [server.address for server in pair]
    servers = slot(addresses, 0)
    assert opened(servers) == addresses[0]
    pair[0].kill()
    began = time.monotonic()
    assert opened(servers) == addresses[1]
    assert time.monotonic() - began < 30, "and not at the end of its time"
    pair[0] = Server(addresses[0])
    assert not servers.wants_home(), "not yet"
    assert opened(servers) == addresses[1]
    monkeypatch.setattr(replicas, "_LOOK_HOME_SECONDS", 0.0)
    assert servers.wants_home()
    assert opened(servers) == addresses[0]
    assert not servers.wants_home()
    servers.close()


def test_one_that_is_full_is_passed_over(pair: list[Server]) -> None:
    full = Server("127.0.0.1:0", "--max-sessions=1")
    try:
        with PolicyClient(full.address, timeout=60) as client, client.open(OFFER):
            servers = slot([full.address, pair[0].address], 0)
            assert opened(servers) == pair[0].address
            servers.close()
    finally:
        full.kill()


def test_when_none_is_there_the_last_word_is_told() -> None:
    addresses = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    servers = slot(addresses, 0, timeout=1.0)
    with pytest.raises(PolicyUnreachable, match="none of 2 policy servers took a session within 1 s") as caught:
        opened(servers)
    assert addresses[1] in str(caught.value)
    servers.close()


def test_a_refusal_is_not_taken_elsewhere(pair: list[Server]) -> None:
    picky = Server("127.0.0.1:0", '--policy-args={"observations": ["depth"]}')
    try:
        servers = slot([picky.address, pair[0].address], 0)
        with pytest.raises(PolicyRefused, match="depth"):
            opened(servers)
        servers.close()
    finally:
        picky.kill()


class DiesTwice:
    """A client whose server dies in the middle of the first two hellos; a mock, because that moment cannot be hit."""

    address = Address.parse("127.0.0.1:1")

    def __init__(self, address: Address) -> None:
        self.asked = 0

    def open(self, offer: Offer, **_: object) -> str:
        self.asked += 1
        if self.asked <= 2:
            raise PolicyUnreachable("it went away.")
        return "a session"

    def close(self) -> None:
        pass


def test_a_server_that_dies_while_it_is_asked_is_waited_for() -> None:
    servers = PolicyServers([DiesTwice.address], home=0, timeout=20.0, connect=DiesTwice)  # type: ignore[arg-type]
    assert servers.open(OFFER, benchmark="", client="test") == "a session"
    servers = PolicyServers([DiesTwice.address], home=0, timeout=0.0, connect=DiesTwice)  # type: ignore[arg-type]
    with pytest.raises(PolicyUnreachable, match="went away"):
        servers.open(OFFER, benchmark="", client="test")

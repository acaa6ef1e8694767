from __future__ import annotations

import pytest

from sparring.protos.errors import UsageError
from sparring.protos.net.address import host_and_port, server_addresses


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("a:1", ["a:1"]),
        ("a:1, b:2", ["a:1", "b:2"]),
        ("[::1]:5,unix:///tmp/x.sock,tls://gpu:7", ["[::1]:5", "unix:///tmp/x.sock", "tls://gpu:7"]),
    ],
)
def test_servers_are_told_apart(text: str, addresses: list[str]) -> None:
    assert server_addresses(text) == addresses


@pytest.mark.parametrize("text", ["", "a", "a:", ":1", "a:1,", "a:1,,b:2", "a:x", "a:65536", "unix:", "unix:///"])
def test_what_is_no_server_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not the address of a server"):
        server_addresses(text)


def test_a_server_that_is_named_twice_is_refused() -> None:
    with pytest.raises(UsageError, match="a:1 is named twice"):
        server_addresses("a:1,b:1,a:1")


@pytest.mark.parametrize(
    ("text", "found"),
    [(":9090", ("0.0.0.0", 9090)), ("here:0", ("here", 0)), ("[::1]:80", ("::1", 80)), ("1.2.3.4:5", ("1.2.3.4", 5))],
)
def test_host_and_port(text: str, found: tuple[str, int]) -> None:
    assert host_and_port(text) == found

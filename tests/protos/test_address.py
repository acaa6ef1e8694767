from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sparring.protos.errors import UsageError
from sparring.protos.net.address import Address, parse_servers


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("gpu-box:50051", Address("tcp", "gpu-box", 50051)),
        ("10.0.0.1:0", Address("tcp", "10.0.0.1", 0)),
        ("tls://gpu:7", Address("tls", "gpu", 7)),
        ("[::1]:5", Address("tcp", "::1", 5)),
        ("tls://[fe80::1]:5", Address("tls", "fe80::1", 5)),
        ("unix:///tmp/x.sock", Address("unix", path="/tmp/x.sock")),
        ("unix:run/x.sock", Address("unix", path="run/x.sock")),
    ],
)
def test_what_is_read_is_written_the_same(text: str, address: Address) -> None:
    assert Address.parse(text) == address
    assert str(address) == text
    assert Address.parse(address) is address


def test_a_socket_may_be_written_shortly() -> None:
    assert str(Address.parse("unix:/tmp/x")) == "unix:///tmp/x" == str(Address.unix(Path("/tmp/x")))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        *((text, "is not an address: give HOST:PORT") for text in ("", "a", "a:", ":1", "a:x", "a:65536", "a:-1")),
        ("a b:1", "is not an address"),
        ("a/b:1", "is not an address"),
        ("[]:1", "is not an address"),
        ("a:1,b:2", "is not an address"),
        ("unix:", "path of the socket is missing"),
        ("unix:///", "path of the socket is missing"),
        ("unix://tmp/x", "three slashes"),
        ("::1:50", r"in brackets, as in \[::1\]:50051"),
        ("https://gpu:7", "https:// is not known; give HOST:PORT, tls://HOST:PORT or unix:///path"),
        ("grpc://gpu:7", "grpc:// is not known"),
        ("dns:///gpu:7", "dns:// is not known"),
        ("tcp://gpu:7", "tcp:// is not known"),
        ("tls://https://gpu:7", "https:// is not known"),
        ("tls://unix:///p", "never encrypted"),
    ],
)
def test_what_is_no_address_is_refused_with_what_would_be_one(text: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence) as caught:
        Address.parse(text)
    assert repr(text) in str(caught.value)


def test_whoever_listens_may_leave_the_host_out() -> None:
    assert Address.listening(":9090") == Address("tcp", "0.0.0.0", 9090)
    assert Address.listening("here:0") == Address("tcp", "here", 0)
    with pytest.raises(UsageError, match="is not an address"):
        Address.listening("9090")


@pytest.mark.parametrize(
    ("text", "local", "leaves"),
    [
        ("unix:///p", True, False),
        ("localhost:1", True, False),
        ("LocalHost:1", True, False),
        ("tls://localhost:1", True, False),
        ("127.0.0.1:1", True, False),
        ("127.8.8.8:1", True, False),
        ("[::1]:1", True, False),
        ("0.0.0.0:1", True, True),
        ("[::]:1", True, True),
        ("gpu:1", False, True),
        ("tls://gpu:1", False, True),
        ("10.0.0.1:1", False, True),
        ("[fe80::1]:1", False, True),
    ],
)
def test_what_is_here_and_what_leaves_here(text: str, local: bool, leaves: bool) -> None:
    address = Address.parse(text)
    assert (address.is_local, address.leaves_the_machine) == (local, leaves)
    assert address.is_every_interface == (local and leaves)


@pytest.mark.parametrize(
    ("text", "target"),
    [("gpu:1", "gpu:1"), ("tls://gpu:1", "gpu:1"), ("[::1]:1", "[::1]:1"), ("unix:///a%20b", "unix:/a%2520b")],
)
def test_how_grpc_is_told(text: str, target: str) -> None:
    assert Address.parse(text).target == target


def test_parts_can_be_exchanged() -> None:
    address = Address.parse("tls://gpu:1")
    assert str(address.with_host("::1")) == "tls://[::1]:1"
    assert str(address.with_port(9)) == "tls://gpu:9"
    assert str(Address.parse("gpu:1").with_tls()) == "tls://gpu:1"
    assert str(Address.parse("unix:///p").with_tls()) == "unix:///p"


def test_every_interface_is_dialled_where_the_machine_was_reached() -> None:
    everywhere, box, here = map(Address.parse, ("0.0.0.0:3", "box:50052", "unix:///work.sock"))
    assert str(everywhere.reached_at(box)) == "box:3"
    assert everywhere.reached_at(here) == everywhere
    assert str(Address.parse("gpu:3").reached_at(box)) == "gpu:3"


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("a:1", ["a:1"]),
        ("a:1, b:2 ", ["a:1", "b:2"]),
        ("[::1]:5,unix:///tmp/x.sock,tls://gpu:7", ["[::1]:5", "unix:///tmp/x.sock", "tls://gpu:7"]),
    ],
)
def test_servers_are_told_apart(text: str, addresses: list[str]) -> None:
    assert [str(address) for address in parse_servers(text)] == addresses


@pytest.mark.parametrize("text", ["", "a:1,", "a:1,,b:2", "a:1;b:2"])
def test_a_list_with_something_else_in_it_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not an address"):
        parse_servers(text)


@pytest.mark.parametrize("text", ["a:1,b:1,a:1", "unix:/p, unix:///p"])
def test_a_server_that_is_named_twice_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is named twice"):
        parse_servers(text)


def test_reading_an_address_needs_neither_grpc_nor_numpy() -> None:
    code = (
        "import sys, sparring.protos.net.address, sparring.env_worker.worker.persistent\n"
        "assert not {'grpc', 'numpy', 'google.protobuf'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)

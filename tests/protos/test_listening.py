"""Where a server listens: a port that is taken is said in one sentence, by us and by nobody else."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import grpc
import pytest

from sparring.protos.errors import UsageError
from sparring.protos.net.address import Address
from sparring.protos.net.rpc import SERVER_OPTIONS, bind, discard


def test_tls_without_a_certificate_is_not_listened_with() -> None:
    async def listen() -> None:
        server = grpc.aio.server(options=SERVER_OPTIONS)
        with pytest.raises(UsageError, match="TLS needs a certificate and its key"):
            bind(server, Address.parse("tls://127.0.0.1:0"))
        await server.stop(None)

    asyncio.run(listen())


def test_a_socket_is_made_where_its_path_says(tmp_path: Path) -> None:
    made: list[str] = []

    async def seen() -> None:
        server = grpc.aio.server(options=SERVER_OPTIONS)
        bind(server, Address.unix(tmp_path / "100%25 sure.sock"))
        made.extend(path.name for path in tmp_path.iterdir())
        await discard(server)

    asyncio.run(seen())
    assert made == ["100%25 sure.sock"]


def test_a_socket_that_somebody_listens_at_is_taken_and_one_that_was_left_is_not(short_folder: Path) -> None:
    path = short_folder / "s.sock"

    async def listen() -> None:
        server = grpc.aio.server(options=SERVER_OPTIONS)
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(str(path))
            other.listen()
            with pytest.raises(UsageError, match="it is taken"):
                bind(server, Address.unix(path))
        assert path.exists(), "as a killed server leaves it"
        bind(server, Address.unix(path))
        await discard(server)

    asyncio.run(listen())


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "0.0.0.0", "localhost", pytest.param("[::1]", marks=pytest.mark.requires("ipv6"))]
)
def test_a_port_that_is_taken(host: str, capfd: pytest.CaptureFixture[str]) -> None:
    family = socket.AF_INET6 if host == "[::1]" else socket.AF_INET
    with socket.socket(family) as other:
        other.bind(("::1" if host == "[::1]" else "127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]

        async def listen() -> None:
            server = grpc.aio.server(options=SERVER_OPTIONS)
            with pytest.raises(UsageError, match=r"it is taken\. Give another with listen="):
                bind(server, Address.parse(f"{host}:{port}"))
            other.close()
            assert bind(server, Address.parse(f"{host}:{port}")) == Address.parse(f"{host}:{port}")
            with pytest.raises(UsageError, match="cannot listen"):
                bind(server, Address.parse(f"{host}:{port}"))
            await server.stop(None)

        asyncio.run(listen())
    assert capfd.readouterr().err == "", "gRPC has something to say"

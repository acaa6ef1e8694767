"""Where a server listens: a port that is taken is said in one sentence, by us and by nobody else."""

from __future__ import annotations

import asyncio
import socket

import grpc
import pytest

from sparring.protos.errors import UsageError
from sparring.protos.net.rpc import SERVER_OPTIONS, bind


@pytest.mark.parametrize("address", ["127.0.0.1:99999", "127.0.0.1:http", "127.0.0.1"])
def test_no_address(address: str) -> None:
    async def listen() -> None:
        server = grpc.aio.server(options=SERVER_OPTIONS)
        with pytest.raises(UsageError, match=r"it is not HOST:PORT.*Give another with --listen"):
            bind(server, address)
        await server.stop(None)

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
            with pytest.raises(UsageError, match=r"it is taken\. Give another with --listen"):
                bind(server, f"{host}:{port}")
            other.close()
            assert bind(server, f"{host}:{port}") == f"{host}:{port}"
            with pytest.raises(UsageError, match="cannot listen"):
                bind(server, f"{host}:{port}")
            await server.stop(None)

        asyncio.run(listen())
    assert capfd.readouterr().err == "", "gRPC has something to say"

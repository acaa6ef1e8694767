"""Who takes part in round_trip.py: for each, how its server is started and how one client asks once.

All carry the same load: two camera images and a state one way, a chunk of actions the other way.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
from common import child

from sparring.protos.tensor import Array

OBSERVATION: Final[dict[str, Array]] = {
    "observation.images.image": np.random.default_rng(0).integers(0, 256, (256, 256, 3), np.uint8),
    "observation.images.image2": np.random.default_rng(1).integers(0, 256, (256, 256, 3), np.uint8),
    "observation.state": np.zeros(8, np.float32),
}
ACTION_DIM: Final = 7
CHUNK: Final = 10
TIMEOUT: Final = 30.0

Ask = Callable[[], Any]


@contextmanager
def serve_sparring(folder: Path) -> Iterator[dict[str, str]]:
    """The policy server as it ships, with the policy that does nothing."""
    arguments = json.dumps({"observations": list(OBSERVATION), "chunk": CHUNK})
    listen = ["--listen", f"unix://{folder}/policy.sock", "--listen", "127.0.0.1:0"]
    with child("-m", "sparring.policy_server", "--policy", "zero", "--policy-args", arguments, *listen) as server:
        assert server.stdout is not None
        unix, tcp = json.loads(server.stdout.readline())["listening"]
        yield {"sparring (unix)": unix, "sparring (tcp)": tcp}


def sparring_client(address: str) -> Ask:
    from sparring.policy_server.client import Offer, PolicyClient
    from sparring.protos.process import keep_freed_memory
    from sparring.protos.spec import spec_of

    keep_freed_memory()  # as every slot does
    offer = Offer(
        observations={name: spec_of(array) for name, array in OBSERVATION.items()},
        action_low=(-1.0,) * ACTION_DIM,
        action_high=(1.0,) * ACTION_DIM,
    )
    session = PolicyClient(address, timeout=TIMEOUT).open(offer)
    session.start()
    step = -1

    def ask() -> Any:
        nonlocal step
        step += 1
        return session.act(OBSERVATION, step=step)

    return ask


@contextmanager
def serve_openpi(folder: Path) -> Iterator[dict[str, str]]:
    """A server like openpi's WebsocketPolicyServer."""
    with child(__file__, "openpi") as server:
        assert server.stdout is not None
        yield {"openpi": server.stdout.readline().strip()}


def openpi_client(address: str) -> Ask:
    from openpi_client.websocket_client_policy import WebsocketClientPolicy

    host, _, port = address.rpartition(":")
    client = WebsocketClientPolicy(host, int(port))
    return lambda: client.infer(OBSERVATION)


async def serve_as_openpi(answer: Callable[[Any], Any]) -> None:
    """A server like openpi's WebsocketPolicyServer; says on standard output where it listens.

    Args:
        answer: Gets an observation and returns the actions.
    """
    import asyncio
    import sys
    import time

    from openpi_client import msgpack_numpy
    from websockets.asyncio.server import ServerConnection, serve

    async def handle(connection: ServerConnection) -> None:
        packer = msgpack_numpy.Packer()
        await connection.send(packer.pack({}))
        async for message in connection:
            began = time.monotonic()
            actions = answer(msgpack_numpy.unpackb(message))
            timing = {"server_timing": {"infer_ms": 1000 * (time.monotonic() - began)}}
            await connection.send(packer.pack({"actions": actions, **timing}))

    async with serve(handle, "127.0.0.1", 0, compression=None, max_size=None) as server:
        sys.stdout.write(f"127.0.0.1:{server.sockets[0].getsockname()[1]}\n")
        sys.stdout.flush()
        await asyncio.get_running_loop().create_future()


@contextmanager
def serve_raw(folder: Path) -> Iterator[dict[str, str]]:
    """The floor: bytes through a unix socket into memory, and an answer; no types, no checks, no batching."""
    path = f"{folder}/raw.sock"
    with child(__file__, "raw", path) as server:
        assert server.stdout is not None
        server.stdout.readline()
        yield {"raw unix socket": path}


def raw_client(address: str) -> Ask:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(TIMEOUT)
    connection.connect(address)
    answer = memoryview(bytearray(CHUNK * ACTION_DIM * 4))

    def ask() -> None:
        for array in OBSERVATION.values():
            connection.sendall(array.data)
        receive(connection, answer)

    return ask


def receive(connection: socket.socket, into: memoryview) -> bool:
    """Fills a buffer; False if the other side has gone."""
    filled = 0
    while filled < len(into):
        count = connection.recv_into(into[filled:])
        if not count:
            return False
        filled += count
    return True


def _raw_server(path: str) -> None:
    import sys
    import threading

    def handle(connection: socket.socket) -> None:
        buffer = memoryview(bytearray(sum(array.nbytes for array in OBSERVATION.values())))
        answer = bytes(CHUNK * ACTION_DIM * 4)
        while receive(connection, buffer):
            connection.sendall(answer)

    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while True:
        threading.Thread(target=handle, args=(listener.accept()[0],), daemon=True).start()


CLIENTS: Final[dict[str, Callable[[str], Ask]]] = {
    "sparring (unix)": sparring_client,
    "sparring (tcp)": sparring_client,
    "openpi": openpi_client,
    "raw unix socket": raw_client,
}
SERVERS: Final = (serve_sparring, serve_openpi, serve_raw)


if __name__ == "__main__":
    import asyncio
    import sys

    if sys.argv[1] == "openpi":
        asyncio.run(serve_as_openpi(lambda _: np.zeros((CHUNK, ACTION_DIM), np.float32)))
    else:
        _raw_server(sys.argv[2])

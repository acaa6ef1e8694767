"""Targets for what other people's programs write: arrays and pickles of their wires, settings, documents, archives."""

from __future__ import annotations

import asyncio
import io
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgpack
import numpy as np

from sparring.orchestrator.export.recorded import RecordedEpisode
from sparring.orchestrator.replay.bundle import opened
from sparring.orchestrator.results.json_text import parse_json
from sparring.orchestrator.settings.config_file import ConfigFile
from sparring.policy_server.bridges import lerobot_async, zmtp
from sparring.policy_server.bridges.arrays import GROOT, OPENPI, VLA_EVAL, BadMessage
from sparring.policy_server.bridges.pickles.reading import Made
from sparring.policy_server.bridges.pickles.writing import TensorOf, pickled
from sparring.policy_server.bridges.servers.zeromq import Requests, Room
from sparring.policy_server.policies.replay import ReplayPolicy
from sparring.protos.errors import SparringError, UsageError

SHOWN: Final = {"image": np.zeros((2, 2, 3), np.uint8), "state": np.ones(3, np.float32), "prompt": "go"}
ACTION: Final = {"timestamp": 1.5, "timestep": 3, "action": TensorOf(np.zeros(2, np.float32))}


def pickle(data: bytes) -> None:
    try:
        lerobot_async.READER.read(data)
    except BadMessage:
        return


def arrays(data: bytes) -> None:
    for wire in (OPENPI, VLA_EVAL, GROOT):
        try:
            wire.read(data)
        except BadMessage:
            continue


class _Nowhere:
    """Where answers go."""

    def write(self, data: bytes) -> None:
        assert len(data) <= zmtp.MOST_COMMAND + 9

    async def drain(self) -> None:
        return


_LOOP: Final = asyncio.new_event_loop()


def zeromq(data: bytes) -> None:
    """A connection of GR00T's wire, from its first byte."""

    async def read() -> None:
        reader, nowhere, room = asyncio.StreamReader(), _Nowhere(), Room(_MOST)
        reader.feed_data(data)
        reader.feed_eof()
        requests = Requests(reader, nowhere, most=_MOST, room=room, seconds=60)  # type: ignore[arg-type]
        with suppress(BadMessage, EOFError):
            await requests.shake_hands()
            while True:
                request = await requests.next()
                assert len(request.content) <= _MOST
                requests.forget(request)

    _LOOP.run_until_complete(read())


_MOST: Final = 1000


def settings(data: bytes) -> None:
    with tempfile.NamedTemporaryFile(suffix=".yaml") as file:
        file.write(data)
        file.flush()
        try:
            ConfigFile.read(Path(file.name))
        except UsageError:
            return


def document(data: bytes) -> None:
    try:
        parse_json(data)
    except (ValueError, RecursionError):
        return


def archive(data: bytes) -> None:
    with tempfile.NamedTemporaryFile(suffix=".npz") as file:
        file.write(data)
        file.flush()
        path = Path(file.name)
        with suppress(SparringError):
            episode = RecordedEpisode(path)
            for name in episode.observations:
                list(episode.seen(name))
            len(episode.actions)
        with suppress(SparringError):
            ReplayPolicy(file=file.name)
        with suppress(SparringError), opened(path):
            pass


def _recording() -> bytes:
    """The smallest recording that there is."""
    file = io.BytesIO()
    about = b'{"benchmark": "toy", "task": "short", "index": 0, "seed": 1, "instruction": "go", "success": true}'
    arrays = {"about": np.frombuffer(about, np.uint8), "actions": np.zeros((1, 2)), "observations/x": np.zeros((1, 3))}
    np.savez_compressed(file, **arrays)
    return file.getvalue()


_HELLO: Final = zmtp.GREETING + zmtp.ready("REQ")
_CONNECTIONS: Final = [
    _HELLO + zmtp.message(msgpack.packb({"endpoint": "ping"})) + zmtp.message(bytes(300)),
    _HELLO + zmtp.frame(zmtp.COMMAND, b"\x04PING\x00\x0ax") + zmtp.frame(zmtp.MORE, b"") + zmtp.frame(zmtp.MORE, b"x"),
]

STRANGERS: Final[dict[str, tuple[Callable[[bytes], None], list[bytes]]]] = {
    "pickle": (pickle, [pickled([Made(lerobot_async.ACTION, ACTION)])]),
    "zeromq": (zeromq, _CONNECTIONS),
    "arrays": (
        arrays,
        [wire.write(SHOWN) for wire in (OPENPI, VLA_EVAL, GROOT)] + [msgpack.packb({"endpoint": "ping"})],
    ),
    "settings": (settings, [b"benchmark: toy\ntask: [short, &a long, *a]\nrules: {max_steps: 4}\nseed: 1:30\n"]),
    "archive": (archive, [_recording()]),
    "document": (document, [b'{"schema": 2, "episodes": 4, "tasks": {"toy": [{"name": "a"}]}}']),
}
"""As those in `targets.py`."""

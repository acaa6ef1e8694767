"""Targets for what comes from other people's programs: arrays and pickles of their wires, settings and documents."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgpack
import numpy as np

from sparring.orchestrator.results.json_text import parse_json
from sparring.orchestrator.settings.config_file import ConfigFile
from sparring.policy_server.bridges import lerobot_async
from sparring.policy_server.bridges.arrays import GROOT, OPENPI, VLA_EVAL, BadMessage
from sparring.policy_server.bridges.pickles.reading import Made
from sparring.policy_server.bridges.pickles.writing import TensorOf, pickled
from sparring.protos.errors import UsageError

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


STRANGERS: Final[dict[str, tuple[Callable[[bytes], None], list[bytes]]]] = {
    "pickle": (pickle, [pickled([Made(lerobot_async.ACTION, ACTION)])]),
    "arrays": (
        arrays,
        [wire.write(SHOWN) for wire in (OPENPI, VLA_EVAL, GROOT)] + [msgpack.packb({"endpoint": "ping"})],
    ),
    "settings": (settings, [b"benchmark: toy\ntask: [short, &a long, *a]\nrules: {max_steps: 4}\nseed: 1:30\n"]),
    "document": (document, [b'{"schema": 2, "episodes": 4, "tasks": {"toy": [{"name": "a"}]}}']),
}
"""As those in `targets.py`."""

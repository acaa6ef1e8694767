"""LeRobot's asynchronous inference wire: four gRPC methods, whose messages carry pickles.

    Ready, SendPolicyInstructions (which checkpoint), SendObservations (in pieces), GetActions

The messages are written and read here without protobuf's own code: LeRobot registers them under their names, and a
process that has LeRobot in it, as our policies have, cannot have them twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from sparring.policy_server.bridges.arrays import BadMessage
from sparring.policy_server.bridges.pickles.arrays_in_pickles import CALLS
from sparring.policy_server.bridges.pickles.reading import Made, PickleReader
from sparring.protos.wire import read_varint, varint

SERVICE: Final = "transport.AsyncInference"
READY, INSTRUCTIONS, OBSERVATIONS, ACTIONS = "Ready", "SendPolicyInstructions", "SendObservations", "GetActions"
NOTHING: Final = b""
"""An empty message: a request that says nothing, and an answer without actions."""
IMAGES: Final = "observation.images."
"""What the names of images begin with there; without it they are what a robot calls its cameras."""
TASK: Final = "task"
"""What the sentence is called."""

_HELPERS: Final = "lerobot.async_inference.helpers"
POLICY: Final = f"{_HELPERS} RemotePolicyConfig"
OBSERVATION: Final = f"{_HELPERS} TimedObservation"
ACTION: Final = f"{_HELPERS} TimedAction"

_PIECE_BYTES: Final = 2 * 2**20
_BEGIN, _MIDDLE, _END = 1, 2, 3

READER: Final = PickleReader(CALLS, frozenset([POLICY, OBSERVATION, ACTION]))
"""Reads what its messages carry, and nothing else."""


def made(value: Any, name: str) -> Mapping[str, Any]:
    """Returns the attributes of an object of a class.

    Raises:
        BadMessage: If it is something else.
    """
    if not isinstance(value, Made) or value.name != name:
        raise BadMessage(f"{getattr(value, 'name', type(value).__name__)!s}, where {name.partition(' ')[2]} was due.")
    return value.state


def carrying(data: bytes) -> bytes:
    """Returns a message that carries a pickle: instructions, or actions."""
    return b"\x0a" + varint(len(data)) + data


def carried(message: bytes) -> bytes:
    """Returns the pickle that a message of instructions or actions carries; empty: there is none.

    Raises:
        BadMessage: If it is no such message.
    """
    return _bytes(_fields(message).get(1, b""))


def pieces(data: bytes) -> Iterator[bytes]:
    """Returns an observation's pickle as messages of the size that LeRobot's servers take."""
    for at in range(0, max(1, len(data)), _PIECE_BYTES):
        piece = data[at : at + _PIECE_BYTES]
        state = _END if at + _PIECE_BYTES >= len(data) else _MIDDLE if at else _BEGIN
        yield b"\x08" + bytes([state]) + b"\x12" + varint(len(piece)) + piece


class Pieces:
    """Puts an observation's pieces together.

    Args:
        most_bytes: Of all of them.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._data = bytearray()

    def add(self, message: bytes) -> bytes | None:
        """Takes a piece, and returns the whole if it was the last one.

        Raises:
            BadMessage: If it is none, or there are too many.
        """
        fields = _fields(message)
        state = fields.get(1, 0)
        if state not in (_BEGIN, _MIDDLE, _END):
            raise BadMessage(f"a piece of an observation in the state {state!r:.20}.")
        if state == _BEGIN:
            self._data.clear()
        self._data += _bytes(fields.get(2, b""))
        if len(self._data) > self._most_bytes:
            raise BadMessage(f"an observation of more than {self._most_bytes} bytes.")
        return bytes(self._data) if state == _END else None


def _bytes(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise BadMessage("a number, where bytes were due.")
    return value


def _fields(message: bytes) -> dict[int, int | bytes]:
    """Returns the fields of a message by their numbers; of several of one number the last, as protobuf has it."""
    found: dict[int, int | bytes] = {}
    at = 0
    try:
        while at < len(message):
            tag, at = read_varint(message, at)
            number, kind = tag >> 3, tag & 7
            length, at = read_varint(message, at)
            if kind == 0:
                found[number] = length
            elif kind == 2 and at + length <= len(message):
                found[number] = message[at : at + length]
                at += length
            else:
                raise BadMessage("a message that this wire does not have.")
    except (IndexError, OverflowError) as error:
        raise BadMessage("a message that is broken off.") from error
    return found

"""The one hot message, an observation, written and read without protobuf's copies. The bytes are protobuf's own.

Protobuf copies a camera image into its arena, from there into a growing buffer, and out again at the other end. Once
the needs of a session are settled, everything in its observations but two numbers and the elements is known: what
stands before each tensor's elements is made once, elements are copied once, and read where they arrived. Whatever is
not exactly of that form goes the ordinary way.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from sparring.protos.limits import MAX_EXTRA_BYTES
from sparring.protos.spec import PolicySpec
from sparring.protos.tensor import Array, dtype_code, dtype_of, encode

# Tags of policy.proto: field number and wire type (0 a varint, 2 length-delimited).
_REQUEST_OBSERVATION: Final = bytes([3 << 3 | 2])
_EPISODE: Final = bytes([1 << 3])
_STEP: Final = bytes([2 << 3])
_TENSORS: Final = bytes([3 << 3 | 2])
_KEY: Final = bytes([1 << 3 | 2])
_VALUE: Final = bytes([2 << 3 | 2])
_DTYPE: Final = bytes([1 << 3])
_SHAPE: Final = bytes([2 << 3 | 2])
_RAW: Final = bytes([3 << 3 | 2])

_SHORTEST_HEAD, _LONGEST_HEAD = 2, 32
"""Bytes before the first tensor: a tag and a length, and up to two numbers with their tags."""


@dataclass(frozen=True)
class _Field:
    """A tensor in the message: its header, and how many bytes of elements follow."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    size: int
    header: bytes


class ObservationCodec:
    """Writes and reads the observations of one session.

    Args:
        needs: Settled: names, types and shapes are definite.
    """

    def __init__(self, needs: PolicySpec) -> None:
        self._fields = [_field(name, str(spec.dtype), needs.batched_shape(name)) for name, spec in needs.named.items()]
        self._size = sum(len(field.header) + field.size for field in self._fields)
        self.longest = self._size + MAX_EXTRA_BYTES
        """Bytes of the longest message that may come after the hello."""

    @cached_property
    def _are_stored_raw(self) -> bool:
        """Whether tensor.py stores such elements as they are; what it stores otherwise goes the ordinary way."""
        made_up = (encode(np.zeros(field.shape, field.dtype)) for field in self._fields)
        return all(tensor.WhichOneof("storage") == "raw" for tensor in made_up)

    def write(self, episode: int, step: int, tensors: Mapping[str, Array]) -> bytes | None:
        """Returns a RolloutRequest with this observation; None if it has to go the ordinary way."""
        if len(tensors) != len(self._fields) or not self._are_stored_raw:
            return None
        parts: list[Any] = [b""]
        for field in self._fields:
            array = tensors.get(field.name)
            if not isinstance(array, np.ndarray) or array.dtype != field.dtype or array.shape != field.shape:
                return None
            parts += (field.header, array if array.flags.c_contiguous else np.ascontiguousarray(array))
        head = _number(_EPISODE, episode) + _number(_STEP, step)
        parts[0] = _REQUEST_OBSERVATION + varint(len(head) + self._size) + head
        return b"".join(parts)

    def read(self, data: bytes) -> tuple[int, int, dict[str, Array]] | None:
        """Reads episode, step and tensors, as views of a message in the form that `write` makes; None for any other."""
        at = len(data) - self._size
        if not _SHORTEST_HEAD <= at <= _LONGEST_HEAD:
            return None
        numbers = _read_head(data[:at], self._size)
        if numbers is None:
            return None
        tensors: dict[str, Array] = {}
        for field in self._fields:
            if not data.startswith(field.header, at):
                return None
            at += len(field.header)
            array = np.frombuffer(data, np.uint8, field.size, at).view(field.dtype).reshape(field.shape)
            # Elements begin wherever the header ends; numpy is slow, and some kernels are wrong, on odd addresses.
            tensors[field.name] = array if array.flags.aligned else _aligned(array)
            at += field.size
        return (*numbers, tensors)


def _field(name: str, dtype_name: str, shape: tuple[int, ...]) -> _Field:
    code = dtype_code(dtype_name)
    dtype = dtype_of(code)
    size = math.prod(shape) * dtype.itemsize
    axes = b"".join(map(varint, shape))
    tensor = _DTYPE + varint(code) + (_SHAPE + varint(len(axes)) + axes if axes else b"") + _RAW + varint(size)
    key = name.encode()
    entry = _KEY + varint(len(key)) + key + _VALUE + varint(len(tensor) + size) + tensor
    return _Field(name, dtype, shape, size, _TENSORS + varint(len(entry) + size) + entry)


def _aligned(array: Array) -> Array:
    copy = array.copy()
    copy.flags.writeable = False
    return copy


def _read_head(head: bytes, size: int) -> tuple[int, int] | None:
    try:
        if head[:1] != _REQUEST_OBSERVATION:
            return None
        length, at = read_varint(head, 1)
        if length != len(head) - at + size:
            return None
        episode, at = _read_number(_EPISODE, head, at)
        step, at = _read_number(_STEP, head, at)
    except (IndexError, OverflowError):
        return None
    return (episode, step) if at == len(head) else None


def _number(tag: bytes, value: int) -> bytes:
    """Writes a field with a number; protobuf leaves out zeros."""
    return tag + varint(value) if value else b""


def _read_number(tag: bytes, data: bytes, at: int) -> tuple[int, int]:
    return read_varint(data, at + 1) if data[at : at + 1] == tag else (0, at)


def varint(value: int) -> bytes:
    """Returns a number as protobuf writes it: seven bits in a byte, the lowest first."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Returns the number that begins at a place, and where it ends.

    Raises:
        IndexError: If it does not end.
        OverflowError: If it is too large.
    """
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80 and value < 1 << 64:
            return value, at
        if byte < 0x80:
            break
    raise OverflowError

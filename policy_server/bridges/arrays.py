"""Arrays in msgpack, as three projects write them; what is read is checked, and nothing is ever unpickled.

A reader takes numbers of the plain kinds, whose bytes are just as many as their shape says.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from sparring.protos.errors import SparringError
from sparring.protos.tensor import Array

MOST_BYTES: Final = 64 * 2**20
"""Of one message: several large images, and no more."""
_MOST_AXES: Final = 8
_MOST_PARTS: Final = 4096
"""Of one message: maps and lists, and what is in each. They take up to a hundred times their bytes."""
_LONGEST_HEADER: Final = 1024
LONGEST_TYPE: Final = 16
"""What a type of numbers is called, as numpy does it; a long name is of several, or of none."""
_KINDS: Final = frozenset("biuf")


_WRONG: Final = (
    *(ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError, OSError, MemoryError, EOFError),
)
"""What comes of reading bytes that somebody made up."""


class _Budget:
    """What one message may still take, whatever it says of itself."""

    def __init__(self) -> None:
        self._parts = _MOST_PARTS
        self._bytes = MOST_BYTES

    def take_part(self) -> None:
        """Counts a map or a list."""
        self._parts -= 1
        if self._parts < 0:
            raise ValueError(f"more than {_MOST_PARTS} maps and lists")

    def take_bytes(self, count: int) -> None:
        """Counts what is larger in memory than in the message: a picture."""
        self._bytes -= count
        if self._bytes < 0:
            raise ValueError(f"pictures of more than {MOST_BYTES} bytes")

    def list_read(self, found: list[Any]) -> list[Any]:
        """Counts a list that was read."""
        self.take_part()
        return found


class BadMessage(SparringError):
    """Bytes that are not a message of the wire."""


@dataclass(frozen=True)
class ArrayFormat:
    """How one project writes arrays.

    Attributes:
        pack: Returns an array as a map.
        unpack: Returns what such a map stands for, within what one message may take, and any other map as it is;
            raises ValueError, KeyError or TypeError if it is none of an array.
    """

    pack: Callable[[Array], dict[Any, Any]]
    unpack: Callable[[dict[Any, Any], _Budget], Any]

    def write(self, message: Any) -> bytes:
        """Returns a message as bytes."""
        import msgpack  # of the extra `bridges`; the server imports this file with or without it

        packed: bytes = msgpack.packb(message, default=self._default, use_bin_type=True)
        return packed

    def read(self, data: bytes) -> Any:
        """Returns what bytes stand for.

        Raises:
            BadMessage: If they are not a message, or one that is too long.
        """
        import msgpack

        if len(data) > MOST_BYTES:
            raise BadMessage(f"a message of {len(data)} bytes; at most {MOST_BYTES} are read.")
        budget = _Budget()

        def map_read(found: dict[Any, Any]) -> Any:
            budget.take_part()
            return self.unpack(found, budget)

        try:
            return msgpack.unpackb(
                data,
                object_hook=map_read,
                list_hook=budget.list_read,
                raw=False,
                strict_map_key=False,
                max_array_len=_MOST_PARTS,
                max_map_len=_MOST_PARTS,
            )
        except _WRONG as error:
            # msgpack's own errors are ValueErrors, and Pillow's are OSErrors; not all of them say something.
            what = f"{type(error).__name__}{f': {error}' if str(error) else ''}"
            raise BadMessage(f"a message that this wire does not have ({what}).") from error

    def _default(self, value: Any) -> Any:
        if isinstance(value, np.generic):
            return value.item()
        if isinstance(value, np.ndarray):
            return self.pack(value)
        raise TypeError(f"{type(value).__name__} cannot be sent")


def plain_array(data: Any, dtype: Any, shape: Any) -> Array:
    """Returns an array from its bytes.

    Raises:
        ValueError: If they do not fit its type and shape, or it is of a kind that is not read.
    """
    if not isinstance(data, (bytes, bytearray)) or not isinstance(dtype, str) or not isinstance(shape, (list, tuple)):
        raise ValueError("an array without bytes, type or shape")
    kind = _number_type(dtype)
    _check_shape(shape)
    if math.prod(shape) * kind.itemsize != len(data):
        raise ValueError(f"{len(data)} bytes for an array of {kind} {tuple(shape)}")
    return np.frombuffer(data, kind).reshape(shape)


def numbers_of(value: Any) -> Array | None:
    """Returns an array, a number, or lists of numbers as an array; None if it is anything else.

    Of texts numpy would make an array in which each takes as much as the longest.
    """
    if isinstance(value, np.ndarray):
        return value if value.dtype.kind in _KINDS else None
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, (list, tuple)):
            waiting.extend(part)
        elif not isinstance(part, (bool, int, float, np.number, np.bool_)):
            return None
    try:
        return np.asarray(value)
    except (ValueError, OverflowError):  # lists of several lengths
        return None


def _pack_openpi(array: Array) -> dict[Any, Any]:
    return {
        b"__ndarray__": True,
        b"data": array.tobytes(),
        b"dtype": array.dtype.str,
        b"shape": array.shape,
    }


def _unpack_openpi(found: dict[Any, Any], budget: _Budget) -> Any:
    if b"__ndarray__" in found:
        return plain_array(found[b"data"], found[b"dtype"], found[b"shape"])
    if b"__npgeneric__" in found:
        if not isinstance(found[b"data"], (bool, int, float)):
            raise ValueError("a number that is none")
        return np.asarray(found[b"data"]).astype(_number_type(found[b"dtype"]))[()]
    return found


def _pack_vla_eval(array: Array) -> dict[Any, Any]:
    # Images may be PNG there; as plain bytes they are the same to the other side, and cost no time.
    return {
        "__ndarray__": True,
        "data": array.tobytes(),
        "dtype": array.dtype.str,
        "shape": list(array.shape),
    }


def _unpack_vla_eval(found: dict[Any, Any], budget: _Budget) -> Any:
    if "__image__" in found:
        if found["format"] == "raw":
            return plain_array(found["data"], found["dtype"], found["shape"])
        return _picture(found["data"], found["shape"], budget)
    if "__ndarray__" in found:
        return plain_array(found["data"], found["dtype"], found["shape"])
    return found


def _pack_groot(array: Array) -> dict[Any, Any]:
    return {b"nd": True, b"type": array.dtype.str, b"kind": b"", b"shape": array.shape, b"data": array.tobytes()}


def _unpack_groot(found: dict[Any, Any], budget: _Budget) -> Any:
    # By the peer's msgpack, keys may have come as text or as bytes.
    named: Mapping[str, Any] = {k.decode() if isinstance(k, bytes) else str(k): v for k, v in found.items()}
    if "nd" in named:
        if named["nd"] is True:
            kind = named["type"]
            return plain_array(named["data"], kind.decode() if isinstance(kind, bytes) else kind, named["shape"])
        return np.frombuffer(named["data"], _number_type(named["type"]))[0]
    if "__ndarray_class__" in named:
        return _numpy_file(named["as_npy"])
    return found


def _number_type(said: Any) -> Any:
    name = said.decode() if isinstance(said, bytes) else said
    if not isinstance(name, str) or len(name) > LONGEST_TYPE:
        raise ValueError("an array without a type that is one of numbers")
    try:
        kind = np.dtype(name)
    except SyntaxError as error:  # numpy reads "(2,)f4," as Python
        raise ValueError(f"an array of the type {name!r}") from error
    if kind.kind not in _KINDS:
        raise ValueError(f"an array of {kind}, which is not of numbers")
    return kind


def _check_shape(shape: Sequence[Any]) -> None:
    """Raises ValueError for what is no shape. What it is instead is not said: it may be anything, and long."""
    if len(shape) > _MOST_AXES or not all(isinstance(n, int) and n >= 0 for n in shape):
        raise ValueError(f"an array of a shape that is not one of up to {_MOST_AXES} numbers")


def _numpy_file(data: Any) -> Array:
    """Returns the array of an .npy file, which says its shape itself: it is believed only if the bytes are there."""
    with io.BytesIO(data) as file:
        version = np.lib.format.read_magic(file)
        if version != (1, 0):
            raise ValueError(f"an .npy file of version {version}")
        shape, columns_first, kind = np.lib.format.read_array_header_1_0(file, max_header_size=_LONGEST_HEADER)
        array = plain_array(file.read(), kind.str, shape[::-1] if columns_first else shape)
    return array.T if columns_first else array


def _picture(data: Any, shape: Any, budget: _Budget) -> Array:
    from PIL import Image

    _check_shape(shape)
    with Image.open(io.BytesIO(data), formats=["PNG", "JPEG"]) as picture:
        if list(shape[:2]) != [picture.height, picture.width] or math.prod(shape) > 4 * picture.width * picture.height:
            raise ValueError(f"a picture of {picture.width}×{picture.height} for the shape {shape}")
        budget.take_bytes(4 * picture.width * picture.height)
        return np.array(picture).reshape(shape)


OPENPI: Final = ArrayFormat(_pack_openpi, _unpack_openpi)
VLA_EVAL: Final = ArrayFormat(_pack_vla_eval, _unpack_vla_eval)
GROOT: Final = ArrayFormat(_pack_groot, _unpack_groot)

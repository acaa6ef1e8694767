"""Writes pickles of objects whose classes need not be installed here: by their names."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from sparring.policy_server.bridges.pickles.arrays_in_pickles import FORMAT, MAGIC, STORAGES
from sparring.policy_server.bridges.pickles.reading import Made
from sparring.protos.tensor import Array

_BEGIN, _END = b"\x80\x04", b"."
_MARK: Final = b"("


@dataclass(frozen=True)
class _Name:
    """Something of a module, by its name."""

    module: str
    name: str


@dataclass(frozen=True)
class _Called:
    """What comes of calling something; `state` is given to it afterwards, if there is any."""

    what: _Name
    arguments: tuple[Any, ...]
    state: Any = None


@dataclass(frozen=True)
class _Identity:
    """A persistent id."""

    parts: tuple[Any, ...]


@dataclass(frozen=True)
class TensorOf:
    """An array that is to arrive as a tensor of torch."""

    array: Array


def pickled(value: Any) -> bytes:
    """Returns a value as a pickle: numbers, text, lists, tuples, maps, arrays, `Made` objects and `TensorOf` arrays.

    Raises:
        TypeError: If it is something else.
    """
    return b"".join((_BEGIN, *_written(value), _END))


def _written(value: Any) -> list[bytes]:
    write = _WRITERS.get(type(value))
    if write is None:
        raise TypeError(f"{type(value).__name__} cannot be sent")
    return write(value)


def _int(value: int) -> list[bytes]:
    if -(2**31) <= value < 2**31:
        return [b"J", struct.pack("<i", value)]
    digits = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return [b"\x8a", bytes([len(digits)]), digits]


def _str(value: str) -> list[bytes]:
    data = value.encode("utf-8", "surrogatepass")
    return [b"X", struct.pack("<I", len(data)), data]


def _dict(value: dict[Any, Any]) -> list[bytes]:
    return [b"}", _MARK, *(part for key, found in value.items() for part in (*_written(key), *_written(found))), b"u"]


def _name(value: _Name) -> list[bytes]:
    return [*_str(value.module), *_str(value.name), b"\x93"]


def _called(value: _Called) -> list[bytes]:
    made = [*_name(value.what), *_tuple(value.arguments), b"R"]
    return made if value.state is None else [*made, *_written(value.state), b"b"]


def _tuple(value: tuple[Any, ...]) -> list[bytes]:
    return [_MARK, *(part for item in value for part in _written(item)), b"t"]


def _made(value: Made) -> list[bytes]:
    module, _, name = value.name.partition(" ")
    return [*_name(_Name(module, name)), b")", b"\x81", *_dict(value.state), b"b"]


def _array(value: Array) -> list[bytes]:
    kind = value.dtype
    order = "|" if kind.itemsize == 1 else "<"
    type_ = _Called(_Name("numpy", "dtype"), (kind.str[1:], False, True), (3, order, None, None, None, -1, -1, 0))
    data = np.ascontiguousarray(value, kind.newbyteorder("<")).tobytes()
    return _called(
        _Called(
            _Name("numpy._core.multiarray", "_reconstruct"),
            (_Name("numpy", "ndarray"), (0,), b"b"),
            (1, value.shape, type_, False, data),
        )
    )


def _tensor(value: TensorOf) -> list[bytes]:
    array = np.asarray(value.array, order="C")
    steps = tuple(step // array.itemsize for step in array.strides)
    storage = _Called(_Name("torch.storage", "_load_from_bytes"), (_storage(array),))
    arguments = (storage, 0, array.shape, steps, False, _Called(_Name("collections", "OrderedDict"), ()))
    return _called(_Called(_Name("torch._utils", "_rebuild_tensor_v2"), arguments))


def _storage(array: Array) -> bytes:
    names = {kind: name for name, kind in STORAGES.items()}
    if array.dtype.str not in names:
        raise TypeError(f"an array of {array.dtype} cannot be sent as a tensor")
    sizes = {"short": 2, "int": 4, "long": 4}
    system = {"protocol_version": FORMAT, "little_endian": True, "type_sizes": sizes}
    identity = _Identity(("storage", _Name("torch", names[array.dtype.str]), "0", "cpu", array.size, None))
    pickles = [pickled(part) for part in (MAGIC, FORMAT, system, identity, ["0"])]
    return b"".join((*pickles, struct.pack("<q", array.size), array.tobytes()))


_WRITERS: Final[dict[type, Callable[[Any], list[bytes]]]] = {
    type(None): lambda _: [b"N"],
    bool: lambda value: [b"\x88" if value else b"\x89"],
    int: _int,
    float: lambda value: [b"G", struct.pack(">d", value)],
    str: _str,
    bytes: lambda value: [b"B", struct.pack("<I", len(value)), value],
    list: lambda value: [b"]", _MARK, *(part for item in value for part in _written(item)), b"e"],
    tuple: _tuple,
    dict: _dict,
    np.ndarray: _array,
    Made: _made,
    TensorOf: _tensor,
    _Name: _name,
    _Called: _called,
    _Identity: lambda value: [*_tuple(value.parts), b"Q"],
}

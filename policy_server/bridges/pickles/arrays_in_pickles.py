"""Arrays of numpy and tensors of torch in pickles, without torch: how both are written, and read back as arrays.

A tensor is a view of a storage: the storage's bytes, where the view begins, its sizes and its steps. Torch writes the
storage in its own old format, which is five pickles and the bytes.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from sparring.policy_server.bridges.arrays import LONGEST_TYPE, plain_array
from sparring.policy_server.bridges.pickles.budget import PickleBudget
from sparring.policy_server.bridges.pickles.reading import Call, PickleReader, Unfinished
from sparring.protos.tensor import Array

MAGIC: Final = 0x1950A86A20F9469CFC6C
"""What torch's old format begins with."""
FORMAT: Final = 1001
"""Its version."""
STORAGES: Final[Mapping[str, str]] = {
    "FloatStorage": "<f4",
    "DoubleStorage": "<f8",
    "HalfStorage": "<f2",
    "LongStorage": "<i8",
    "IntStorage": "<i4",
    "ShortStorage": "<i2",
    "CharStorage": "|i1",
    "ByteStorage": "|u1",
    "BoolStorage": "|b1",
}
"""What torch calls storages of each type."""


class _ArrayBegun(Unfinished):
    def finished(self, state: Any) -> Array:
        _, shape, kind, by_columns, data = state
        if not isinstance(kind, np.dtype):
            raise ValueError("an array without a type")
        array = plain_array(data, kind.str, shape[::-1] if by_columns else shape)
        return array.T if by_columns else array


@dataclass(frozen=True)
class _TypeBegun(Unfinished):
    name: str

    def finished(self, state: Any) -> np.dtype[Any]:
        kind = np.dtype(self.name)
        if kind.kind not in "biuf":
            raise ValueError(f"an array of {kind}, which is not of numbers")
        return kind.newbyteorder(state[1]) if state[1] in ("<", ">") else kind


@dataclass(frozen=True)
class _Storage:
    """The numbers that tensors are views of: one after the other, all there, and no view of anything themselves."""

    numbers: Array


def _dtype(arguments: Sequence[Any], _: PickleBudget) -> _TypeBegun:
    name = arguments[0]
    if not isinstance(name, str) or len(name) > LONGEST_TYPE:
        raise ValueError("an array of a type without a name")
    return _TypeBegun(name)


def _begun(arguments: Sequence[Any], _: PickleBudget) -> _ArrayBegun:
    return _ArrayBegun()


def _from_buffer(arguments: Sequence[Any], _: PickleBudget) -> Array:
    data, kind, shape, order = arguments
    return _ArrayBegun().finished((1, shape, kind, order == "F", data))


def _number(arguments: Sequence[Any], _: PickleBudget) -> Any:
    kind, data = arguments
    return plain_array(data, kind.str, ())[()]


def _never(name: str) -> Call:
    """Returns what stands for a name that is mentioned, and never called."""

    def called(arguments: Sequence[Any], _: PickleBudget) -> Any:
        raise ValueError(f"a call of {name}")

    return called


def _loaded(arguments: Sequence[Any], budget: PickleBudget) -> _Storage:
    """Returns the numbers of a storage from the bytes of torch's old format."""
    (data,) = arguments
    described: list[tuple[str, str, int]] = []

    def resolve(identity: Sequence[Any]) -> None:
        kind, storage, key, _, count, view = identity
        if kind != "storage" or view is not None:
            raise ValueError("a storage that is a part of another")
        if not isinstance(key, str) or not isinstance(count, int):
            raise ValueError("a storage without a key or a length")
        described.append((key, storage.name.removeprefix("torch "), count))

    reader = PickleReader({f"torch {name}": _never(name) for name in STORAGES}, resolve=resolve)
    at, read = 0, []
    for _ in range(5):
        value, at = reader.read_first(data, at, budget)
        read.append(value)
    magic, version, system, _, keys = read
    if magic != MAGIC or version != FORMAT or not isinstance(system, dict) or not system.get("little_endian", True):
        raise ValueError("a storage of another format")
    ((key, storage, count),) = described
    kind = np.dtype(STORAGES[storage])
    if keys != [key] or struct.unpack_from("<q", data, at) != (count,):
        raise ValueError("a storage without its numbers")
    if len(data) - at - 8 != count * kind.itemsize:
        raise ValueError("a storage of another length")
    return _Storage(np.frombuffer(data, kind, count, at + 8))


def _tensor(arguments: Sequence[Any], _: PickleBudget) -> Array:
    storage, offset, size, stride = arguments[:4]
    if not isinstance(size, tuple) or not isinstance(stride, tuple):
        raise ValueError("a tensor without a shape")
    # An array would do as well, but for one that has steps itself: what is beyond its end would be read.
    if not isinstance(storage, _Storage) or len(size) != len(stride) or len(size) > 8:
        raise ValueError("a tensor without a storage")
    if not all(isinstance(n, int) and n >= 0 for n in (offset, *size, *stride)):
        raise ValueError("a tensor of a shape that is not of numbers")
    numbers = storage.numbers
    last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    if 0 in size:
        return np.zeros(size, numbers.dtype)
    # Steps of 0 would make a large tensor of one number.
    if last >= len(numbers) or math.prod(size) > len(numbers):
        raise ValueError("a tensor that is larger than its storage")
    steps = [step * numbers.itemsize for step in stride]
    # A view: many tensors may be of one storage.
    return np.lib.stride_tricks.as_strided(numbers[offset:], size, steps, writeable=False)


_NUMPY: Final[Mapping[str, Call]] = {"_reconstruct": _begun, "scalar": _number}

CALLS: Final[Mapping[str, Call]] = {
    **{f"numpy.{core}.multiarray {name}": call for core in ("core", "_core") for name, call in _NUMPY.items()},
    **{f"numpy.{core}.numeric _frombuffer": _from_buffer for core in ("core", "_core")},
    "numpy ndarray": _never("numpy.ndarray"),
    "numpy dtype": _dtype,
    "collections OrderedDict": lambda arguments, _: {},
    "torch._utils _rebuild_tensor_v2": _tensor,
    "torch.storage _load_from_bytes": _loaded,
}
"""What arrays and tensors name in pickles, and what we do instead."""

"""numpy arrays as messages and back: no pickle, no copy on decode, nothing trusted before it is checked."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sparring.protos.errors import SparringError
from sparring.protos.policy_pb2 import (
    DTYPE_BOOL,
    DTYPE_FLOAT16,
    DTYPE_FLOAT32,
    DTYPE_FLOAT64,
    DTYPE_INT8,
    DTYPE_INT16,
    DTYPE_INT32,
    DTYPE_INT64,
    DTYPE_UINT8,
    DTYPE_UINT16,
    DTYPE_UINT32,
    DTYPE_UINT64,
    Tensor,
)

Array = NDArray[Any]

# Little-endian explicitly: "<" is a no-op on every machine we run on and a conversion on the rest.
_DTYPES: Final[dict[int, np.dtype[Any]]] = {
    DTYPE_BOOL: np.dtype("?"),
    DTYPE_UINT8: np.dtype("u1"),
    DTYPE_UINT16: np.dtype("<u2"),
    DTYPE_UINT32: np.dtype("<u4"),
    DTYPE_UINT64: np.dtype("<u8"),
    DTYPE_INT8: np.dtype("i1"),
    DTYPE_INT16: np.dtype("<i2"),
    DTYPE_INT32: np.dtype("<i4"),
    DTYPE_INT64: np.dtype("<i8"),
    DTYPE_FLOAT16: np.dtype("<f2"),
    DTYPE_FLOAT32: np.dtype("<f4"),
    DTYPE_FLOAT64: np.dtype("<f8"),
}
_CODES: Final[dict[np.dtype[Any], int]] = {dtype: code for code, dtype in _DTYPES.items()}

MAX_TENSOR_BYTES: Final = 256 * 1024 * 1024
"""No observation or chunk is this large; a header that claims more is wrong or hostile."""

MAX_AXES: Final = 16


class TensorError(SparringError):
    """A tensor that contradicts its own header, or that the contract has no type for."""


def dtype_code(dtype: Any) -> int:
    """Returns the contract's number for a numpy dtype.

    Raises:
        TensorError: If the contract has no such type (objects, strings, complex numbers, ...).
    """
    wanted = np.dtype(dtype)
    # A big-endian array has the contract's type in another byte order; encode() swaps its bytes.
    code = _CODES.get(wanted) or _CODES.get(wanted.newbyteorder("<"))
    if code is None:
        known = ", ".join(sorted(d.name for d in _CODES))
        raise TensorError(f"an array of {wanted} cannot be sent; convert it to one of: {known}.")
    return code


def dtype_of(code: int) -> np.dtype[Any]:
    """Returns the numpy dtype of a number in the contract.

    Raises:
        TensorError: If the number means nothing here.
    """
    try:
        return _DTYPES[code]
    except KeyError:
        raise TensorError(f"dtype number {code} is not part of this protocol version.") from None


def encode_into(tensor: Tensor, array: Any) -> None:
    """Fills a message with an array. Messages copy what they are given, so fill the one that will be sent.

    Raises:
        TensorError: If the contract has no type for its elements.
    """
    array = np.asarray(array)
    code = dtype_code(array.dtype)
    tensor.dtype = code  # type: ignore[assignment]
    tensor.shape[:] = array.shape
    tensor.raw = np.asarray(array, dtype=_DTYPES[code], order="C").tobytes()


def encode(array: Any) -> Tensor:
    """Writes an array as a message of its own.

    Raises:
        TensorError: If the contract has no type for its elements.
    """
    tensor = Tensor()
    encode_into(tensor, array)
    return tensor


def decode(tensor: Tensor) -> Array:
    """Reads a message as an array: a read-only view of the message's own bytes.

    Raises:
        TensorError: If the bytes do not fit the header.
    """
    dtype = dtype_of(tensor.dtype)
    shape = tuple(tensor.shape)
    if len(shape) > MAX_AXES:
        raise TensorError(f"a tensor has {len(shape)} axes; at most {MAX_AXES} are allowed.")
    if any(length < 0 for length in shape):
        raise TensorError(f"a tensor has the shape {shape}; no axis can be shorter than 0.")
    expected = math.prod(shape) * dtype.itemsize  # Python integers: no overflow to hide behind
    # An empty tensor may still claim axes that no array can have; numpy multiplies the others, so does this.
    claimed = math.prod(length for length in shape if length) * dtype.itemsize
    if claimed > MAX_TENSOR_BYTES:
        raise TensorError(
            f"a tensor of shape {shape} and {dtype} would be {claimed} bytes; the limit is {MAX_TENSOR_BYTES}."
        )
    if tensor.WhichOneof("storage") != "raw":
        raise TensorError(f"a tensor of shape {shape} came without elements that this version can read.")
    raw = tensor.raw  # each access makes a bytes object anew
    if len(raw) != expected:
        raise TensorError(f"a tensor of shape {shape} and {dtype} needs {expected} bytes, {len(raw)} came.")
    return np.frombuffer(raw, dtype=dtype).reshape(shape)

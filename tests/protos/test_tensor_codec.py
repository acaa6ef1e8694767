from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sparring.protos import policy_pb2 as pb
from sparring.protos.tensor import MAX_TENSOR_BYTES, TensorError, decode, dtype_code, dtype_of, encode, encode_into

NUMBERED = {name: number for name, number in pb.DType.items() if number}
"""Every type the contract has, by its name there."""
NUMPY_NAMES = [name.removeprefix("DTYPE_").lower() for name in NUMBERED]


def over_the_wire(array: Any) -> np.ndarray[Any, Any]:
    return decode(pb.Tensor.FromString(encode(array).SerializeToString()))


def sample(dtype: str, shape: tuple[int, ...] = (2, 3, 4)) -> np.ndarray[Any, Any]:
    """Extreme values first, then some that differ, so that any mix-up of elements or bytes shows."""
    kind = np.dtype(dtype)
    count = int(np.prod(shape))
    if kind.kind == "b":
        return (np.arange(count) % 3 == 0).reshape(shape)
    if kind.kind == "f":
        values = np.linspace(-3.0, 3.0, count).astype(kind)
        values[: min(4, count)] = [np.finfo(kind).max, np.finfo(kind).tiny, -0.0, np.inf][: min(4, count)]
        return values.reshape(shape)
    values = np.arange(1, count + 1).astype(kind)
    values[: min(2, count)] = [np.iinfo(kind).max, np.iinfo(kind).min][: min(2, count)]
    return values.reshape(shape)


def assert_same_bits(left: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> None:
    assert left.shape == right.shape
    assert left.dtype == right.dtype
    assert left.tobytes() == right.tobytes()


def test_every_type_of_the_contract_is_known_to_the_codec() -> None:
    assert {dtype_of(number).name for number in NUMBERED.values()} == set(NUMPY_NAMES)
    for name, number in zip(NUMPY_NAMES, NUMBERED.values(), strict=True):
        assert dtype_code(name) == number


@pytest.mark.parametrize("dtype", NUMPY_NAMES)
def test_every_type_survives_the_wire_bit_for_bit(dtype: str) -> None:
    array = sample(dtype)
    assert_same_bits(over_the_wire(array), array)


@pytest.mark.parametrize("dtype", [d for d in NUMPY_NAMES if np.dtype(d).itemsize > 1])
def test_big_endian_arrays_keep_their_values_and_travel_little_endian(dtype: str) -> None:
    little = sample(dtype)
    big = little.astype(np.dtype(dtype).newbyteorder(">"))
    tensor = encode(big)
    assert tensor.raw == little.tobytes()
    assert_same_bits(decode(tensor), little)


def test_elements_are_little_endian_on_the_wire() -> None:
    assert encode(np.array([1, 258], np.uint16)).raw == b"\x01\x00\x02\x01"
    assert encode(np.float32(1.0)).raw == b"\x00\x00\x80\x3f"


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a.T,
        lambda a: a[::-1],
        lambda a: a[:, ::2],
        lambda a: a[..., ::-1],
        lambda a: np.asfortranarray(a),
        lambda a: a.transpose(2, 0, 1),
        lambda a: np.broadcast_to(a[0, 0, :1], (2, 3, 4)),
    ],
    ids=["transposed", "flipped", "strided", "mirrored", "fortran", "axes moved", "broadcast"],
)
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_views_are_sent_in_the_order_they_are_seen(view: Any, dtype: str) -> None:
    seen = view(sample(dtype))
    decoded = over_the_wire(seen)
    np.testing.assert_array_equal(decoded, seen)
    assert decoded.flags.c_contiguous


@pytest.mark.parametrize("dtype", NUMPY_NAMES)
def test_a_scalar_has_no_axes(dtype: str) -> None:
    array = sample(dtype, (1,))[0]
    tensor = encode(array)
    assert list(tensor.shape) == []
    assert_same_bits(over_the_wire(array), np.asarray(array))


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 4)])
@pytest.mark.parametrize("dtype", ["uint8", "float64"])
def test_empty_arrays_keep_their_shape(shape: tuple[int, ...], dtype: str) -> None:
    decoded = over_the_wire(np.empty(shape, dtype))
    assert decoded.shape == shape
    assert decoded.dtype == np.dtype(dtype)


def test_a_decoded_array_is_a_read_only_view_of_bytes() -> None:
    decoded = over_the_wire(sample("float32"))
    with pytest.raises(ValueError, match="read-only"):
        decoded[0, 0, 0] = 1.0
    owner: Any = decoded
    while isinstance(owner, np.ndarray):
        assert not owner.flags.owndata, "the elements were copied"
        owner = owner.base
    assert isinstance(owner, bytes)


def test_python_lists_and_numbers_are_arrays_too() -> None:
    assert_same_bits(over_the_wire([[1.0, 2.0]]), np.array([[1.0, 2.0]]))
    assert_same_bits(over_the_wire(True), np.array(True))


def test_encoding_over_an_old_message_leaves_nothing_of_it() -> None:
    tensor = encode(sample("float64"))
    encode_into(tensor, np.array([7], np.uint8))
    assert tensor == encode(np.array([7], np.uint8))


@pytest.mark.parametrize(
    "array",
    [
        np.array([{}]),
        np.array(["text"]),
        np.array([b"bytes"]),
        np.array([1j]),
        np.array(["2020-01-01"], "datetime64[D]"),
        np.array([(1, 2.0)], [("a", "i4"), ("b", "f4")]),
        np.array([1.0], np.longdouble),
    ],
    ids=["object", "str", "bytes", "complex", "date", "record", "long double"],
)
def test_types_that_the_contract_lacks_are_refused_with_those_it_has(array: np.ndarray[Any, Any]) -> None:
    with pytest.raises(TensorError, match="float32") as refusal:
        encode(array)
    assert str(array.dtype) in str(refusal.value)


@pytest.mark.parametrize("dtype", [pb.DTYPE_UNSPECIFIED, 13, 77])
def test_type_numbers_that_mean_nothing_are_refused(dtype: int) -> None:
    with pytest.raises(TensorError, match=str(dtype)):
        decode(pb.Tensor(dtype=dtype, shape=[1], raw=b"\0"))  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [0, 1, 23, 25, 48])
def test_a_wrong_number_of_bytes_is_refused_with_both_numbers(count: int) -> None:
    with pytest.raises(TensorError, match=f"needs 24 bytes, {count} came"):
        decode(pb.Tensor(dtype=pb.DTYPE_FLOAT32, shape=[2, 3], raw=bytes(count)))


def test_a_tensor_without_storage_is_refused_even_if_it_would_be_empty() -> None:
    with pytest.raises(TensorError):
        decode(pb.Tensor(dtype=pb.DTYPE_UINT8, shape=[0]))


@pytest.mark.parametrize(
    "shape",
    [
        [-1],
        [-2, -3],
        [2**62],
        [2**32, 2**32],
        [MAX_TENSOR_BYTES + 1],
        [2**62, 4, 0],
        [0, 2**63 - 1, 2**63 - 1],
        [1] * 17,
        [1] * 70,
    ],
    ids=str,
)
def test_shapes_that_cannot_be_are_refused_before_memory_is_taken(shape: list[int]) -> None:
    with pytest.raises(TensorError):
        decode(pb.Tensor(dtype=pb.DTYPE_UINT8, shape=shape, raw=b"" if 0 in shape else b"\0"))

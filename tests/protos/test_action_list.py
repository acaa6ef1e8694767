"""Executed actions as bytes: what comes out is what went in, to the bit; what is no such thing is told."""

from __future__ import annotations

import io
import zlib

import numpy as np
import pytest

from sparring.protos import action_list
from sparring.protos.action_list import UnreadableActions, pack, unpack
from sparring.protos.tensor import Array


def headed(header: str) -> bytes:
    """An array of NumPy's with a header of one's own."""
    text = header.encode()
    return zlib.compress(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text)


def npy(array: Array, *, pickled: bool = False) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=pickled)
    return file.getvalue()


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64", "uint8"])
def test_type_shape_and_bits_are_kept(dtype: str) -> None:
    bits = np.random.default_rng(0).integers(0, 256, (50, 7 * np.dtype(dtype).itemsize), np.uint8)
    actions = bits.view(dtype)  # any bits at all: NaNs with their payload, zeros below zero, the smallest numbers
    again = unpack(pack(actions))
    assert (again.dtype, again.shape) == (actions.dtype, actions.shape)
    assert again.tobytes() == actions.tobytes()


def test_a_view_with_gaps_is_packed_as_what_it_shows() -> None:
    actions = np.arange(40, dtype=np.float32).reshape(10, 4)
    assert np.array_equal(unpack(pack(actions[::2, ::-1])), actions[::2, ::-1])


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "cut off"),
        (b"not compressed", "cannot be read"),
        (pack(np.ones((3, 2)))[:-3], "cut off"),
        (pack(np.ones((3, 2))) + b"x", "cut off, or something follows"),
        (zlib.compress(b"no array"), "cannot be read"),
        (headed("(((("), "cannot be read"),
        (headed("{[]: 1}"), "cannot be read"),
        (headed("{'descr': '<f8', 'fortran_order': False, 'shape': (9999999999999, 9999)}"), "cannot be read"),
        (headed("{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999999999999, 9)}"), "cannot be read"),
        (headed("{'descr': '<f8', 'fortran_order': False, 'shape': (-1, 2)}"), "cannot be read"),
        (zlib.compress(npy(np.ones(3))), "no table of numbers"),
        (zlib.compress(npy(np.array([["a"]]))), "no table of numbers"),
        (zlib.compress(npy(np.ones((3, 2))) + b"x"), "no table of numbers"),
        (zlib.compress(npy(np.array([[{}]], dtype=object), pickled=True)), "cannot be read"),
    ],
)
def test_what_is_no_list_of_actions_is_told(content: bytes, sentence: str) -> None:
    with pytest.raises(UnreadableActions, match=sentence):
        unpack(content)


def test_what_would_fill_the_memory_is_told_before_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(action_list, "MOST_UNPACKED", 1000)
    assert len(unpack(pack(np.zeros((100, 1))))) == 100
    with pytest.raises(UnreadableActions, match="cut off"):
        unpack(pack(np.zeros((200, 1))))

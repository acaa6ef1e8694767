"""Messages of other people's wires have limits: what just fits is read, and what is one more is refused."""

from __future__ import annotations

import io

import msgpack
import numpy as np
import pytest
from PIL import Image

from sparring.policy_server.bridges import arrays
from sparring.policy_server.bridges.arrays import GROOT, OPENPI, VLA_EVAL, BadMessage, plain_array


def test_axes_of_an_array() -> None:
    assert plain_array(b"x", "|u1", (1,) * arrays._MOST_AXES).shape == (1,) * arrays._MOST_AXES
    with pytest.raises(ValueError, match="a shape that is not one of up to 8 numbers"):
        plain_array(b"x", "|u1", (1,) * (arrays._MOST_AXES + 1))


@pytest.mark.parametrize("kind", [list, dict])
def test_maps_and_lists_of_a_message(kind: type) -> None:
    inside = arrays._MOST_PARTS - 1  # beside the list that they are in
    assert len(OPENPI.read(msgpack.packb([kind() for _ in range(inside)]))) == inside
    with pytest.raises(BadMessage, match="more than 4096 maps and lists"):
        OPENPI.read(msgpack.packb([kind() for _ in range(inside + 1)]))


def test_what_one_list_holds() -> None:
    assert len(OPENPI.read(msgpack.packb([0] * arrays._MOST_PARTS))) == arrays._MOST_PARTS
    with pytest.raises(BadMessage, match="a message that this wire does not have"):
        OPENPI.read(msgpack.packb([0] * (arrays._MOST_PARTS + 1)))


def test_bytes_of_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    message = msgpack.packb(b"x" * 100)
    monkeypatch.setattr(arrays, "MOST_BYTES", len(message))
    assert OPENPI.read(message) == b"x" * 100
    with pytest.raises(BadMessage, match=f"a message of {len(message) + 1} bytes"):
        OPENPI.read(msgpack.packb(b"x" * 101))


def test_the_header_of_a_file_of_numpy() -> None:
    def packed(padding: int) -> bytes:
        header = "{'descr': '|u1', 'fortran_order': False, 'shape': (1,), }".ljust(padding - 1) + "\n"
        file = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + b"\x07"
        return bytes(msgpack.packb({"__ndarray_class__": True, "as_npy": file}))

    assert GROOT.read(packed(arrays._LONGEST_HEADER)).tolist() == [7]
    with pytest.raises(BadMessage, match="Header info length"):
        GROOT.read(packed(arrays._LONGEST_HEADER + 1))
    file = io.BytesIO()
    np.save(file, np.array([7], np.uint8))
    assert GROOT.read(msgpack.packb({"__ndarray_class__": True, "as_npy": file.getvalue()})).tolist() == [7]


def test_the_shape_of_a_picture_is_one_of_numbers() -> None:
    """Arrays in it would be multiplied with each other, as often as there are axes."""
    file = io.BytesIO()
    Image.new("L", (2, 2)).save(file, "PNG")
    axis = {"__ndarray__": True, "data": bytes(4), "dtype": "|u1", "shape": [4]}
    for more in ([axis], [1] * arrays._MOST_AXES):
        picture = {"__image__": True, "format": "png", "data": file.getvalue(), "shape": [2, 2, *more]}
        with pytest.raises(BadMessage, match="a shape that is not one of up to 8 numbers"):
            VLA_EVAL.read(msgpack.packb(picture))


def test_the_name_of_a_type_that_numpy_reads_as_python() -> None:
    with pytest.raises(BadMessage, match="an array of the type ','"):
        OPENPI.read(msgpack.packb({b"__ndarray__": True, b"data": b"", b"dtype": ",", b"shape": []}))

"""A short pickle does not cost more than its length: it is read where everybody else's messages wait.

Everything is made so small that a reader without the limit accepts it soon.
"""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from sparring.policy_server.bridges import lerobot_async as wire
from sparring.policy_server.bridges.arrays import BadMessage
from sparring.policy_server.bridges.pickles import writing
from sparring.policy_server.bridges.pickles.reading import Made
from sparring.policy_server.bridges.pickles.writing import TensorOf, pickled

READER = wire.READER
LEVELS = 18
DTYPE, LOAD = b"cnumpy\ndtype\n", b"ctorch.storage\n_load_from_bytes\n"
OBJECT = b"c" + wire.ACTION.replace(" ", "\n").encode() + b"\n)\x81"
TWICE = b"".join(bytes([0x71, n, 0x68, n, 0x86]) for n in range(LEVELS))
"""Puts what is on the stack down, gets it, and makes a pair of both."""

LISTS = b"".join(b"]q" + bytes([n]) for n in range(LEVELS))
FILLED = b"".join(bytes([0x68, n + 1, 0x68, n, 0x61, 0x68, n, 0x61]) for n in reversed(range(LEVELS - 1)))
"""Each list gets the one before it twice, while that one is empty."""


def read(steps: bytes) -> object:
    return READER.read(b"\x80\x04" + steps + b".")


@pytest.mark.parametrize(
    "steps",
    [
        b"K\x01" + TWICE,
        DTYPE + b"K\x01" + TWICE + b"\x85R",  # was printed, to see what it is called
        DTYPE + b"X\x02\x00\x00\x00f4K\x00K\x01\x87RK\x01" + TWICE + b"b",
        b"cnumpy._core.multiarray\n_reconstruct\n)RK\x01" + TWICE + b"b",
        b"(" + LISTS + FILLED + b"t",
        b"]q\x00h\x00a",
    ],
    ids=["tuples", "the name of a type", "a type", "an array", "lists", "a list in itself"],
)
def test_references_to_references_are_counted_as_what_they_would_be_written_out(steps: bytes) -> None:
    with pytest.raises(BadMessage, match=r"with all that it refers to|in each other more than 32 times"):
        read(steps)


def test_what_python_itself_refers_to_twice_is_read() -> None:
    shape, names = (480, 640, 3), ["height", "width", "channels"]
    features = {f"camera {n}": {"shape": shape, "names": names} for n in range(20)}
    assert READER.read(pickle.dumps(features)) == features


def test_things_are_not_in_each_other_without_end() -> None:
    assert read(b")" + b"\x85" * 32) is not None
    with pytest.raises(BadMessage, match="in each other more than 32 times"):
        read(b")" + b"\x85" * 33)


def storage(system: bytes = b"") -> bytes:
    """A storage of one number as torch writes it, which may say more of its system."""
    return writing._storage(np.zeros(1, np.float32)).replace(b"}(", b"}(" + system, 1)


@pytest.mark.parametrize(
    ("blob", "calls"),
    [(storage(), 2000), (storage(b"X\x01\x00\x00\x00xB" + (1 << 20).to_bytes(4, "little") + bytes(1 << 20)), 500)],
    ids=["steps", "bytes"],
)
def test_pickles_in_a_pickle_are_counted_with_it(blob: bytes, calls: int) -> None:
    """One storage that is loaded again and again."""
    first = b"(" + LOAD + b"q\x00B" + len(blob).to_bytes(4, "little") + blob + b"\x85q\x01R"
    assert len(read(first + b"t")) == 1  # type: ignore[arg-type]
    with pytest.raises(BadMessage, match="more than 100000 steps"):
        read(first + b"h\x00h\x01R" * calls + b"t")


def test_attributes_that_are_given_again_and_again_are_counted() -> None:
    state = b"}q\x00(" + b"".join(b"M" + n.to_bytes(2, "little") + b"N" for n in range(1000)) + b"u"
    assert isinstance(read(OBJECT + state + b"b"), Made)
    with pytest.raises(BadMessage, match="more than 100000 steps"):
        read(OBJECT + state + b"b" + b"h\x00b" * 200)


def test_keys_are_not_numbers_that_collide() -> None:
    assert READER.read(pickle.dumps({0: 1, 65535: 2})) == {0: 1, 65535: 2}
    for key in (65536, -1, (1 << 61) - 1):
        with pytest.raises(BadMessage, match="a large number as a key"):
            READER.read(pickle.dumps({key: 1}))


def test_a_chunk_of_a_hundred_actions_is_far_from_the_limit() -> None:
    action = {"timestamp": 1.5, "timestep": 3, "action": TensorOf(np.zeros(7, np.float32))}
    assert len(READER.read(pickled([Made(wire.ACTION, action)] * 400))) == 400  # type: ignore[arg-type]

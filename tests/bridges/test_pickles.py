"""Pickles are read as data: what Python's own unpickler makes of them, for what is on the list, and nothing else."""

from __future__ import annotations

import contextlib
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparring.policy_server.bridges.arrays import BadMessage
from sparring.policy_server.bridges.pickles import writing
from sparring.policy_server.bridges.pickles.arrays_in_pickles import CALLS
from sparring.policy_server.bridges.pickles.reading import Made, NamesTooMuch, PickleReader
from sparring.policy_server.bridges.pickles.writing import TensorOf, pickled

READER = PickleReader(CALLS, frozenset([f"{__name__} Thing"]))
PLAIN = [
    *(
        None,
        True,
        False,
        0,
        -1,
        255,
        65536,
        2**31,
        -(2**31) - 1,
        2**70,
        1.5,
        float("inf"),
        "",
        "é",
        "x" * 300,
        b"",
        b"a",
    ),
    *([], [1, [2, "3"]], (), (1,), (1, 2), (1, 2, 3, 4), {}, {"a": {"b": (1,)}, 3: None}),
]
ARRAYS = [
    np.arange(6, dtype=np.float32).reshape(2, 3),
    np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    np.zeros((4, 5, 3), np.uint8),
    np.arange(3, dtype=">f4"),
    np.array([True, False]),
    np.zeros((0, 3)),
    np.array(2.5),
]


class Thing:
    def __init__(self, **state: Any) -> None:
        self.__dict__ = state


@pytest.mark.parametrize("protocol", [3, 4, 5])
def test_plain_values_and_arrays_are_what_python_makes_of_them(protocol: int) -> None:
    for value in PLAIN:
        found = READER.read(pickle.dumps(value, protocol))
        assert found == value
        assert type(found) is type(value)
    for array in ARRAYS:
        found = READER.read(pickle.dumps({"twice": [array, array]}, protocol))["twice"]
        assert found[0] is found[1]
        assert found[0].dtype == array.dtype
        assert np.array_equal(found[0], array)
    assert READER.read(pickle.dumps(np.float32(3.5), protocol)) == np.float32(3.5)


def test_objects_are_names_and_attributes() -> None:
    found = READER.read(pickle.dumps(Thing(at=1.5, what=np.arange(3))))
    assert isinstance(found, Made)
    assert found.name.endswith(" Thing")
    assert found.state["at"] == 1.5
    assert np.array_equal(found.state["what"], np.arange(3))


def test_what_is_written_is_what_python_reads() -> None:
    for value in PLAIN:
        found = pickle.loads(pickled(value))
        assert found == value
        assert type(found) is type(value)
    for array in ARRAYS:
        found = pickle.loads(pickled(array))
        assert found.dtype == array.dtype.newbyteorder("<")
        assert np.array_equal(found, array)
    thing = pickle.loads(pickled(Made(f"{__name__} Thing", {"at": 1.5})))
    assert type(thing) is Thing
    assert thing.at == 1.5


def test_tensors_of_torch_go_both_ways() -> None:
    import torch

    whole = torch.arange(24.0).reshape(4, 6)
    for tensor in (whole, whole[2], whole.T, whole[1:3, ::2], torch.tensor(3.0), torch.arange(5), torch.zeros(0, 3)):
        assert np.array_equal(READER.read(pickle.dumps(tensor)), tensor.numpy())
        back = pickle.loads(pickled(TensorOf(tensor.numpy())))
        assert torch.equal(back, tensor)
        assert back.dtype == tensor.dtype
    rows = [READER.read(pickle.dumps(list(whole)))[number] for number in range(4)]
    assert np.array_equal(rows, whole.numpy())


def test_nothing_that_a_pickle_names_is_called(tmp_path: Path) -> None:
    touched = tmp_path / "touched"

    class Evil:
        def __init__(self, *call: Any) -> None:
            self.call = call

        def __reduce__(self) -> Any:
            return self.call[0], self.call[1:]

    for call in ((touched.touch,), (eval, f"open({str(touched)!r}, 'w')"), (Path.touch, touched), (getattr, 1, "real")):
        for value in (Evil(*call), [Evil(*call)], {"a": (Evil(*call),)}):
            with pytest.raises(NamesTooMuch, match="Nothing of it was"):
                READER.read(pickle.dumps(value))
    import torch

    hidden = pickle.dumps(torch.zeros(2)).replace(b"FloatStorage", b"load_storage")
    with pytest.raises(BadMessage):
        READER.read(hidden)
    assert not touched.exists()


def tensor_of(storage: bytes, offset: int, size: int, step: int) -> bytes:
    numbers = b"".join(b"M" + n.to_bytes(2, "little") for n in (size, step))
    size_and_step = numbers[:3] + b"\x85" + numbers[3:] + b"\x85"
    where = b"M" + offset.to_bytes(2, "little")
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + where + size_and_step + b"tR"


def test_a_tensor_of_a_tensor_does_not_read_beyond_its_storage() -> None:
    """A view of the last number a thousand times looks like a thousand numbers, with one behind it."""
    blob = writing._storage(np.arange(1000, dtype=np.float32))
    storage = b"ctorch.storage\n_load_from_bytes\nB" + len(blob).to_bytes(4, "little") + blob + b"\x85R"
    last = tensor_of(storage, 999, 1000, 0)
    assert READER.read(b"\x80\x04" + last + b".").tolist() == [999.0] * 1000
    for base in (last, pickle.dumps(np.zeros(1000))[2:-1]):
        with pytest.raises(BadMessage, match="a tensor without a storage"):
            READER.read(b"\x80\x04" + tensor_of(base, 0, 1000, 1) + b".")


def refused() -> dict[str, bytes]:
    billion = b"\x80\x04]q\x00" + b"".join(
        b"]" + b"r" + (n + 1).to_bytes(4, "little") + b"(" + b"h\x00" * 9 + b"e0" for n in range(3)
    )
    nested = b"(" * 50_000
    return {
        "nothing": b"",
        "garbage": b"\xff\xfe\xfd",
        "not ended": pickle.dumps([1, 2])[:-1],
        "something after it": pickle.dumps(1) + b"x",
        "a large place in memory": b"\x80\x04Nr\xff\xff\xff\x7f.",
        "a list of references": billion,
        "many marks": nested,
        "a persistent id": b"\x80\x04N\x85Q.",
        "an extension": b"\x80\x04\x82\x01.",
        "state of a number": b"\x80\x04K\x01}b.",
        "a list as a key": b"\x80\x04}]Ns.",
        "an unknown place": b"\x80\x04h\x07.",
        "an array of objects": pickle.dumps(np.array([object])),
        "fewer bytes than it says": pickle.dumps(np.zeros(100)).replace(b"Kd\x85", b"Ke\x85"),
        "a class that is called": pickle.dumps(Made("x", {})),
        "a million steps": b"\x80\x04(" + b"N" * 1_000_000 + b"t.",
    }


@pytest.mark.parametrize("what", sorted(refused()))
def test_bytes_that_somebody_made_up_are_refused_with_a_sentence(what: str) -> None:
    data = refused()[what]
    if what == "a large place in memory":
        assert READER.read(data) is None  # places are counted, not laid out: it costs nothing
        return
    with pytest.raises(BadMessage):
        READER.read(data)


def test_any_bytes_are_a_value_or_a_sentence() -> None:
    import torch

    random = np.random.default_rng(0)
    whole = pickle.dumps([{"a": np.arange(4.0), "b": torch.arange(3.0), "c": [1, "x", None]}])
    for _ in range(2000):
        data = bytearray(whole)
        for at in random.integers(0, len(data), random.integers(1, 4)):
            data[at] = random.integers(0, 256)
        with contextlib.suppress(BadMessage):
            READER.read(bytes(data))

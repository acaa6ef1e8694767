"""The fast way of the hot message against protobuf's own."""

from __future__ import annotations

import random

import numpy as np
import pytest

from sparring.protos import policy_pb2 as pb
from sparring.protos import wire
from sparring.protos.spec import PolicySpec, TensorSpec
from sparring.protos.tensor import Tensor, decode, encode, encode_into
from sparring.protos.wire import ObservationCodec

SPECS = {
    "image": TensorSpec("uint8", (4, 5, 3)),
    "state": TensorSpec("float64", (3,)),
    "scalar": TensorSpec("int64", ()),
    "none": TensorSpec("float32", (0, 2)),
    "half": TensorSpec("float16", (2, 2)),
    "flags": TensorSpec("bool", (3,)),
}


def needs(history: int = 1) -> PolicySpec:
    return PolicySpec(SPECS, action_dim=1, history=history)


def arrays(seed: int, spec: PolicySpec) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        name: np.asarray(rng.random(spec.batched_shape(name)) * 100).astype(str(tensor.dtype))
        for name, tensor in spec.named.items()
    }


def by_protobuf(episode: int, step: int, tensors: dict[str, np.ndarray]) -> bytes:
    request = pb.RolloutRequest()
    request.observation.episode, request.observation.step = episode, step
    for name, array in tensors.items():
        encode_into(request.observation.tensors[name], array)
    return request.SerializeToString()


@pytest.mark.parametrize("history", [1, 3])
@pytest.mark.parametrize(("episode", "step"), [(1, 0), (1, 1), (300, 127), (2**40, 2**63), (2**64 - 1, 128)])
def test_protobuf_reads_what_is_written(episode: int, step: int, history: int) -> None:
    spec = needs(history)
    tensors = arrays(step % 97, spec)
    written = ObservationCodec(spec).write(episode, step, tensors)
    assert written is not None
    read = pb.RolloutRequest.FromString(written).observation
    assert (read.episode, read.step) == (episode, step)
    assert set(read.tensors) == set(tensors)
    for name, array in tensors.items():
        assert np.array_equal(decode(read.tensors[name]), array)
        assert decode(read.tensors[name]).dtype == array.dtype


def test_what_is_written_is_read_as_views() -> None:
    spec = needs()
    tensors = arrays(1, spec)
    codec = ObservationCodec(spec)
    data = codec.write(7, 9, tensors)
    assert data is not None
    read = codec.read(data)
    assert read is not None
    assert read[:2] == (7, 9)
    for name, array in tensors.items():
        assert np.array_equal(read[2][name], array)
        assert read[2][name].dtype == array.dtype
        assert read[2][name].flags.aligned
        assert not read[2][name].flags.writeable
    assert np.shares_memory(read[2]["image"], np.frombuffer(data, np.uint8)), "the image was copied"


def test_one_tensor_is_the_same_bytes_as_protobufs() -> None:
    spec = PolicySpec({"image": SPECS["image"]}, action_dim=1)
    tensors = arrays(2, spec)
    for episode, step in ((1, 0), (5, 1000)):
        assert ObservationCodec(spec).write(episode, step, tensors) == by_protobuf(episode, step, tensors)
        assert ObservationCodec(spec).read(by_protobuf(episode, step, tensors)) is not None


def test_what_is_not_needed_is_left_to_the_ordinary_way() -> None:
    spec = needs()
    codec = ObservationCodec(spec)
    good = arrays(3, spec)
    for wrong in (
        {**good, "more": np.zeros(1)},
        {name: array for name, array in good.items() if name != "state"},
        {**good, "state": np.zeros(3, np.float32)},
        {**good, "state": np.zeros(4)},
        {**good, "state": [0.0, 0.0, 0.0]},
        {**good, "state": np.zeros(3, ">f8")},
    ):
        assert codec.write(1, 1, wrong) is None  # type: ignore[arg-type]
    strided = {**good, "image": np.zeros((8, 5, 3), np.uint8)[::2]}
    data = codec.write(1, 1, strided)
    assert data is not None
    assert pb.RolloutRequest.FromString(data).observation.tensors["image"].raw == bytes(60)


def test_elements_that_are_not_stored_as_they_are_go_the_ordinary_way(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = needs()
    codec = ObservationCodec(spec)
    # As if tensor.py had another arm of `Tensor.storage`, which the image goes by.
    monkeypatch.setattr(wire, "encode", lambda array: Tensor() if array.ndim == 3 else encode(array))
    assert codec.write(1, 1, arrays(3, spec)) is None
    states = PolicySpec({"state": SPECS["state"]}, action_dim=1)
    assert ObservationCodec(states).write(1, 1, arrays(3, states)) is not None


def test_damaged_messages_are_never_read_as_something_else() -> None:
    """Whatever the fast way reads, protobuf must read the same; what protobuf refuses, the fast way must not take."""
    rng = random.Random(0)
    spec = needs()
    codec = ObservationCodec(spec)
    good = codec.write(3, 200, arrays(4, spec))
    assert good is not None
    taken = 0
    for _ in range(4000):
        data = bytearray(good)
        for _ in range(rng.randint(1, 3)):
            where = rng.randrange(min(len(data), 400))
            change = rng.choice(("flip", "drop", "add"))
            if change == "flip":
                data[where] ^= 1 << rng.randrange(8)
            elif change == "drop":
                del data[where]
            else:
                data.insert(where, rng.randrange(256))
        read = codec.read(bytes(data))
        if read is None:
            continue
        taken += 1
        message = pb.RolloutRequest.FromString(bytes(data)).observation
        assert (message.episode, message.step) == read[:2]
        for name, array in read[2].items():
            assert np.array_equal(decode(message.tensors[name]), array, equal_nan=array.dtype.kind == "f")
    assert taken > 50, "no damage hit only the elements; the test compares nothing"

"""Tensors that contradict their header, or what the welcome asked for, end the stream with INVALID_ARGUMENT."""

from __future__ import annotations

import grpc
import pytest
from compliance_wire import Target, assert_refused, zeros

from sparring.protos import policy_pb2 as pb

INVALID = grpc.StatusCode.INVALID_ARGUMENT


@pytest.fixture
def observation(target: Target) -> pb.Observation:
    """A good observation of episode 1, for the test to spoil."""
    message = target.observation(1, 0)
    if not message.tensors:
        pytest.skip("this policy looks at nothing")
    return message


def first_of(observation: pb.Observation) -> pb.Tensor:
    return observation.tensors[min(observation.tensors)]


def assert_invalid(target: Target, observation: pb.Observation) -> str:
    ended = target.exchange(target.hello(), target.start(1), observation)
    details = assert_refused(ended, INVALID, after=["welcome", "episode_started"])
    target.assert_well()
    return details


@pytest.mark.parametrize("change", ["one more", "one less", "none"])
def test_a_wrong_number_of_bytes(target: Target, observation: pb.Observation, change: str) -> None:
    tensor = first_of(observation)
    tensor.raw = {"one more": tensor.raw + b"\0", "one less": tensor.raw[:-1], "none": b""}[change]
    assert str(len(tensor.raw)) in assert_invalid(target, observation)


def test_no_elements_at_all(target: Target, observation: pb.Observation) -> None:
    first_of(observation).ClearField("raw")
    assert_invalid(target, observation)


def test_a_negative_axis(target: Target, observation: pb.Observation) -> None:
    tensor = first_of(observation)
    tensor.shape[:] = [-1, *tensor.shape[1:]]
    assert "-1" in assert_invalid(target, observation)


def test_two_negative_axes_whose_product_fits(target: Target, observation: pb.Observation) -> None:
    tensor = first_of(observation)
    tensor.shape[:] = [-1, -1, *tensor.shape]
    assert_invalid(target, observation)


@pytest.mark.parametrize(
    "shape",
    [
        [2**62],
        [2**31, 2**31],
        [2**32, 2**32],  # 0 in 64-bit arithmetic
        [2**63 - 1, 2**63 - 1, 2**63 - 1],
        [2**62, 4, 0],  # truly 0, through lengths that no array can have
        [0, 2**63 - 1, 2**63 - 1],
        [1] * 100,
    ],
    ids=str,
)
def test_a_shape_that_cannot_be(target: Target, observation: pb.Observation, shape: list[int]) -> None:
    tensor = first_of(observation)
    tensor.shape[:] = shape
    if 0 in shape:
        tensor.raw = b""
    assert_invalid(target, observation)


@pytest.mark.parametrize("dtype", [pb.DTYPE_UNSPECIFIED, 13, 99, 2**31 - 1])
def test_an_unknown_type(target: Target, observation: pb.Observation, dtype: int) -> None:
    first_of(observation).dtype = dtype  # type: ignore[assignment]
    assert str(dtype) in assert_invalid(target, observation)


def test_another_type_of_the_same_size(target: Target, observation: pb.Observation) -> None:
    """The bytes fit the header; only what the welcome asked for tells that the numbers are wrong."""
    swaps = {
        pb.DTYPE_UINT8: pb.DTYPE_INT8,
        pb.DTYPE_FLOAT32: pb.DTYPE_INT32,
        pb.DTYPE_FLOAT64: pb.DTYPE_INT64,
    }
    tensor = first_of(observation)
    tensor.dtype = swaps.get(tensor.dtype, pb.DTYPE_UINT8)
    assert min(observation.tensors) in assert_invalid(target, observation)


def test_another_shape_of_the_same_size(target: Target, observation: pb.Observation) -> None:
    tensor = first_of(observation)
    tensor.shape[:] = [1, *tensor.shape]
    assert min(observation.tensors) in assert_invalid(target, observation)


def test_a_missing_name(target: Target, observation: pb.Observation) -> None:
    name = min(observation.tensors)
    del observation.tensors[name]
    assert name in assert_invalid(target, observation)


def test_a_name_too_many(target: Target) -> None:
    observation = target.observation(1, 0)
    observation.tensors["compliance.extra"].CopyFrom(zeros(pb.DTYPE_FLOAT32, [1]))
    assert "compliance.extra" in assert_invalid(target, observation)


def test_a_misspelt_name(target: Target, observation: pb.Observation) -> None:
    name = min(observation.tensors)
    observation.tensors[name + "s"].CopyFrom(observation.tensors[name])
    del observation.tensors[name]
    details = assert_invalid(target, observation)
    assert repr(name) in details
    assert repr(name + "s") in details


def test_a_bad_tensor_in_the_middle_of_an_episode_ends_it(target: Target, observation: pb.Observation) -> None:
    first_of(observation).raw += b"\0"
    observation.step = 1
    ended = target.exchange(
        target.hello(), target.start(1), target.observation(1, 0), observation, target.observation(1, 2)
    )
    assert_refused(ended, INVALID, after=["welcome", "episode_started", "chunk"])


def test_bytes_that_are_no_message_end_the_stream_and_no_more(target: Target) -> None:
    call = target.channel.stream_stream(
        "/sparring.policy.v1.Policy/Rollout",
        request_serializer=None,
        response_deserializer=pb.RolloutResponse.FromString,
    )(iter([b"\xff\xff\xff\xff not a message"]), timeout=10.0)
    with pytest.raises(grpc.RpcError):
        next(call)
    assert call.code() not in (grpc.StatusCode.OK, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE)
    target.assert_well()

"""Tensors that contradict their header, or what the welcome asked for, end the stream with INVALID_ARGUMENT."""

from __future__ import annotations

from typing import Any, Final

import grpc

from sparring.policy_server.compliance.wire import Target, expect_named, expect_refused, zeros
from sparring.protos import policy_pb2 as pb
from sparring.protos.rules import NotApplicable, broken, expect

INVALID: Final = grpc.StatusCode.INVALID_ARGUMENT
_SILENT: Final = (grpc.StatusCode.OK, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE)


def a_wrong_number_of_bytes_is_refused(target: Target) -> None:
    """A tensor with a byte more or less than its shape has, or with none, is refused, and how many it has is named."""
    for change in ("one more", "one less", "none"):
        observation = _good(target)
        tensor = _first(observation)
        tensor.raw = {"one more": tensor.raw + b"\0", "one less": tensor.raw[:-1], "none": b""}[change]
        expect_named(str(len(tensor.raw)), _refused(target, observation, change))


def a_tensor_without_elements_is_refused(target: Target) -> None:
    """A tensor without its elements is refused."""
    observation = _good(target)
    _first(observation).ClearField("raw")
    _refused(target, observation, "no elements at all")


def negative_axes_are_refused(target: Target) -> None:
    """A negative axis is refused, also two whose product would fit."""
    observation = _good(target)
    tensor = _first(observation)
    tensor.shape[:] = [-1, *tensor.shape[1:]]
    expect_named("-1", _refused(target, observation, "a negative axis"))
    observation = _good(target)
    tensor = _first(observation)
    tensor.shape[:] = [-1, -1, *tensor.shape]
    _refused(target, observation, "two negative axes")


def impossible_shapes_are_refused(target: Target) -> None:
    """A shape that no array can have is refused, also one whose size overflows to something small."""
    longest = 2**63 - 1
    for shape in (
        [2**62],
        [2**31, 2**31],
        [2**32, 2**32],  # 0 in 64-bit arithmetic
        [longest] * 3,
        [2**62, 4, 0],  # truly 0, through lengths that no array can have
        [0, longest, longest],
        [1] * 100,
    ):
        observation = _good(target)
        tensor = _first(observation)
        tensor.shape[:] = shape
        if 0 in shape:
            tensor.raw = b""
        _refused(target, observation, f"the shape {shape}")


def unknown_types_are_refused(target: Target) -> None:
    """A type that there is not is refused and named."""
    for dtype in (pb.DTYPE_UNSPECIFIED, 13, 99, 2**31 - 1):
        observation = _good(target)
        _first(observation).dtype = dtype  # type: ignore[assignment]
        expect_named(str(int(dtype)), _refused(target, observation, f"the type {dtype}"))


def another_type_of_the_same_size_is_refused(target: Target) -> None:
    """Another type of the same size is refused: its bytes fit, and its numbers would be wrong."""
    swaps = {pb.DTYPE_UINT8: pb.DTYPE_INT8, pb.DTYPE_FLOAT32: pb.DTYPE_INT32, pb.DTYPE_FLOAT64: pb.DTYPE_INT64}
    observation = _good(target)
    tensor = _first(observation)
    tensor.dtype = swaps.get(tensor.dtype, pb.DTYPE_UINT8)
    expect_named(min(observation.tensors), _refused(target, observation, "another type"))


def another_shape_of_the_same_size_is_refused(target: Target) -> None:
    """Another shape of the same size is refused."""
    observation = _good(target)
    tensor = _first(observation)
    tensor.shape[:] = [1, *tensor.shape]
    expect_named(min(observation.tensors), _refused(target, observation, "another shape"))


def names_are_those_that_were_asked_for(target: Target) -> None:
    """A missing name, one too many, and a misspelt one are refused and named."""
    observation = _good(target)
    name = min(observation.tensors)
    del observation.tensors[name]
    expect_named(name, _refused(target, observation, "a missing name"))
    observation = _good(target)
    observation.tensors["compliance.extra"].CopyFrom(zeros(pb.DTYPE_FLOAT32, [1]))
    expect_named("compliance.extra", _refused(target, observation, "a name too many"))
    observation = _good(target)
    observation.tensors[name + "s"].CopyFrom(observation.tensors[name])
    del observation.tensors[name]
    details = _refused(target, observation, "a misspelt name")
    expect_named(repr(name), details)
    expect_named(repr(name + "s"), details)


def a_bad_tensor_ends_its_episode(target: Target) -> None:
    """A bad tensor in the middle of an episode ends the stream: what follows is not answered."""
    observation = _good(target)
    _first(observation).raw += b"\0"
    observation.step = 1
    ended = target.exchange(
        target.hello(), target.start(1), target.observation(1, 0), observation, target.observation(1, 2)
    )
    expect_refused(ended, INVALID, after=["welcome", "episode_started", "chunk"])


def bytes_that_are_no_message_end_the_stream(target: Target) -> None:
    """Bytes that are no message end the stream, and nothing more."""
    rollout: Any = target.channel.stream_stream(
        "/sparring.policy.v1.Policy/Rollout",
        request_serializer=None,
        response_deserializer=pb.RolloutResponse.FromString,
    )
    call = rollout(iter([b"\xff\xff\xff\xff not a message"]), timeout=target.way.deadline)
    try:
        next(call)
    except grpc.RpcError:
        expect(call.code() not in _SILENT, f"they end with {call.code().name}.")
    else:
        broken("they are answered.")
    target.expect_well()


RULES: Final = (
    a_wrong_number_of_bytes_is_refused,
    a_tensor_without_elements_is_refused,
    negative_axes_are_refused,
    impossible_shapes_are_refused,
    unknown_types_are_refused,
    another_type_of_the_same_size_is_refused,
    another_shape_of_the_same_size_is_refused,
    names_are_those_that_were_asked_for,
    a_bad_tensor_ends_its_episode,
    bytes_that_are_no_message_end_the_stream,
)


def _good(target: Target) -> pb.Observation:
    """A good observation of episode 1, to be spoilt."""
    message = target.observation(1, 0)
    if not message.tensors:
        raise NotApplicable("this policy looks at nothing.")
    return message


def _first(observation: pb.Observation) -> pb.Tensor:
    return observation.tensors[min(observation.tensors)]


def _refused(target: Target, observation: pb.Observation, when: str) -> str:
    ended = target.exchange(target.hello(), target.start(1), observation)
    details = expect_refused(ended, INVALID, after=["welcome", "episode_started"], when=when)
    target.expect_well()
    return details

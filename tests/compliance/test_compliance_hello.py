"""Rule 1 of the contract: the first message is a hello; what does not fit is refused with the exact difference."""

from __future__ import annotations

import grpc
import pytest
from compliance_wire import Target, assert_refused

from sparring.protos import PROTOCOL_VERSION
from sparring.protos import policy_pb2 as pb

PRECONDITION = grpc.StatusCode.FAILED_PRECONDITION


def needing_observations(target: Target) -> pb.TensorSpec:
    if not target.description.needs.observations:
        pytest.skip("this policy looks at nothing")
    return target.description.needs.observations[0]


def changed(offer: pb.Offer, name: str, *, dtype: int | None = None, shape: list[int] | None = None) -> pb.Offer:
    copy = pb.Offer()
    copy.CopyFrom(offer)
    for spec in copy.observations:
        if spec.name == name:
            if dtype is not None:
                spec.dtype = dtype  # type: ignore[assignment]
            if shape is not None:
                spec.shape[:] = shape
    return copy


def without(offer: pb.Offer, name: str) -> pb.Offer:
    kept = [spec for spec in offer.observations if spec.name != name]
    return pb.Offer(observations=kept, action_low=offer.action_low, action_high=offer.action_high)


def test_a_hello_is_answered_with_a_welcome(target: Target) -> None:
    ended = target.exchange(target.hello())
    assert (ended.kinds, ended.code) == (["welcome"], grpc.StatusCode.OK)
    welcome = ended.answers[0].welcome
    assert welcome.policy == target.description
    assert welcome.policy.protocol == PROTOCOL_VERSION
    assert welcome.session


def test_the_welcome_settles_everything_that_was_open(target: Target) -> None:
    needs = target.exchange(target.hello()).answers[0].welcome.needs
    offered = {spec.name: spec for spec in target.offer.observations}
    assert {spec.name for spec in needs.observations} == {s.name for s in target.description.needs.observations}
    for spec in needs.observations:
        assert spec == offered[spec.name]
    assert needs.action_dim == len(target.offer.action_low)
    assert needs.chunk_length == target.description.needs.chunk_length >= 1
    assert needs.history == target.description.needs.history >= 1


def test_what_is_offered_beyond_the_needs_is_not_asked_for(target: Target) -> None:
    generous = pb.Offer()
    generous.CopyFrom(target.offer)
    generous.observations.add(name="compliance.unheard_of", dtype=pb.DTYPE_UINT8, shape=[2, 2])
    needs = target.exchange(target.hello(generous)).answers[0].welcome.needs
    assert "compliance.unheard_of" not in {spec.name for spec in needs.observations}


def test_sessions_have_names_of_their_own(target: Target) -> None:
    names = [target.exchange(target.hello()).answers[0].welcome.session for _ in range(3)]
    assert len(set(names)) == 3


def test_a_second_hello_is_refused(target: Target) -> None:
    assert_refused(target.exchange(target.hello(), target.hello()), PRECONDITION, after=["welcome"])


def test_a_second_hello_in_the_middle_of_an_episode_is_refused(target: Target) -> None:
    ended = target.exchange(target.hello(), target.start(1), target.hello(), target.observation(1, 0))
    assert_refused(ended, PRECONDITION, after=["welcome", "episode_started"])


@pytest.mark.parametrize("version", [0, PROTOCOL_VERSION + 1, 2**32 - 1])
def test_another_protocol_version_is_refused_and_named(target: Target, version: int) -> None:
    details = assert_refused(target.exchange(target.hello(protocol=version)), PRECONDITION)
    assert str(version) in details
    assert str(PROTOCOL_VERSION) in details


def test_a_missing_observation_is_refused_with_both_sides(target: Target) -> None:
    need = needing_observations(target)
    poor = without(target.offer, need.name)
    poor.observations.add(name="compliance.other_camera", dtype=pb.DTYPE_UINT8, shape=[123, 45, 3])
    details = assert_refused(target.exchange(target.hello(poor)), PRECONDITION)
    assert need.name in details, "what the policy needs is named"
    assert "compliance.other_camera" in details, "what was offered is named, so that a wrong name is seen"
    assert "123" in details, "with its shape"
    for other in target.description.needs.observations:
        assert other.name in details, "the table is whole, not only its first difference"


def test_a_wrong_type_is_refused_where_the_policy_has_one(target: Target) -> None:
    need = needing_observations(target)
    other = pb.DTYPE_INT16 if need.dtype != pb.DTYPE_INT16 else pb.DTYPE_INT32
    ended = target.exchange(target.hello(changed(target.offer, need.name, dtype=other)))
    if need.dtype == pb.DTYPE_UNSPECIFIED:
        assert ended.kinds == ["welcome"]
        assert ended.answers[0].welcome.needs.observations[0].dtype == other
    else:
        assert need.name in assert_refused(ended, PRECONDITION)


def test_a_wrong_shape_is_refused_where_the_policy_has_one(target: Target) -> None:
    need = needing_observations(target)
    offered = next(spec for spec in target.offer.observations if spec.name == need.name)
    shape = [*offered.shape, 1]
    ended = target.exchange(target.hello(changed(target.offer, need.name, shape=shape)))
    if need.any_shape:
        assert ended.kinds == ["welcome"]
        assert list(ended.answers[0].welcome.needs.observations[0].shape) == shape
    else:
        assert need.name in assert_refused(ended, PRECONDITION)


def test_a_wrong_action_size_is_refused_where_the_policy_has_one(target: Target) -> None:
    size = len(target.offer.action_low) + 1
    wider = pb.Offer(observations=target.offer.observations, action_low=[-1.0] * size, action_high=[1.0] * size)
    ended = target.exchange(target.hello(wider))
    if target.description.needs.action_dim == 0:
        assert ended.answers[0].welcome.needs.action_dim == size
    else:
        details = assert_refused(ended, PRECONDITION)
        assert str(size) in details
        assert str(target.description.needs.action_dim) in details


def test_action_bounds_of_different_lengths_are_refused(target: Target) -> None:
    crooked = pb.Offer()
    crooked.CopyFrom(target.offer)
    crooked.action_high.append(1.0)
    assert_refused(target.exchange(target.hello(crooked)), PRECONDITION)


def test_an_offer_with_an_unknown_type_is_refused(target: Target) -> None:
    offer = pb.Offer()
    offer.CopyFrom(target.offer)
    offer.observations.add(name="compliance.odd", dtype=99, shape=[1])  # type: ignore[arg-type]
    ended = target.exchange(target.hello(offer))
    assert ended.kinds == []
    assert ended.code in (PRECONDITION, grpc.StatusCode.INVALID_ARGUMENT)
    assert "99" in ended.details
    target.assert_well()


@pytest.mark.parametrize("open_part", ["type", "shape", "axis"])
def test_an_offer_must_be_definite(target: Target, open_part: str) -> None:
    """Only a need may leave things open: with an open offer the welcome could not say what to send."""
    need = needing_observations(target)
    offer = pb.Offer()
    offer.CopyFrom(target.offer)
    spec = next(spec for spec in offer.observations if spec.name == need.name)
    if open_part == "type":
        spec.dtype = pb.DTYPE_UNSPECIFIED
    elif open_part == "shape":
        spec.any_shape = True
        del spec.shape[:]
    else:
        spec.shape[0] = -1
    ended = target.exchange(target.hello(offer))
    assert ended.kinds == []
    assert ended.code in (PRECONDITION, grpc.StatusCode.INVALID_ARGUMENT)
    assert need.name in ended.details
    target.assert_well()

"""Rule 1 of the contract: the first message is a hello; what does not fit is refused with the exact difference."""

from __future__ import annotations

from typing import Final

import grpc

from sparring.policy_server.compliance.wire import Target, expect_answers, expect_named, expect_refused
from sparring.protos import PROTOCOL_VERSION
from sparring.protos import policy_pb2 as pb
from sparring.protos.limits import MAX_ACTION_DIM, MAX_HELLO_BYTES, MAX_NAME, MAX_OBSERVATIONS
from sparring.protos.rules import NotApplicable, expect

PRECONDITION: Final = grpc.StatusCode.FAILED_PRECONDITION


def a_hello_is_answered_with_a_welcome(target: Target) -> None:
    """A hello is answered with a welcome, which has the policy's description and a session."""
    ended = target.exchange(target.hello())
    expect_answers(ended, "welcome")
    welcome = ended.answers[0].welcome
    said = pb.PolicyDescription()
    said.CopyFrom(target.description)
    for description in (said, welcome.policy):  # the program is long: only Describe has to tell of it
        description.ClearField("program")
    expect(welcome.policy == said, "the welcome's policy is not what Describe says.")
    expect(welcome.policy.protocol == PROTOCOL_VERSION, f"the protocol is {welcome.policy.protocol}.")
    expect(welcome.session, "the session has no name.")


def the_welcome_settles_what_was_open(target: Target) -> None:
    """The welcome settles everything that was open: types, shapes, the size of actions."""
    needs = _welcome(target, target.offer).needs
    offered = {spec.name: spec for spec in target.offer.observations}
    wanted = {spec.name for spec in target.description.needs.observations}
    expect({spec.name for spec in needs.observations} == wanted, f"it asks for others than {', '.join(wanted)}.")
    for spec in needs.observations:
        expect(spec == offered[spec.name], f"it asks for {spec.name!r} otherwise than it was offered.")
    expect(needs.action_dim == len(target.offer.action_low), f"it says action_dim={needs.action_dim}.")
    expect(needs.chunk_length == target.description.needs.chunk_length >= 1, f"chunk_length={needs.chunk_length}.")
    expect(needs.history == target.description.needs.history >= 1, f"history={needs.history}.")


def more_than_is_needed_is_not_asked_for(target: Target) -> None:
    """What is offered beyond the needs is not asked for."""
    generous = _copy(target.offer)
    generous.observations.add(name="compliance.unheard_of", dtype=pb.DTYPE_UINT8, shape=[2, 2])
    asked = {spec.name for spec in _welcome(target, generous).needs.observations}
    expect("compliance.unheard_of" not in asked, "it asks for an observation that its policy does not need.")


def sessions_have_names_of_their_own(target: Target) -> None:
    """Every session has a name of its own."""
    names = [_welcome(target, target.offer).session for _ in range(3)]
    expect(len(set(names)) == 3, f"three sessions are called {', '.join(names)}.")


def a_second_hello_is_refused(target: Target) -> None:
    """A second hello is refused, at once or in the middle of an episode."""
    expect_refused(target.exchange(target.hello(), target.hello()), PRECONDITION, after=["welcome"])
    ended = target.exchange(target.hello(), target.start(1), target.hello(), target.observation(1, 0))
    expect_refused(ended, PRECONDITION, after=["welcome", "episode_started"], when="a hello in an episode")


def another_protocol_version_is_refused(target: Target) -> None:
    """Another protocol version is refused, and both are named."""
    for version in (0, PROTOCOL_VERSION + 1, 2**32 - 1):
        details = expect_refused(target.exchange(target.hello(protocol=version)), PRECONDITION, when=f"{version}")
        expect_named(str(version), details)
        expect_named(str(PROTOCOL_VERSION), details)


def a_missing_observation_is_refused(target: Target) -> None:
    """A missing observation is refused with both sides: all that is needed, all that was offered, with shapes."""
    need = _a_need(target)
    kept = [spec for spec in target.offer.observations if spec.name != need.name]
    poor = pb.Offer(observations=kept, action_low=target.offer.action_low, action_high=target.offer.action_high)
    poor.observations.add(name="compliance.other_camera", dtype=pb.DTYPE_UINT8, shape=[123, 45, 3])
    details = expect_refused(target.exchange(target.hello(poor)), PRECONDITION)
    for named in ("compliance.other_camera", "123", *(spec.name for spec in target.description.needs.observations)):
        expect_named(named, details)


def a_wrong_type_is_refused(target: Target) -> None:
    """A wrong type is refused where the policy has one, and taken where it has none."""
    need = _a_need(target)
    other = pb.DTYPE_INT16 if need.dtype != pb.DTYPE_INT16 else pb.DTYPE_INT32
    offer = _copy(target.offer)
    _spec(offer, need.name).dtype = other
    if need.dtype == pb.DTYPE_UNSPECIFIED:
        asked = _welcome(target, offer).needs.observations[0].dtype
        expect(asked == other, "the welcome asks for another type than was offered.")
    else:
        expect_named(need.name, expect_refused(target.exchange(target.hello(offer)), PRECONDITION))


def a_wrong_shape_is_refused(target: Target) -> None:
    """A wrong shape is refused where the policy has one, and taken where it has none."""
    need = _a_need(target)
    offer = _copy(target.offer)
    _spec(offer, need.name).shape.append(1)
    if need.any_shape:
        asked = _welcome(target, offer).needs.observations[0].shape
        expect(asked == _spec(offer, need.name).shape, "the welcome asks for another shape than was offered.")
    else:
        expect_named(need.name, expect_refused(target.exchange(target.hello(offer)), PRECONDITION))


def a_wrong_action_size_is_refused(target: Target) -> None:
    """A wrong size of actions is refused where the policy has one, with both sizes, and taken where it has none."""
    size = len(target.offer.action_low) + 1
    wider = pb.Offer(observations=target.offer.observations, action_low=[-1.0] * size, action_high=[1.0] * size)
    needed = target.description.needs.action_dim
    if needed == 0:
        asked = _welcome(target, wider).needs.action_dim
        expect(asked == size, f"the welcome says action_dim={asked} to an offer of {size}.")
    else:
        details = expect_refused(target.exchange(target.hello(wider)), PRECONDITION)
        expect_named(str(size), details)
        expect_named(str(needed), details)


def crooked_action_bounds_are_refused(target: Target) -> None:
    """Action bounds of different lengths are refused."""
    crooked = _copy(target.offer)
    crooked.action_high.append(1.0)
    expect_refused(target.exchange(target.hello(crooked)), PRECONDITION)


def an_unknown_type_is_refused(target: Target) -> None:
    """An offer with a type that there is not is refused, and the type is named."""
    offer = _copy(target.offer)
    offer.observations.add(name="compliance.odd", dtype=99, shape=[1])
    _refused_as_an_offer(target, offer, "99")


def an_offer_must_be_definite(target: Target) -> None:
    """An offer that leaves a type, a shape or an axis open is refused: only a need may."""
    need = _a_need(target)
    for part in ("type", "shape", "axis"):
        offer = _copy(target.offer)
        spec = _spec(offer, need.name)
        if part == "type":
            spec.dtype = pb.DTYPE_UNSPECIFIED
        elif part == "shape":
            spec.any_shape = True
            del spec.shape[:]
        else:
            spec.shape[0] = -1
        _refused_as_an_offer(target, offer, need.name)


def an_offer_beyond_all_measure_is_refused(target: Target) -> None:
    """An offer beyond the bounds of the contract is refused, and whoever has a session is answered meanwhile."""
    many, long, wide, deep = (_copy(target.offer) for _ in range(4))
    for number in range(MAX_OBSERVATIONS + 1):
        many.observations.add(name=f"compliance.{number}", dtype=pb.DTYPE_UINT8, shape=[1])
    long.observations.add(name="n" * (MAX_NAME + 1), dtype=pb.DTYPE_UINT8, shape=[1])
    wide.action_low.extend([0.0] * MAX_ACTION_DIM)
    wide.action_high.extend([0.0] * MAX_ACTION_DIM)
    deep.observations.add(name="compliance.deep", dtype=pb.DTYPE_UINT8, shape=[1] * 99)
    with target.open() as bystander:
        bystander.ask(target.hello())
        bystander.ask(target.start(1))
        for step, offer in enumerate((many, long, wide, deep)):
            expect_refused(target.exchange(target.hello(offer)), PRECONDITION)
            expect(bystander.ask(target.observation(1, step)).chunk.step == step, "another session is disturbed by it.")


def a_hello_that_is_too_long_is_refused(target: Target) -> None:
    """A hello of more bytes than the contract allows is refused, whatever they are."""
    hello = target.hello()
    hello.client = "c" * MAX_HELLO_BYTES
    ended = target.exchange(hello)
    expect_refused(ended, ended.code if ended.code == PRECONDITION else grpc.StatusCode.INVALID_ARGUMENT)
    target.expect_well()


RULES: Final = (
    a_hello_is_answered_with_a_welcome,
    the_welcome_settles_what_was_open,
    more_than_is_needed_is_not_asked_for,
    sessions_have_names_of_their_own,
    a_second_hello_is_refused,
    another_protocol_version_is_refused,
    a_missing_observation_is_refused,
    a_wrong_type_is_refused,
    a_wrong_shape_is_refused,
    a_wrong_action_size_is_refused,
    crooked_action_bounds_are_refused,
    an_unknown_type_is_refused,
    an_offer_must_be_definite,
    an_offer_beyond_all_measure_is_refused,
    a_hello_that_is_too_long_is_refused,
)


def _a_need(target: Target) -> pb.TensorSpec:
    if not target.description.needs.observations:
        raise NotApplicable("this policy looks at nothing.")
    return target.description.needs.observations[0]


def _copy(offer: pb.Offer) -> pb.Offer:
    copy = pb.Offer()
    copy.CopyFrom(offer)
    return copy


def _spec(offer: pb.Offer, name: str) -> pb.TensorSpec:
    return next(spec for spec in offer.observations if spec.name == name)


def _welcome(target: Target, offer: pb.Offer) -> pb.Welcome:
    ended = target.exchange(target.hello(offer))
    expect_answers(ended, "welcome")
    return ended.answers[0].welcome


def _refused_as_an_offer(target: Target, offer: pb.Offer, naming: str) -> None:
    ended = target.exchange(target.hello(offer))
    code = ended.code if ended.code == grpc.StatusCode.INVALID_ARGUMENT else PRECONDITION
    expect_named(naming, expect_refused(ended, code))
    target.expect_well()

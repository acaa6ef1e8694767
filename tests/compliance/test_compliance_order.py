"""Rules 2 to 4: episodes and observations come in order, answers name what they answer, all else ends the stream."""

from __future__ import annotations

import math
import struct

import grpc
import pytest
from compliance_wire import ELEMENT_BYTES, FLOATS, Target, assert_refused

from sparring.protos import policy_pb2 as pb

PRECONDITION = grpc.StatusCode.FAILED_PRECONDITION


def test_an_episode_start_is_acknowledged_with_its_number(target: Target) -> None:
    with target.open() as stream:
        assert stream.ask(target.hello()).WhichOneof("message") == "welcome"
        for number in (1, 2, 40, 2**40):
            answer = stream.ask(target.start(number))
            assert answer.WhichOneof("message") == "episode_started"
            assert answer.episode_started.number == number


def test_an_episode_start_before_the_hello_is_refused(target: Target) -> None:
    assert_refused(target.exchange(target.start(1)), PRECONDITION)


def test_an_observation_before_the_hello_is_refused(target: Target) -> None:
    assert_refused(target.exchange(target.observation(1, 0)), PRECONDITION)


def test_an_observation_before_the_first_episode_is_refused(target: Target) -> None:
    for episode in (0, 1):
        assert_refused(target.exchange(target.hello(), target.observation(episode, 0)), PRECONDITION, after=["welcome"])


@pytest.mark.parametrize("episode", [0, 4, 6])
def test_an_observation_of_another_episode_is_refused(target: Target, episode: int) -> None:
    ended = target.exchange(target.hello(), target.start(4), target.start(5), target.observation(episode, 0))
    assert_refused(ended, PRECONDITION, after=["welcome", "episode_started", "episode_started"])


@pytest.mark.parametrize("step", [0, 6, 7])
def test_a_step_that_does_not_go_up_is_refused(target: Target, step: int) -> None:
    ended = target.exchange(target.hello(), target.start(1), target.observation(1, 7), target.observation(1, step))
    assert_refused(ended, PRECONDITION, after=["welcome", "episode_started", "chunk"])


@pytest.mark.parametrize("number", [0, 1, 2, 3])
def test_an_episode_number_that_does_not_go_up_is_refused(target: Target, number: int) -> None:
    ended = target.exchange(target.hello(), target.start(3), target.start(number))
    assert_refused(ended, PRECONDITION, after=["welcome", "episode_started"])


def test_an_episode_number_of_zero_is_refused(target: Target) -> None:
    assert_refused(target.exchange(target.hello(), target.start(0)), PRECONDITION, after=["welcome"])


def test_a_message_without_content_is_refused(target: Target) -> None:
    call = target.stub.Rollout(iter([pb.RolloutRequest()]), timeout=10.0)
    with pytest.raises(grpc.RpcError):
        next(call)
    assert call.code() == PRECONDITION


def test_a_chunk_names_the_observation_it_answers(target: Target) -> None:
    with target.open() as stream:
        stream.ask(target.hello())
        for episode, steps in ((1, (0, 1, 10)), (2, (3, 2**40)), (9, (0,))):
            stream.ask(target.start(episode))
            for step in steps:
                answer = stream.ask(target.observation(episode, step))
                assert answer.WhichOneof("message") == "chunk"
                assert (answer.chunk.episode, answer.chunk.step) == (episode, step)


def test_a_chunk_has_as_many_actions_as_was_said_and_all_its_bytes(target: Target) -> None:
    with target.open() as stream:
        needs = stream.ask(target.hello()).welcome.needs
        stream.ask(target.start(1))
        for step in range(8):
            chunk = stream.ask(target.observation(1, step)).chunk
            length, size = chunk.actions.shape
            assert 1 <= length <= needs.chunk_length
            assert size == needs.action_dim
            assert chunk.actions.dtype in ELEMENT_BYTES
            assert len(chunk.actions.raw) == length * size * ELEMENT_BYTES[chunk.actions.dtype]
            if kind := FLOATS.get(chunk.actions.dtype):
                assert all(map(math.isfinite, struct.unpack(f"<{length * size}{kind}", chunk.actions.raw)))
            assert chunk.batch_size >= 1
            assert chunk.queue_seconds >= 0
            assert chunk.inference_seconds >= 0


def test_pipelined_observations_are_answered_in_order(target: Target) -> None:
    steps = list(range(0, 300, 3))
    ended = target.exchange(target.hello(), target.start(1), *(target.observation(1, step) for step in steps))
    assert ended.code == grpc.StatusCode.OK
    assert ended.kinds == ["welcome", "episode_started", *["chunk"] * len(steps)]
    assert [answer.chunk.step for answer in ended.answers[2:]] == steps


def test_a_stream_outlives_many_episodes(target: Target) -> None:
    with target.open() as stream:
        stream.ask(target.hello())
        for number in range(1, 101):
            assert stream.ask(target.start(number, seed=number)).episode_started.number == number
            for step in (0, 5):
                chunk = stream.ask(target.observation(number, step)).chunk
                assert (chunk.episode, chunk.step) == (number, step)
        assert stream.finish().code == grpc.StatusCode.OK


def test_an_episode_may_end_without_an_observation(target: Target) -> None:
    ended = target.exchange(target.hello(), target.start(1), target.start(2), target.observation(2, 0))
    assert ended.kinds == ["welcome", "episode_started", "episode_started", "chunk"]
    assert ended.answers[-1].chunk.episode == 2


def test_a_stream_without_messages_ends_well(target: Target) -> None:
    assert target.exchange().code == grpc.StatusCode.OK


def test_after_a_failed_episode_start_no_observation_is_answered(target: Target) -> None:
    """A peer's bug: the reply to the observation after a failed start was taken for another's, and all later ones too.

    Here everything is sent without waiting, as a client would that does not notice the failure. Nothing
    may come back after the failure: not for the episode that failed to start, nor for the one before it.
    """
    observations = [target.observation(episode, step) for step in (1, 2) for episode in (2, 1, 3)]
    ended = target.exchange(
        target.hello(),
        target.start(2),
        target.observation(2, 0),
        target.start(1),  # numbers only go up: this start fails
        *observations,
        target.start(3),
        target.observation(3, 0),
    )
    assert_refused(ended, PRECONDITION, after=["welcome", "episode_started", "chunk"])
    assert (ended.answers[-1].chunk.episode, ended.answers[-1].chunk.step) == (2, 0)


def test_the_same_seed_gives_the_same_actions_and_streams_do_not_mix(target: Target) -> None:
    """What a session answers depends on that session alone, also while another one is being served."""
    with target.open() as first, target.open() as second:
        assert first.ask(target.hello()).WhichOneof("message") == "welcome"
        assert second.ask(target.hello()).WhichOneof("message") == "welcome"
        first.ask(target.start(1, seed=1))
        second.ask(target.start(8, seed=2))
        second.ask(target.start(9, seed=1))
        actions = []
        for step in range(5):
            first.send(target.observation(1, step))
            second.send(target.observation(9, step))
            one, two = first.receive().chunk, second.receive().chunk
            assert (one.episode, two.episode) == (1, 9)
            assert one.step == two.step == step
            assert one.actions == two.actions
            actions.append(one.actions)
    again = target.exchange(target.hello(), target.start(1, seed=1), *(target.observation(1, s) for s in range(5)))
    assert [answer.chunk.actions for answer in again.answers[2:]] == actions


def test_a_stream_that_breaks_the_rules_does_not_disturb_another(target: Target) -> None:
    with target.open() as good, target.open() as bad:
        good.ask(target.hello())
        good.ask(target.start(1))
        good.ask(target.observation(1, 0))
        bad.ask(target.hello())
        bad.ask(target.start(1))
        bad.send(target.observation(2, 0))
        assert bad.end().code == PRECONDITION
        chunk = good.ask(target.observation(1, 1)).chunk
        assert (chunk.episode, chunk.step) == (1, 1)

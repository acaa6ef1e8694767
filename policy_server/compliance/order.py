"""Rules 2 to 4: episodes and observations come in order, answers name what they answer, all else ends the stream."""

from __future__ import annotations

import math
import struct
from typing import Final

import grpc

from sparring.policy_server.compliance.wire import (
    ELEMENT_BYTES,
    FLOATS,
    Stream,
    Target,
    expect_answers,
    expect_refused,
)
from sparring.protos import policy_pb2 as pb
from sparring.protos.rules import broken, expect

PRECONDITION: Final = grpc.StatusCode.FAILED_PRECONDITION


def an_episode_start_is_acknowledged(target: Target) -> None:
    """The start of an episode is acknowledged with its number."""
    with target.open() as stream:
        _welcomed(target, stream)
        for number in (1, 2, 40, 2**40):
            _started(target, stream, number)


def nothing_comes_before_the_hello(target: Target) -> None:
    """An episode or an observation before the hello is refused."""
    expect_refused(target.exchange(target.start(1)), PRECONDITION, when="an episode before the hello")
    expect_refused(target.exchange(target.observation(1, 0)), PRECONDITION, when="an observation before the hello")


def an_observation_without_an_episode_is_refused(target: Target) -> None:
    """An observation before the first episode is refused."""
    for episode in (0, 1):
        ended = target.exchange(target.hello(), target.observation(episode, 0))
        expect_refused(ended, PRECONDITION, after=["welcome"])


def an_observation_of_another_episode_is_refused(target: Target) -> None:
    """An observation of another episode than the last that was started is refused."""
    for episode in (0, 4, 6):
        ended = target.exchange(target.hello(), target.start(4), target.start(5), target.observation(episode, 0))
        after = ["welcome", "episode_started", "episode_started"]
        expect_refused(ended, PRECONDITION, after=after, when=f"episode {episode} after 4 and 5")


def steps_go_up(target: Target) -> None:
    """A step that does not go up is refused."""
    for step in (0, 6, 7):
        ended = target.exchange(target.hello(), target.start(1), target.observation(1, 7), target.observation(1, step))
        expect_refused(ended, PRECONDITION, after=["welcome", "episode_started", "chunk"], when=f"step {step} after 7")


def episode_numbers_go_up(target: Target) -> None:
    """An episode number that does not go up, or is zero, is refused."""
    for number in (0, 1, 2, 3):
        ended = target.exchange(target.hello(), target.start(3), target.start(number))
        expect_refused(ended, PRECONDITION, after=["welcome", "episode_started"], when=f"episode {number} after 3")
    expect_refused(target.exchange(target.hello(), target.start(0)), PRECONDITION, after=["welcome"], when="episode 0")


def a_message_without_content_is_refused(target: Target) -> None:
    """A message without content is refused."""
    call = target.stub.Rollout(iter([pb.RolloutRequest()]), timeout=target.way.deadline)
    try:
        next(call)
    except grpc.RpcError as error:
        expect(error.code() == PRECONDITION, f"it ends with {error.code().name}.")
    else:
        broken("it is answered.")


def a_chunk_names_what_it_answers(target: Target) -> None:
    """A chunk names the observation that it answers."""
    with target.open() as stream:
        _welcomed(target, stream)
        for episode, steps in ((1, (0, 1, 10)), (2, (3, 2**40)), (9, (0,))):
            _started(target, stream, episode)
            for step in steps:
                _chunk(target, stream, episode, step)


def a_chunk_is_whole_and_finite(target: Target) -> None:
    """A chunk has as many actions as was said, all its bytes, finite numbers, and tells how it was made."""
    with target.open() as stream:
        needs = _welcomed(target, stream).needs
        _started(target, stream, 1)
        for step in range(8):
            chunk = _chunk(target, stream, 1, step)
            shape, dtype = list(chunk.actions.shape), chunk.actions.dtype
            right = len(shape) == 2 and 1 <= shape[0] <= needs.chunk_length and shape[1] == needs.action_dim
            expect(right, f"its shape is {shape}; chunk_length is {needs.chunk_length}, action_dim {needs.action_dim}.")
            expect(dtype in ELEMENT_BYTES, f"its type is {dtype}.")
            size = math.prod(shape)
            expect(len(chunk.actions.raw) == size * ELEMENT_BYTES[dtype], f"it has {len(chunk.actions.raw)} bytes.")
            if kind := FLOATS.get(dtype):
                finite = all(map(math.isfinite, struct.unpack(f"<{size}{kind}", chunk.actions.raw)))
                expect(finite, f"at step {step}, an action is not finite.")
            numbers = (chunk.batch_size, chunk.queue_seconds, chunk.inference_seconds)
            expect(numbers[0] >= 1 and min(numbers[1:]) >= 0, f"batch size and seconds are {numbers}.")


def pipelined_observations_are_answered_in_order(target: Target) -> None:
    """Observations that are sent without waiting are answered in order."""
    steps = list(range(0, 300, 3))
    ended = target.exchange(target.hello(), target.start(1), *(target.observation(1, step) for step in steps))
    expect_answers(ended, "welcome", "episode_started", *["chunk"] * len(steps))
    expect([answer.chunk.step for answer in ended.answers[2:]] == steps, "the chunks come in another order.")


def a_stream_outlives_many_episodes(target: Target) -> None:
    """A stream outlives many episodes."""
    with target.open() as stream:
        _welcomed(target, stream)
        for number in range(1, 101):
            _started(target, stream, number)
            for step in (0, 5):
                _chunk(target, stream, number, step)
        expect_answers(stream.finish())


def an_episode_may_end_without_an_observation(target: Target) -> None:
    """An episode may end without an observation."""
    ended = target.exchange(target.hello(), target.start(1), target.start(2), target.observation(2, 0))
    expect_answers(ended, "welcome", "episode_started", "episode_started", "chunk")
    expect(ended.answers[-1].chunk.episode == 2, f"the chunk is of episode {ended.answers[-1].chunk.episode}.")


def a_stream_without_messages_ends_well(target: Target) -> None:
    """A stream without messages ends well."""
    expect_answers(target.exchange())


def after_a_failed_start_nothing_is_answered(target: Target) -> None:
    """After an episode that failed to start no observation is answered: not of it, nor of the one before.

    Everything is sent without waiting, as a client would that does not notice the failure.
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
    expect_refused(ended, PRECONDITION, after=["welcome", "episode_started", "chunk"])
    chunk = ended.answers[-1].chunk
    expect((chunk.episode, chunk.step) == (2, 0), f"the chunk is of episode {chunk.episode}, step {chunk.step}.")


def sessions_do_not_mix(target: Target) -> None:
    """What a session answers depends on that session alone: the same seed gives the same actions, beside others."""
    with target.open() as first, target.open() as second:
        _welcomed(target, first)
        _welcomed(target, second)
        first.ask(target.start(1, seed=1))
        second.ask(target.start(8, seed=2))
        second.ask(target.start(9, seed=1))
        actions = []
        for step in range(5):
            first.send(target.observation(1, step))
            second.send(target.observation(9, step))
            one, two = first.receive().chunk, second.receive().chunk
            named = (one.episode, one.step, two.episode, two.step)
            expect(named == (1, step, 9, step), f"the chunks of two sessions are mixed up at step {step}: {named}.")
            expect(one.actions == two.actions, f"two sessions with one seed get different actions at step {step}.")
            actions.append(one.actions)
    again = target.exchange(target.hello(), target.start(1, seed=1), *(target.observation(1, s) for s in range(5)))
    expect(
        [answer.chunk.actions for answer in again.answers[2:]] == actions, "the same seed gives other actions later."
    )


def a_stream_that_breaks_the_rules_disturbs_no_other(target: Target) -> None:
    """A stream that breaks the rules does not disturb another."""
    with target.open() as good, target.open() as bad:
        _welcomed(target, good)
        _started(target, good, 1)
        _chunk(target, good, 1, 0)
        bad.ask(target.hello())
        bad.ask(target.start(1))
        bad.send(target.observation(2, 0))
        expect_refused(bad.end(), PRECONDITION)
        _chunk(target, good, 1, 1)


RULES: Final = (
    an_episode_start_is_acknowledged,
    nothing_comes_before_the_hello,
    an_observation_without_an_episode_is_refused,
    an_observation_of_another_episode_is_refused,
    steps_go_up,
    episode_numbers_go_up,
    a_message_without_content_is_refused,
    a_chunk_names_what_it_answers,
    a_chunk_is_whole_and_finite,
    pipelined_observations_are_answered_in_order,
    a_stream_outlives_many_episodes,
    an_episode_may_end_without_an_observation,
    a_stream_without_messages_ends_well,
    after_a_failed_start_nothing_is_answered,
    sessions_do_not_mix,
    a_stream_that_breaks_the_rules_disturbs_no_other,
)


def _welcomed(target: Target, stream: Stream) -> pb.Welcome:
    answer = stream.ask(target.hello())
    expect(answer.WhichOneof("message") == "welcome", f"the hello is answered with {answer.WhichOneof('message')}.")
    return answer.welcome


def _started(target: Target, stream: Stream, number: int) -> None:
    answer = stream.ask(target.start(number, seed=number % 2**31))
    kind, said = answer.WhichOneof("message"), answer.episode_started.number
    expect(
        kind == "episode_started" and said == number,
        f"the start of episode {number} is answered with {kind} {said}.",
    )


def _chunk(target: Target, stream: Stream, episode: int, step: int) -> pb.Chunk:
    answer = stream.ask(target.observation(episode, step))
    kind, chunk = answer.WhichOneof("message"), answer.chunk
    expect(
        kind == "chunk" and (chunk.episode, chunk.step) == (episode, step),
        f"episode {episode}, step {step} is answered with {kind} of episode {chunk.episode}, step {chunk.step}.",
    )
    return chunk

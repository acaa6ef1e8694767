"""A session by itself: what it lets the policy see, and what becomes of its memory when a start fails.

The rules of order themselves are in tests/compliance, over the wire.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparring.policy_server.batcher import Batcher
from sparring.policy_server.errors import PolicyFailed
from sparring.policy_server.policies.base import Array, Instruction, Observation, Policy, PolicySpec, TensorSpec
from sparring.policy_server.session import Draining, OutOfOrder, SessionHandler
from sparring.protos import PROTOCOL_VERSION
from sparring.protos import policy_pb2 as pb
from sparring.protos.spec import Offer, SpecMismatch
from sparring.protos.tensor import TensorError, decode, encode
from sparring.protos.tracebacks import Tracebacks, references

OFFER = Offer(
    {"camera": TensorSpec("uint8", (2, 2, 3)), "joints": TensorSpec("float32", (4,))},
    action_low=(-1.0, -2.0),
    action_high=(1.0, 2.0),
    control_hz=20.0,
)
HELLO = pb.RolloutRequest(
    hello=pb.Hello(protocol=PROTOCOL_VERSION, benchmark="bench", client="test", offer=OFFER.to_message())
)


class Recording(Policy):
    """Remembers all it was told; cannot start episodes whose task is named "bad"."""

    spec = PolicySpec(["joints"], chunk_length=2)

    def __init__(self, history: int = 1) -> None:
        self.spec = PolicySpec(["joints"], chunk_length=2, history=history)
        self.started: list[tuple[Instruction, int]] = []
        self.seen: list[tuple[Observation, Any]] = []

    def new_session(self, task: Instruction, seed: int) -> str:
        self.started.append((task, seed))
        if task.name == "bad":
            raise RuntimeError("no")
        return f"memory of {task.name}"

    def act(self, observations: Sequence[Observation], states: Sequence[Any]) -> Sequence[Array]:
        self.seen += list(zip(observations, states, strict=True))
        return [np.full((1, 2), o.step, np.float64) for o in observations]


def start(number: int, task: str = "good", **more: Any) -> pb.RolloutRequest:
    return pb.RolloutRequest(episode_start=pb.EpisodeStart(number=number, task=task, **more))


def observation(episode: int, step: int, joints: Any = (0, 0, 0, 0)) -> pb.RolloutRequest:
    tensors = {"joints": encode(np.asarray(joints, np.float32))}
    return pb.RolloutRequest(observation=pb.Observation(episode=episode, step=step, tensors=tensors))


def in_session(policy: Policy, work: Callable[[SessionHandler], Awaitable[None]]) -> None:
    async def body() -> None:
        batcher = Batcher(policy)
        try:
            await asyncio.wait_for(
                work(SessionHandler("session-1", pb.PolicyDescription(), lambda _: policy.spec, batcher)), 60
            )
        finally:
            await batcher.close()

    asyncio.run(body())


def test_the_policy_is_told_the_sentence_the_task_the_index_the_seed_and_the_action_space() -> None:
    policy = Recording()

    async def work(session: SessionHandler) -> None:
        await session.answer(HELLO)
        await session.answer(start(1, "reach-v3", index=4, seed=2**63 + 5, instruction="Reach the goal"))

    in_session(policy, work)
    ((task, seed),) = policy.started
    assert task == "Reach the goal"
    assert (task.benchmark, task.name, task.episode, seed) == ("bench", "reach-v3", 4, 2**63 + 5)
    assert task.offer == OFFER


def test_the_policy_sees_what_was_sent_with_its_step_and_its_own_memory() -> None:
    policy = Recording()

    async def work(session: SessionHandler) -> None:
        await session.answer(HELLO)
        await session.answer(start(1, "first"))
        await session.answer(observation(1, 5, [1, 2, 3, 4]))
        await session.answer(start(2, "second"))
        await session.answer(observation(2, 0, [5, 6, 7, 8]))

    in_session(policy, work)
    (one, memory_one), (two, memory_two) = policy.seen
    assert (one["joints"].tolist(), one.step, one.task.name, memory_one) == (
        [1.0, 2.0, 3.0, 4.0],
        5,
        "first",
        "memory of first",
    )
    assert (two["joints"].tolist(), two.step, two.task.name, memory_two) == (
        [5.0, 6.0, 7.0, 8.0],
        0,
        "second",
        "memory of second",
    )
    assert dict(one).keys() == {"joints"}
    assert not one["joints"].flags.writeable


def test_a_failed_start_leaves_no_episode_to_answer_for() -> None:
    """A peer's bug: after a failed start, observations were answered from the episode before."""
    policy = Recording()

    async def work(session: SessionHandler) -> None:
        await session.answer(HELLO)
        await session.answer(start(1))
        await session.answer(observation(1, 0))
        with pytest.raises(PolicyFailed):
            await session.answer(start(2, "bad"))
        for late in (observation(1, 1), observation(2, 0), observation(2, 1)):
            with pytest.raises(OutOfOrder):
                await session.answer(late)
        with pytest.raises(OutOfOrder):
            await session.answer(start(2))
        await session.answer(start(3))
        chunk = (await session.answer(observation(3, 9))).chunk
        assert (chunk.episode, chunk.step) == (3, 9)
        assert decode(chunk.actions).tolist() == [[9.0, 9.0]]

    in_session(policy, work)
    assert [(o.step, o.task.name) for o, _ in policy.seen] == [(0, "good"), (9, "good")]


def test_an_observation_that_is_refused_never_reaches_the_policy() -> None:
    policy = Recording()

    async def work(session: SessionHandler) -> None:
        await session.answer(HELLO)
        await session.answer(start(1))
        for wrong in (np.zeros(3, np.float32), np.zeros(4, np.float64), np.zeros((1, 4), np.float32)):
            message = pb.Observation(episode=1, step=0, tensors={"joints": encode(wrong)})
            with pytest.raises(TensorError, match="joints"):
                await session.answer(pb.RolloutRequest(observation=message))
            session._step = -1

    in_session(policy, work)
    assert policy.seen == []


def test_with_history_the_leading_axis_is_required() -> None:
    policy = Recording(history=3)

    async def work(session: SessionHandler) -> None:
        welcome = (await session.answer(HELLO)).welcome
        assert welcome.needs.history == 3
        assert list(welcome.needs.observations[0].shape) == [4], "the shape is of one step"
        await session.answer(start(1))
        await session.answer(observation(1, 0, np.arange(12).reshape(3, 4)))
        with pytest.raises(TensorError, match=r"\(3, 4\)"):
            await session.answer(observation(1, 1, np.arange(4)))

    in_session(policy, work)
    assert policy.seen[0][0]["joints"].tolist() == np.arange(12.0).reshape(3, 4).tolist()


def test_while_draining_an_episode_goes_on_but_no_other_begins() -> None:
    async def work(session: SessionHandler) -> None:
        await session.answer(HELLO)
        await session.answer(start(1))
        session.draining = True
        assert (await session.answer(observation(1, 0))).chunk.step == 0
        with pytest.raises(Draining):
            await session.answer(start(2))

    in_session(Recording(), work)


def test_a_refused_hello_does_not_open_the_session() -> None:
    async def work(session: SessionHandler) -> None:
        wrong = pb.RolloutRequest()
        wrong.CopyFrom(HELLO)
        del wrong.hello.offer.observations[:]
        with pytest.raises(Exception, match="not offered"):
            await session.answer(wrong)
        with pytest.raises(OutOfOrder):
            await session.answer(start(1))

    in_session(Recording(), work)


def refusal_of(tmp_path: Path, **asked: Any) -> str:
    """Returns why a policy refuses a session, where what it raises is kept in a folder."""

    async def work() -> str:
        policy = Recording()
        batcher = Batcher(policy)
        asked.setdefault("spec_for", policy.spec_for)
        hello = pb.RolloutRequest()
        hello.CopyFrom(HELLO)
        hello.hello.conditions.SetInParent()
        handler = SessionHandler("s", pb.PolicyDescription(), runner=batcher, tracebacks=Tracebacks(tmp_path), **asked)
        try:
            with pytest.raises(SpecMismatch) as refused:
                await handler.answer(hello)
        finally:
            await batcher.close()
        return refused.value.sentence

    return asyncio.run(work())


def test_what_a_policy_raises_when_it_is_asked_for_its_needs_is_kept_and_ends_the_run(tmp_path: Path) -> None:
    """Nobody tries again: another attempt would be answered in the same way."""

    def spec_for(benchmark: str) -> PolicySpec:
        raise KeyError(benchmark)

    def check_conditions(benchmark: str, conditions: object) -> None:
        raise ZeroDivisionError("of mine")

    for sentence, said, where in (
        (refusal_of(tmp_path, spec_for=spec_for), "the policy's spec_for() raised KeyError: 'bench' (", "spec_for"),
        (
            refusal_of(tmp_path, check_conditions=check_conditions),
            "the policy's check_conditions() raised ZeroDivisionError: of mine (",
            "check_conditions",
        ),
    ):
        assert sentence.startswith(said)
        (name,) = references(sentence)
        (frame,) = [line for line in (tmp_path / name).read_text().splitlines() if line.startswith("  File")]
        assert frame.endswith(f"in {where}")


def test_needs_that_are_none_are_refused(tmp_path: Path) -> None:
    said = refusal_of(tmp_path, spec_for=lambda benchmark: {"camera": 3})
    assert said == "the policy's spec_for() returned dict, not a PolicySpec."

"""Waiting for a fuller batch: not unless told, and never longer than told."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import numpy as np
import pytest

from policy_server.batcher import Answer, Batcher
from policy_server.policies.base import Array, Instruction, Observation, Policy, PolicySpec
from protos.spec import Offer

TASK = Instruction("go", name="go", offer=Offer({}, (-1.0,), (1.0,)))
LONG = 30.0
"""Seconds that no test has: who waits for them fails."""


class Counting(Policy):
    spec = PolicySpec(action_dim=1)

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds

    def act(self, observations: Sequence[Observation], states: Sequence[Any]) -> Sequence[Array]:
        time.sleep(self.seconds)
        return [np.zeros((1, 1)) for _ in observations]


def running(work: Callable[[Batcher], Awaitable[Any]], policy: Policy | None = None, **settings: Any) -> Any:
    async def body() -> Any:
        batcher = Batcher(policy or Counting(), **settings)
        try:
            return await asyncio.wait_for(work(batcher), 10)
        finally:
            await batcher.close()

    return asyncio.run(body())


def row(batcher: Batcher) -> Awaitable[Answer]:
    return batcher.act(Observation({}, TASK), None, action_dim=1)


async def apart(batcher: Batcher, count: int, seconds: float) -> list[Answer]:
    """Rows that arrive one after the other."""
    rows = []
    for _ in range(count):
        rows.append(asyncio.ensure_future(row(batcher)))
        await asyncio.sleep(seconds)
    return list(await asyncio.gather(*rows))


@pytest.mark.parametrize("instant", [False, True])
def test_by_default_nobody_waits(instant: bool) -> None:
    policy = Counting()
    policy.instant = instant
    answers = running(lambda batcher: apart(batcher, 4, 0.02), policy, expected=lambda: 4)
    assert [answer.batch_size for answer in answers] == [1, 1, 1, 1]
    assert max(answer.queue_seconds for answer in answers) < 0.02


@pytest.mark.parametrize("instant", [False, True])
def test_a_delay_fills_the_batch_to_the_episodes_that_are_running(instant: bool) -> None:
    policy = Counting()
    policy.instant = instant
    answers = running(lambda batcher: apart(batcher, 4, 0.02), policy, max_queue_delay=LONG, expected=lambda: 4)
    assert [answer.batch_size for answer in answers] == [4, 4, 4, 4]


def test_a_delay_fills_the_batch_to_max_batch() -> None:
    answers = running(lambda b: apart(b, 4, 0.02), max_batch=2, max_queue_delay=LONG, expected=lambda: 4)
    assert [answer.batch_size for answer in answers] == [2, 2, 2, 2]


def test_a_session_alone_never_waits_for_others_that_are_not_there() -> None:
    answers = running(lambda b: apart(b, 3, 0.01), max_queue_delay=LONG, expected=lambda: 1)
    assert max(answer.queue_seconds for answer in answers) < 0.5


def test_the_wait_ends_when_it_has_lasted_long_enough() -> None:
    async def work(batcher: Batcher) -> list[Answer]:
        first = asyncio.ensure_future(row(batcher))
        await asyncio.sleep(0.1)
        return [await first, await row(batcher)]

    first, second = running(work, max_queue_delay=0.05, expected=lambda: 4)
    for answer in (first, second):
        assert answer.batch_size == 1
        assert 0.045 < answer.queue_seconds < 0.5


def test_what_waited_while_the_policy_was_busy_has_waited() -> None:
    async def work(batcher: Batcher) -> list[Answer]:
        rows = [asyncio.ensure_future(row(batcher))]
        await asyncio.sleep(0.25)  # the first is on its way: nobody joined it for 0.1 s
        rows.append(asyncio.ensure_future(row(batcher)))
        return list(await asyncio.gather(*rows))

    _, second = running(work, Counting(seconds=0.5), max_queue_delay=0.1, expected=lambda: 4)
    assert 0.3 < second.queue_seconds < 0.45, "it waited for the policy, and then not for others"

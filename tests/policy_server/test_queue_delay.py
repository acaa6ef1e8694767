"""Waiting for a fuller batch: not unless told, and never longer than told."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import numpy as np
import pytest
import virtual_time
from virtual_time import VirtualThread

from sparring.policy_server.batcher import Answer, Batcher
from sparring.policy_server.policies.base import Array, Instruction, Observation, Policy, PolicySpec
from sparring.protos.spec import Offer

TASK = Instruction("go", name="go", offer=Offer({}, (-1.0,), (1.0,)))
LONG = 30.0
"""Seconds that no test has: who waits for them fails."""


class Counting(Policy):
    """One that takes its time: for a pass, and for each row of it."""

    spec = PolicySpec(action_dim=1)

    def __init__(self, seconds: float = 0.0, per_row: float = 0.0) -> None:
        self.seconds = seconds
        self.per_row = per_row

    def act(self, observations: Sequence[Observation], states: Sequence[Any]) -> Sequence[Array]:
        virtual_time.clock().now += self.seconds + self.per_row * len(observations)
        return [np.zeros((1, 1)) for _ in observations]


def running(
    work: Callable[[Batcher], Awaitable[Any]], policy: Policy | None = None, *, seconds: float = 10.0, **settings: Any
) -> Any:
    async def body() -> Any:
        batcher = Batcher(policy or Counting(), thread=VirtualThread(virtual_time.clock()), **settings)
        try:
            return await asyncio.wait_for(work(batcher), seconds)
        finally:
            await batcher.close()

    return virtual_time.run(body())


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
def test_without_a_delay_nobody_waits(instant: bool) -> None:
    policy = Counting()
    policy.instant = instant
    answers = running(lambda batcher: apart(batcher, 4, 0.02), policy, expected=lambda: 4)
    assert [answer.batch_size for answer in answers] == [1, 1, 1, 1]
    assert [answer.queue_seconds for answer in answers] == [0, 0, 0, 0]


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
    assert [answer.queue_seconds for answer in answers] == [0, 0, 0]


def test_the_wait_ends_when_it_has_lasted_long_enough() -> None:
    async def work(batcher: Batcher) -> list[Answer]:
        first = asyncio.ensure_future(row(batcher))
        await asyncio.sleep(0.1)
        return [await first, await row(batcher)]

    first, second = running(work, max_queue_delay=0.05, expected=lambda: 4)
    for answer in (first, second):
        assert answer.batch_size == 1
        assert answer.queue_seconds == pytest.approx(0.05)


def test_what_waited_while_the_policy_was_busy_has_waited() -> None:
    async def work(batcher: Batcher) -> list[Answer]:
        rows = [asyncio.ensure_future(row(batcher))]
        await asyncio.sleep(0.25)  # the first is on its way: nobody joined it for 0.1 s
        rows.append(asyncio.ensure_future(row(batcher)))
        return list(await asyncio.gather(*rows))

    first, second = running(work, Counting(seconds=0.5), max_queue_delay=0.1, expected=lambda: 4)
    assert first.queue_seconds == pytest.approx(0.1)
    assert second.queue_seconds == pytest.approx(0.35), "it waited for the policy, and then not for others"
    assert [answer.inference_seconds for answer in (first, second)] == pytest.approx([0.5, 0.5])


def test_the_time_in_the_queue_and_in_the_policy_are_told_apart() -> None:
    async def work(batcher: Batcher) -> list[Answer]:
        return await apart(batcher, 2, 0.1)

    first, second = running(work, Counting(seconds=0.5))
    assert (first.queue_seconds, second.queue_seconds) == pytest.approx((0.0, 0.4))
    assert (first.inference_seconds, second.inference_seconds) == pytest.approx((0.5, 0.5))


class Slot:
    """Who asks, takes its time on one of the cores, and asks again."""

    def __init__(self, takes: Sequence[float]) -> None:
        self.takes = takes
        self.answers: list[Answer] = []

    async def play(self, batcher: Batcher, cores: asyncio.Semaphore, *, after: float, until: float) -> None:
        await asyncio.sleep(after)
        await batcher.new_session(TASK, 0, who=self)
        while virtual_time.clock().time() < until:
            self.answers.append(await batcher.act(Observation({}, TASK), None, action_dim=1, who=self))
            async with cores:
                await asyncio.sleep(self.takes[len(self.answers) % len(self.takes)])


def played(
    takes: Sequence[float | Sequence[float]], policy: Policy, *, seconds: float = 20.0, cores: int = 64, **settings: Any
) -> list[Slot]:
    """Slots that play for so long, and do not begin at the same moment."""
    slots = [Slot([t] if isinstance(t, float) else t) for t in takes]

    async def work(batcher: Batcher) -> None:
        free = asyncio.Semaphore(cores)
        await asyncio.gather(*(slot.play(batcher, free, after=0.01 * i, until=seconds) for i, slot in enumerate(slots)))

    running(work, policy, seconds=2 * seconds, expected=lambda: len(slots), **settings)
    return slots


def total(slots: Sequence[Slot]) -> int:
    return sum(len(slot.answers) for slot in slots)


def sizes(slot: Slot) -> Counter[int]:
    return Counter(answer.batch_size for answer in slot.answers)


@pytest.mark.parametrize("count", [2, 3, 4, 8])
def test_auto_waits_for_sessions_that_are_about_to_ask(count: int) -> None:
    takes = [0.003] * count
    greedy = played(takes, Counting(0.04, 0.002))
    auto = played(takes, Counting(0.04, 0.002), max_queue_delay="auto")
    assert total(auto) > 1.5 * total(greedy)
    for slot in auto:
        assert sizes(slot)[count] > 0.85 * len(slot.answers), "now and then it is tried without, as at first"
    for slot in greedy:
        assert sizes(slot)[count] <= 1


def test_auto_waits_for_the_quick_and_not_for_the_slow() -> None:
    takes = [0.003, 0.003, 0.003, 0.2]
    greedy = played(takes, Counting(0.04, 0.002))
    auto = played(takes, Counting(0.04, 0.002), max_queue_delay="auto")
    assert total(auto) > 1.5 * total(greedy)
    together = sizes(auto[0])
    assert together[3] + together[4] > 0.85 * len(auto[0].answers), "the slow one joins when it is there"
    assert together[4] < together[3]


@pytest.mark.parametrize(
    ("takes", "policy"),
    [
        ([0.3, 0.37], Counting(0.02)),  # slow simulators: the policy is idle most of the time
        ([0.005] * 4, Counting(0.0, 0.02)),  # rows share nothing in a pass
        ([0.001], Counting(0.01)),  # nobody to wait for
        ([0.0001] * 4, Counting(0.0005, 0.0001)),  # there is next to nothing to be saved
    ],
)
def test_auto_does_not_wait_where_waiting_makes_nothing(takes: list[float], policy: Policy) -> None:
    greedy = played(takes, policy, seconds=4.0)
    auto = played(takes, policy, seconds=4.0, max_queue_delay="auto")
    assert [len(slot.answers) for slot in auto] == [len(slot.answers) for slot in greedy]


def test_where_waiting_is_forecast_to_pay_and_does_not_auto_leaves_it() -> None:
    """Who waits for each other plays at the same time afterwards, on too few cores, and the policy is idle."""
    takes = [0.045 * np.random.default_rng(number).lognormal(-0.02, 0.2, 100) for number in range(16)]
    slow = Counting(0.3, 0.03)
    greedy = total(played(takes, slow, seconds=300.0, cores=2))
    auto = total(played(takes, slow, seconds=300.0, cores=2, max_queue_delay="auto"))
    assert auto >= 0.99 * greedy

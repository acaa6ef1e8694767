from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

import numpy as np
import pytest
import sample_policies as sample

from sparring.policy_server.batcher import Answer, Batcher
from sparring.policy_server.chunks import checked_chunk
from sparring.policy_server.errors import EpisodeInterrupted, PolicyFailed, QueueFull
from sparring.policy_server.policies.base import Array, Instruction, Observation, Policy, PolicySpec
from sparring.policy_server.stats import StatsCounter
from sparring.protos.errors import SparringError
from sparring.protos.spec import Offer

OFFER = Offer({}, action_low=(-1.0, -1.0), action_high=(1.0, 1.0))
TASK = Instruction("do the task", name="task", offer=OFFER)


def seeing(value: float) -> Observation:
    return Observation({sample.SIGNAL: np.array([value])}, TASK)


class Gated(Policy):
    """Holds its first batch until it is let go, and remembers every batch it was given."""

    spec = PolicySpec([sample.SIGNAL], action_dim=1, chunk_length=2)

    def __init__(self) -> None:
        self.batches: list[list[float]] = []
        self.entered, self.go = threading.Event(), threading.Event()

    def act(self, observations: Sequence[Observation], states: Sequence[Any]) -> Sequence[Array]:
        self.batches.append([float(o[sample.SIGNAL][0]) for o in observations])
        self.entered.set()
        assert self.go.wait(60)
        return [np.full((1, 1), float(o[sample.SIGNAL][0])) for o in observations]


class Sized:
    """Has a length and no elements, which nobody notices before looking at them."""

    def __len__(self) -> int:
        return 1


class Sum(Policy):
    """Per row, with a memory per row: the running sum of what it saw, through arithmetic that order would change."""

    spec = PolicySpec([sample.SIGNAL], action_dim=2, chunk_length=4)

    def new_session(self, task: Instruction, seed: int) -> list[Any]:
        return [np.random.default_rng(seed)]

    def act(self, observations: Sequence[Observation], states: Sequence[list[Any]]) -> Sequence[Array]:
        for observation, state in zip(observations, states, strict=True):
            state.append(np.sin(observation[sample.SIGNAL][0]) + state[0].normal())
        return [np.full((len(state) % 4 + 1, 2), sum(state[1:])) for state in states]


def running(work: Callable[[Batcher], Awaitable[Any]], policy: Policy, **settings: Any) -> Any:
    async def body() -> Any:
        batcher = Batcher(policy, **settings)
        try:
            return await asyncio.wait_for(work(batcher), 60)
        finally:
            await batcher.close()

    return asyncio.run(body())


def together(policy: Policy, signals: Sequence[float], *, batch: bool = True) -> list[Answer | BaseException]:
    """Answers to observations of as many sessions, all queued before the policy gets to see the first."""

    async def work(batcher: Batcher) -> list[Answer | BaseException]:
        states = [await batcher.new_session(TASK, seed) for seed in range(len(signals))]
        rows = [
            batcher.act(seeing(signal), state, action_dim=policy.spec.action_dim or 2)
            for signal, state in zip(signals, states, strict=True)
        ]
        return list(await asyncio.gather(*rows, return_exceptions=True))

    answers: list[Answer | BaseException] = running(work, policy, max_batch=64 if batch else 1)
    return answers


async def entered(policy: Gated) -> None:
    assert await asyncio.get_running_loop().run_in_executor(None, policy.entered.wait, 60)


def gated(
    policy: Gated, then: Callable[[Batcher, list[asyncio.Task[Answer]]], Coroutine[Any, Any, Any]], **settings: int
) -> Any:
    """Runs `then` while the policy is busy with a first row, numbered 0, that is the first of the tasks."""

    async def work(batcher: Batcher) -> Any:
        tasks = [asyncio.create_task(batcher.act(seeing(0), None, action_dim=1))]
        await entered(policy)
        try:
            return await then(batcher, tasks)
        finally:
            policy.go.set()

    return running(work, policy, **settings)


def queue_up(batcher: Batcher, tasks: list[asyncio.Task[Answer]], numbers: Sequence[int]) -> Awaitable[None]:
    tasks += [asyncio.create_task(batcher.act(seeing(number), None, action_dim=1)) for number in numbers]
    return asyncio.sleep(0.02)


def test_a_lone_observation_is_not_made_to_wait_for_others() -> None:
    policy = Gated()
    policy.go.set()

    async def work(batcher: Batcher) -> Answer:
        return await asyncio.wait_for(batcher.act(seeing(3), None, action_dim=1), 60)

    answer: Answer = running(work, policy)
    assert answer.batch_size == 1
    assert answer.actions.tolist() == [[3.0]]
    assert policy.batches == [[3.0]]


def test_everything_queued_during_a_forward_pass_goes_in_the_next_batch() -> None:
    policy = Gated()

    async def then(batcher: Batcher, tasks: list[asyncio.Task[Answer]]) -> list[Answer]:
        await queue_up(batcher, tasks, [1, 2, 3, 4, 5])
        policy.go.set()
        return await asyncio.gather(*tasks)

    answers = gated(policy, then)
    assert policy.batches == [[0], [1, 2, 3, 4, 5]]
    assert [a.batch_size for a in answers] == [1, 5, 5, 5, 5, 5]
    assert [a.actions.item() for a in answers] == [0, 1, 2, 3, 4, 5], "each row gets its own answer"


def test_a_batch_is_never_larger_than_was_said_and_the_first_come_are_first_served() -> None:
    policy = Gated()

    async def then(batcher: Batcher, tasks: list[asyncio.Task[Answer]]) -> list[Answer]:
        await queue_up(batcher, tasks, [1, 2, 3, 4, 5])
        policy.go.set()
        return await asyncio.gather(*tasks)

    answers = gated(policy, then, max_batch=2)
    assert policy.batches == [[0], [1, 2], [3, 4], [5]]
    assert [a.actions.item() for a in answers] == [0, 1, 2, 3, 4, 5]


def test_more_than_the_queue_holds_is_refused_and_what_it_holds_is_answered() -> None:
    policy = Gated()

    async def then(batcher: Batcher, tasks: list[asyncio.Task[Answer]]) -> list[Answer]:
        await queue_up(batcher, tasks, [1, 2, 3])
        with pytest.raises(QueueFull, match="3"):
            await batcher.act(seeing(4), None, action_dim=1)
        policy.go.set()
        answers = await asyncio.gather(*tasks)
        return [*answers, await batcher.act(seeing(5), None, action_dim=1)]

    assert [a.actions.item() for a in gated(policy, then, max_queue=3)] == [0, 1, 2, 3, 5]


def test_a_row_whose_stream_is_gone_is_not_computed() -> None:
    policy = Gated()

    async def then(batcher: Batcher, tasks: list[asyncio.Task[Answer]]) -> list[Any]:
        await queue_up(batcher, tasks, [1, 2, 3])
        tasks[2].cancel()
        await asyncio.sleep(0)
        policy.go.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    first, one, two, three = gated(policy, then)
    assert policy.batches == [[0], [1, 3]]
    assert isinstance(two, asyncio.CancelledError)
    assert [first.actions.item(), one.actions.item(), three.actions.item()] == [0, 1, 3]
    assert three.batch_size == 2


def test_a_stream_that_goes_while_its_row_is_computed_does_no_harm() -> None:
    policy = Gated()

    async def then(batcher: Batcher, tasks: list[asyncio.Task[Answer]]) -> Answer:
        tasks[0].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        policy.go.set()
        return await batcher.act(seeing(7), None, action_dim=1)

    assert gated(policy, then).actions.item() == 7


def test_closing_leaves_nobody_waiting() -> None:
    policy = Gated()

    async def then(batcher: Batcher, tasks: list[asyncio.Task[Answer]]) -> list[Any]:
        await queue_up(batcher, tasks, [1, 2])
        await batcher.close()
        policy.go.set()
        return await asyncio.wait_for(asyncio.gather(*tasks[1:], return_exceptions=True), 60)

    assert all(isinstance(end, asyncio.CancelledError) for end in gated(policy, then))


def test_a_batch_of_many_gives_what_batches_of_one_give() -> None:
    signals = [0.1, -3.0, 2.5, 1e9, 7.0, 7.0]

    async def episodes(batcher: Batcher) -> list[list[bytes]]:
        states = [await batcher.new_session(TASK, seed % 5) for seed in range(len(signals))]
        rounds = []
        for step in range(10):
            answers = await asyncio.gather(
                *(batcher.act(seeing(x * step), s, action_dim=2) for x, s in zip(signals, states, strict=True))
            )
            rounds.append([answer.actions.tobytes() for answer in answers])
        return rounds

    alone = running(episodes, Sum(), max_batch=1)
    batched = running(episodes, Sum(), max_batch=64)
    assert alone == batched


def test_a_row_that_raises_is_blamed_alone_and_its_neighbours_are_only_interrupted() -> None:
    fine, culprit, other = together(sample.Fragile(), [sample.FINE, sample.RAISE, sample.FINE])
    assert isinstance(culprit, PolicyFailed)
    assert "ZeroDivisionError: seed 1 divided by zero" in str(culprit)
    for bystander in (fine, other):
        assert isinstance(bystander, EpisodeInterrupted), bystander
        assert "divided" not in str(bystander)


def test_two_rows_that_raise_are_both_blamed_each_with_its_own_words() -> None:
    first, fine, second = together(sample.Fragile(), [sample.RAISE, sample.FINE, sample.RAISE])
    assert "seed 0" in str(first)
    assert "seed 2" in str(second)
    assert isinstance(fine, EpisodeInterrupted)


def test_a_row_that_raises_alone_is_not_run_twice() -> None:
    calls: list[int] = []

    class Counting(Policy):
        spec = PolicySpec(action_dim=2)

        def act(self, observations: Sequence[Observation], states: Sequence[Any]) -> Sequence[Array]:
            calls.append(len(observations))
            raise ValueError("no")

    (failed,) = together(Counting(), [0])
    assert isinstance(failed, PolicyFailed)
    assert calls == [1]


def test_a_policy_that_fails_only_in_batches_is_blamed_on_every_row() -> None:
    class LonersOnly(Policy):
        spec = PolicySpec(action_dim=2)

        def act(self, observations: Sequence[Observation], states: Sequence[Any]) -> Sequence[Array]:
            if len(observations) > 1:
                raise RuntimeError("shapes (3, 1) and (1,) do not match")
            return [np.zeros((1, 2))]

    answers = together(LonersOnly(), [0, 0, 0])
    assert all(isinstance(a, PolicyFailed) for a in answers)
    assert all("do not match" in str(a) and "batch of 3" in str(a) for a in answers)


@pytest.mark.parametrize(
    ("signal", "said"),
    [
        (sample.NAN, r"nan in dimension 1 of action 0"),
        (sample.WRONG_SHAPE, r"\(1, 3\).*action_dim 2"),
        (sample.TOO_LONG, r"\(4, 2\).*1 to 3"),
        (sample.TEXT, "numbers"),
        (sample.RAGGED, "array|shape|sequence"),
        (sample.LONG_DOUBLE, "float"),
        (sample.GRADIENT, "no array of numbers: Can't call numpy"),
    ],
    ids=["nan", "wrong shape", "too long", "text", "ragged", "long double", "part of a graph"],
)
def test_a_bad_answer_is_charged_to_its_row_and_to_no_other(signal: int, said: str) -> None:
    before, bad, after = together(sample.Fragile(), [sample.FINE, signal, sample.FINE])
    assert isinstance(bad, PolicyFailed), bad
    with pytest.raises(PolicyFailed, match=said):
        raise bad
    for neighbour in (before, after):
        assert isinstance(neighbour, Answer), neighbour
        assert neighbour.actions.tolist() == [[0.5, 0.5]]


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        (None, "NoneType, not a sequence"),
        (3.5, "float, not a sequence"),
        (iter([np.zeros((1, 2))]), "not a sequence"),
        (Sized(), "Sized, not a sequence"),
        ([], "1 observations and returned 0"),
        ([np.zeros((1, 2))] * 2, "1 observations and returned 2"),
        ([None], "object"),
        ([np.zeros(2)], r"\(2,\)"),
        ([np.zeros((1, 1, 2))], r"\(1, 1, 2\)"),
        ([np.zeros((0, 2))], r"\(0, 2\)"),
        ([np.array([[1j, 0]])], "complex"),
        ([[[np.inf, 0.0]]], "inf in dimension 0"),
        ({0: np.zeros((1, 2))}, r"\(\)"),
        ([[[1.0, 2.0], [3.0]]], "array|shape|sequence"),
    ],
    ids=[
        "None", "a number", "an iterator", "a mere length", "too few", "too many", "a None", "no length",
        "an axis too many", "empty", "complex", "infinite", "a dict", "ragged",
    ],
)  # fmt: skip
def test_an_answer_that_is_no_chunk_is_a_sentence(returned: Any, said: str) -> None:
    class Wrong(Policy):
        spec = PolicySpec(action_dim=2, chunk_length=1)

        def act(self, observations: Sequence[Observation], states: Sequence[Any]) -> Any:
            return returned

    (failed,) = together(Wrong(), [0])
    assert isinstance(failed, PolicyFailed), failed
    with pytest.raises(PolicyFailed, match=said):
        raise failed


def test_one_array_for_the_whole_batch_is_as_good_as_a_list() -> None:
    class Stacked(Policy):
        spec = PolicySpec([sample.SIGNAL], action_dim=2, chunk_length=3)

        def act(self, observations: Sequence[Observation], states: Sequence[Any]) -> Any:
            return np.stack([np.full((3, 2), o[sample.SIGNAL][0], np.float32) for o in observations])

    answers = together(Stacked(), [1, 2, 3])
    assert [a.actions[0, 0] for a in answers if isinstance(a, Answer)] == [1, 2, 3]


def test_a_wrong_count_that_only_one_row_causes_is_charged_to_that_row() -> None:
    class Dropping(Policy):
        spec = PolicySpec([sample.SIGNAL], action_dim=2)

        def act(self, observations: Sequence[Observation], states: Sequence[Any]) -> Sequence[Array]:
            return [np.zeros((1, 2)) for o in observations if o[sample.SIGNAL][0] < 9]

    fine, dropped = together(Dropping(), [1, 9])
    assert isinstance(fine, EpisodeInterrupted)
    assert isinstance(dropped, PolicyFailed)


@pytest.mark.parametrize(
    "kind",
    [
        *(KeyError, StopIteration, AssertionError, MemoryError, NotImplementedError),
        # What is no Exception would end the thread, or the event loop, and leave everybody waiting.
        *(SystemExit, KeyboardInterrupt, asyncio.CancelledError, GeneratorExit),
    ],
)
def test_whatever_a_policy_raises_the_next_row_is_answered(kind: type[BaseException]) -> None:
    class Once(Policy):
        spec = PolicySpec([sample.SIGNAL], action_dim=2)

        def new_session(self, task: Instruction, seed: int) -> None:
            if seed == 13:
                raise kind("in new_session")

        def act(self, observations: Sequence[Observation], states: Sequence[Any]) -> Sequence[Array]:
            if observations[0][sample.SIGNAL][0] == 0:
                raise kind("in act")
            return [np.ones((1, 2))]

    async def work(batcher: Batcher) -> Answer:
        with pytest.raises(PolicyFailed, match=r"new_session\(\) raised " + kind.__name__):
            await batcher.new_session(TASK, 13)
        with pytest.raises(PolicyFailed, match=r"act\(\) raised " + kind.__name__):
            await batcher.act(seeing(0), None, action_dim=2)
        return await batcher.act(seeing(1), None, action_dim=2)

    assert running(work, Once()).actions.tolist() == [[1.0, 1.0]]


def test_a_policy_s_own_sentence_is_passed_on_as_it_is() -> None:
    class Speaking(Policy):
        spec = PolicySpec(action_dim=2)

        def act(self, observations: Sequence[Observation], states: Sequence[Any]) -> Sequence[Array]:
            raise SparringError("the tape is empty.")

    (failed,) = together(Speaking(), [0])
    assert "the tape is empty." in str(failed)
    assert "SparringError" not in str(failed)


@pytest.mark.parametrize("warnings", [None, "a word", lambda: ["called"], [1, None]])
def test_a_policy_that_means_something_else_by_warnings(warnings: Any) -> None:
    policy = Sum()
    policy.warnings = warnings
    stats = StatsCounter()
    (answer,) = running(
        lambda batcher: asyncio.gather(batcher.act(seeing(0), [np.random.default_rng(0)], action_dim=2)),
        policy,
        stats=stats,
    )
    assert isinstance(answer, Answer)
    assert not stats.to_message().warnings


def test_the_policy_is_called_from_one_thread_only() -> None:
    threads: set[int] = set()

    class Watching(Policy):
        spec = PolicySpec([sample.SIGNAL], action_dim=2)

        def new_session(self, task: Instruction, seed: int) -> None:
            threads.add(threading.get_ident())

        def act(self, observations: Sequence[Observation], states: Sequence[Any]) -> Sequence[Array]:
            threads.add(threading.get_ident())
            return [np.zeros((1, 2))] * len(observations)

    together(Watching(), [0] * 8, batch=False)
    together_threads = set(threads)
    assert len(together_threads) == 1
    assert threading.get_ident() not in together_threads, "the event loop must stay free while the policy works"


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int64", "uint8", "bool"])
def test_a_checked_chunk_keeps_its_type_and_values(dtype: str) -> None:
    chunk = np.ones((2, 3), dtype)
    checked = checked_chunk(chunk, 3, 2)
    assert checked.dtype == chunk.dtype
    assert checked.tobytes() == chunk.tobytes()

"""Greedy batching: the moment the policy is free it takes everything that is queued, waiting for more only if told."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sparring.policy_server.batch_wait import BatchWait
from sparring.policy_server.calls import PolicyCalls
from sparring.policy_server.errors import EpisodeInterrupted, PolicyFailed, QueueFull
from sparring.policy_server.options import AUTO, QueueDelay
from sparring.policy_server.policies.base import Instruction, Observation, Policy
from sparring.policy_server.stats import StatsCounter
from sparring.policy_server.wait_trial import WaitTrial
from sparring.protos.errors import SparringError
from sparring.protos.tensor import Array
from sparring.protos.tracebacks import Tracebacks

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Answer:
    """A chunk for one observation, and how it came about."""

    actions: Array
    queue_seconds: float
    inference_seconds: float
    batch_size: int


@dataclass
class _Waiting:
    observation: Observation
    state: Any
    action_dim: int
    arrived: float
    answer: asyncio.Future[Answer]
    who: object


class Batcher:
    """Runs a policy on batches of whatever is waiting, in a thread of its own unless the policy is instant.

    Args:
        policy: Whose `new_session` and `act` are called.
        name: Of the policy, for what is said about its failures.
        max_batch: The most rows in one forward pass.
        max_queue: The most rows that wait; more are refused.
        max_queue_delay: Seconds that a row may wait for others to fill its batch. 0: none ever does; auto: as long as
            that has been seen to make more answers per second.
        expected: How many rows could come at most: those of the episodes that are running. A batch of that size is
            full, so that nobody waits for a session that has nothing to ask.
        stats: Where what was done is counted.
        thread: Of one worker, in which the policy is called; the caller's own if it has made the policy there.
        tracebacks: Where what the policy raises is kept.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        name: str = "",
        max_batch: int = 64,
        max_queue: int = 1024,
        max_queue_delay: QueueDelay = 0.0,
        expected: Callable[[], int] | None = None,
        stats: StatsCounter | None = None,
        thread: ThreadPoolExecutor | None = None,
        tracebacks: Tracebacks | None = None,
    ) -> None:
        self._calls = PolicyCalls(policy, name=name, tracebacks=tracebacks)
        self._instant = getattr(policy, "instant", False)
        self._max_batch = max_batch
        self._max_queue = max_queue
        self._max_queue_delay = 0.0 if max_queue_delay == AUTO else max_queue_delay
        self._wait = BatchWait() if max_queue_delay == AUTO and not self._instant else None
        self._trial = WaitTrial()
        self._expected = expected
        self._stats = stats or StatsCounter()
        self._queue: deque[_Waiting] = deque()
        self._stats.waiting = self._queue.__len__
        self._busy = False
        self._began = 0.0
        self._loop = asyncio.get_running_loop()
        self._alarm: asyncio.TimerHandle | None = None
        self._thread = thread or ThreadPoolExecutor(1, thread_name_prefix="policy")

    async def new_session(self, task: Instruction, seed: int, *, who: object = None) -> Any:
        """Makes the policy's memory of a new episode.

        Args:
            task: What is to be done in it.
            seed: Of the episode.
            who: The session that asks, where its rhythm shall be learned.

        Raises:
            PolicyFailed: If the policy raised.
        """
        if self._wait is not None and who is not None:
            self._wait.started(who)
        return await self._loop.run_in_executor(self._thread, self._calls.new_session, task, seed)

    async def act(self, observation: Observation, state: Any, *, action_dim: int, who: object = None) -> Answer:
        """Returns the policy's answer to one observation.

        Args:
            observation: What the policy sees.
            state: Its memory of the episode.
            action_dim: Numbers of an action.
            who: The session that asks, where its rhythm shall be learned.

        Raises:
            PolicyFailed: If the policy raised on this row, or answered it with something that is not a chunk.
            EpisodeInterrupted: If another row of the same batch made the policy raise.
            QueueFull: If too much is waiting already.
        """
        if len(self._queue) >= self._max_queue:
            raise QueueFull(f"{len(self._queue)} observations are waiting, more are not held.")
        now = self._loop.time()
        if self._wait is not None and who is not None:
            self._wait.asked(who, now)
        waiting = _Waiting(observation, state, action_dim, now, self._loop.create_future(), who)
        self._queue.append(waiting)
        if not self._busy:
            # Not at once but next: what else has arrived in this turn of the loop joins the batch.
            self._loop.call_soon(self._start_when_due)
        return await waiting.answer

    async def close(self) -> None:
        """Answers nobody any more and ends the thread."""
        self._busy = True
        self._silence()
        for waiting in self._queue:
            waiting.answer.cancel()
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _start_when_due(self) -> None:
        """Starts a forward pass now, or sets an alarm for when waiting for more rows has lasted long enough."""
        self._silence()
        if self._busy:
            return
        left = self._left_to_wait()
        if left > 0:
            self._alarm = self._loop.call_later(left, self._start)
        else:
            self._start()

    def _left_to_wait(self) -> float:
        most = self._max_batch if self._expected is None else min(self._max_batch, self._expected())
        room = most - len(self._queue)
        if not self._queue or room <= 0:
            return 0.0
        now = self._loop.time()
        if self._wait is not None:
            return self._wait.worth(len(self._queue), room, now) if self._trial.waits else 0.0
        return self._queue[0].arrived + self._max_queue_delay - now

    def _silence(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _start(self) -> None:
        """Starts a forward pass on whatever is waiting, unless one is running."""
        self._silence()
        batch: list[_Waiting] = []
        while not self._busy and self._queue and len(batch) < self._max_batch:
            waiting = self._queue.popleft()
            if not waiting.answer.done():  # else its stream is gone, nobody wants the answer
                batch.append(waiting)
        if not batch:
            return
        self._busy = True
        self._began = self._loop.time()
        if self._instant:
            self._finish(batch, self._forward(batch))
        else:
            self._thread.submit(self._forward_in_thread, batch)

    def _forward_in_thread(self, batch: Sequence[_Waiting]) -> None:
        outcomes = self._forward(batch)
        with suppress(RuntimeError):  # the loop is closed: the server has ended
            self._loop.call_soon_threadsafe(self._finish, batch, outcomes)

    def _finish(self, batch: Sequence[_Waiting], outcomes: Sequence[Answer | SparringError]) -> None:
        for waiting, outcome in zip(batch, outcomes, strict=True):
            if waiting.answer.done():
                continue
            if isinstance(outcome, Answer):
                waiting.answer.set_result(outcome)
            else:
                waiting.answer.set_exception(outcome)
        if self._wait is not None:
            self._learn(self._wait, batch)
        self._stats.policy_warnings(self._calls.new_warnings())
        self._busy = False
        self._start_when_due()

    def _learn(self, wait: BatchWait, batch: Sequence[_Waiting]) -> None:
        now = self._loop.time()
        wait.passed(len(batch), self._began, now, arrived=batch[0].arrived)
        if wait.sessions:
            self._trial.passed(len(batch), now, arrived=batch[0].arrived, sessions=wait.sessions)
        for waiting in batch:
            if waiting.who is not None:
                wait.answered(waiting.who, now)

    def _forward(self, batch: Sequence[_Waiting]) -> Sequence[Answer | SparringError]:
        try:
            return self._answers(batch)
        except Exception as error:  # a fault of ours; nobody may be left waiting for it
            log.exception("the batcher failed")
            return [PolicyFailed(f"the policy server failed on this batch: {error}")] * len(batch)

    def _answers(self, batch: Sequence[_Waiting]) -> Sequence[Answer | SparringError]:
        began = self._loop.time()
        try:
            chunks = self._call_act(batch)
        except PolicyFailed as failure:
            return (
                [self._calls.located(failure, batch[0].observation)] if len(batch) == 1 else self._blame(batch, failure)
            )
        finally:
            seconds = self._loop.time() - began
            self._stats.forward_pass([began - waiting.arrived for waiting in batch], seconds)
        outcomes: list[Answer | SparringError] = []
        for waiting, chunk in zip(batch, chunks, strict=True):
            try:
                actions = self._calls.checked(chunk, waiting.observation, waiting.action_dim)
            except PolicyFailed as failure:
                outcomes.append(failure)
            else:
                outcomes.append(Answer(actions, began - waiting.arrived, seconds, len(batch)))
        return outcomes

    def _call_act(self, batch: Sequence[_Waiting]) -> Sequence[Any]:
        return self._calls.act([waiting.observation for waiting in batch], [waiting.state for waiting in batch])

    def _blame(self, batch: Sequence[_Waiting], failure: PolicyFailed) -> Sequence[SparringError]:
        """Finds which rows made a batch fail, so that an episode is not charged with its neighbour's error.

        A batch that failed halfway may have moved the memory of any of its rows, so none of the
        episodes can go on: the rows at fault fail, the others are interrupted and start anew.
        """
        verdicts: list[SparringError] = []
        for waiting in batch:
            try:
                self._call_act([waiting])
            except PolicyFailed as alone:
                verdicts.append(self._calls.located(alone, waiting.observation))
            else:
                verdicts.append(
                    EpisodeInterrupted(
                        "interrupted, because the policy failed on another episode in the same batch; it starts anew."
                    )
                )
        if not any(isinstance(v, PolicyFailed) for v in verdicts):
            together = PolicyFailed(f"{failure.sentence} (only in a batch of {len(batch)}, not row by row)")
            together.traceback = failure.traceback
            return [self._calls.located(together, waiting.observation) for waiting in batch]
        return verdicts

"""Runs a policy that may be asked by many sessions at the same time: one that only passes their questions on."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from sparring.policy_server.batcher import Answer
from sparring.policy_server.calls import PolicyCalls
from sparring.policy_server.errors import PolicyFailed
from sparring.policy_server.policies.base import Instruction, Observation, Policy
from sparring.policy_server.stats import StatsCounter
from sparring.protos.tracebacks import Tracebacks


class ConcurrentRunner:
    """Stands where other policies have a batcher: each row is asked by itself, in a thread, as soon as it comes.

    Args:
        policy: Whose `new_session` and `act` are called.
        name: Of the policy, for what is said about its failures.
        sessions: The most at once.
        stats: Where what was done is counted.
        tracebacks: Where what the policy raises is kept.
    """

    def __init__(
        self, policy: Policy, *, name: str, sessions: int, stats: StatsCounter, tracebacks: Tracebacks | None = None
    ) -> None:
        self._calls = PolicyCalls(policy, name=name, tracebacks=tracebacks)
        self._stats = stats
        self._loop = asyncio.get_running_loop()
        self._threads = ThreadPoolExecutor(sessions, thread_name_prefix="asking")

    async def new_session(self, task: Instruction, seed: int, *, who: object = None) -> Any:
        """Makes the policy's memory of a new episode.

        Raises:
            PolicyFailed, EpisodeInterrupted: As the policy says.
        """
        return await self._loop.run_in_executor(self._threads, self._calls.new_session, task, seed)

    async def act(self, observation: Observation, state: Any, *, action_dim: int, who: object = None) -> Answer:
        """Returns the policy's answer to one observation.

        Raises:
            PolicyFailed, EpisodeInterrupted: As the policy says.
        """
        arrived = self._loop.time()
        began, actions = await self._loop.run_in_executor(
            self._threads, partial(self._ask, observation, state, action_dim)
        )
        seconds = self._loop.time() - began
        self._stats.forward_pass([began - arrived], seconds)
        self._stats.policy_warnings(self._calls.new_warnings())
        return Answer(actions, began - arrived, seconds, 1)

    async def close(self) -> None:
        """Answers nobody any more."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _ask(self, observation: Observation, state: Any, action_dim: int) -> tuple[float, Any]:
        began = self._loop.time()
        try:
            (chunk,) = self._calls.act([observation], [state])
        except PolicyFailed as failure:
            raise self._calls.located(failure, observation) from failure
        return began, self._calls.checked(chunk, observation, action_dim)

"""A policy in this very process, asked by one caller, without a server, a thread or a socket.

    policy = LocalPolicy(MyPolicy(), name="mine")
    session = policy.open(offer)
    session.start(task="reach-v3", instruction="Reach a goal position", seed=0)
    chunk = session.act({"observation.state": state}, step=0)

A session is the server's and the client's own, with nothing in between: the same messages, the same rules, the same
answers. What a policy raises is told in the same sentences; only Ctrl-C and the end of a debugger are the caller's.
"""

from __future__ import annotations

import bdb
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, TypeVar

from sparring.policy_server.batcher import Answer
from sparring.policy_server.calls import PolicyCalls
from sparring.policy_server.errors import (
    EpisodeInterrupted,
    PolicyAway,
    PolicyFailed,
    PolicyRefused,
    PolicyUnreachable,
)
from sparring.policy_server.hosted import HostedPolicy, described, warm_policy
from sparring.policy_server.policies.base import Instruction, Observation, Policy
from sparring.policy_server.policies.separate_rng import SeparateRng
from sparring.policy_server.program import code_of
from sparring.policy_server.session import SessionHandler
from sparring.policy_server.session_client import Description, SessionClient, serialized
from sparring.policy_server.stats import StatsCounter
from sparring.protos import policy_pb2 as pb
from sparring.protos.conditions import Conditions
from sparring.protos.errors import SparringError
from sparring.protos.net.rpc import status_message
from sparring.protos.spec import Offer
from sparring.protos.tracebacks import Tracebacks

T = TypeVar("T")

_TOLD: Final[dict[type[SparringError], tuple[type[SparringError], str]]] = {
    PolicyFailed: (PolicyFailed, "policy"),
    EpisodeInterrupted: (PolicyUnreachable, "interrupted"),
    PolicyAway: (PolicyUnreachable, "interrupted"),
}
"""What an error of a session is to its caller, and what it is counted as."""

_THE_USERS: Final = (KeyboardInterrupt, bdb.BdbQuit)
"""What comes out of a call and is the user's doing, not the policy's."""


class LocalPolicy:
    """A policy in this process; to its callers what a `PolicyClient` is to a server's.

    The global random generators of Python, numpy and torch are its own, as if it were alone in a process: a simulator
    beside it draws the same numbers, whatever the policy draws, and the other way round.

    Args:
        policy: A policy, or a function that makes it.
        name: Of the policy, as users know it.
        arguments: It was made with.
        checkpoint_sha256: Hash of the weights, where the policy's own word for it is not to be taken.
        tracebacks: Where what its code raises is kept; by default it is only logged.
        experts: What `expert` means where that is the name, by benchmark.

    Raises:
        UsageError: If the policy cannot be made, or fails in its warm-up.
    """

    def __init__(
        self,
        policy: Policy | Callable[[], Policy],
        *,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        checkpoint_sha256: str | None = None,
        tracebacks: Tracebacks | None = None,
        experts: Mapping[str, str] | None = None,
    ) -> None:
        code = code_of(policy, name, experts or {})
        rng = SeparateRng()
        with rng.in_use():
            made = warm_policy(policy, name, not_its_own=_THE_USERS, tracebacks=tracebacks)
        self._stats = StatsCounter()
        self._hosted = HostedPolicy(
            made,
            described(made, name, arguments or {}, checkpoint_sha256, code=code),
            _AtOnce(PolicyCalls(made, name=name, not_its_own=_THE_USERS, tracebacks=tracebacks), rng, self._stats),
            self._stats,
            logs_warnings=False,  # who has the stats does
            tracebacks=tracebacks or Tracebacks(),
        )

    def describe(self) -> Description:
        """Returns what is hosted here."""
        return Description.from_message(self._hosted.description)

    def stats(self) -> pb.ServerStats:
        """Returns what it has done so far."""
        return self._stats.to_message()

    def open(self, offer: Offer, *, benchmark: str = "", conditions: Conditions | None = None) -> LocalSession:
        """Opens a session.

        Args:
            offer: What the policy may look at, and the action space.
            benchmark: Name of the benchmark, empty for a robot.
            conditions: By what episodes are played, for policies that depend on it; None: that is not said.

        Raises:
            PolicyRefused: If the policy and the offer do not fit together, with both sides as a table.
            PolicyFailed: If the policy raised.
        """
        session = LocalSession(self._hosted.session("local"), self._stats)
        session._greet(offer, benchmark=benchmark, client="local", conditions=conditions)
        return session


class LocalSession(SessionClient):
    """A session with a policy in this process. Made by `LocalPolicy.open`."""

    def __init__(self, handler: SessionHandler, stats: StatsCounter) -> None:
        super().__init__("the policy in this process")
        self._handler = handler
        self._stats = stats

    def _answer(self, request: pb.RolloutRequest | bytes, seconds: float | None) -> pb.RolloutResponse:
        try:
            return _without_waiting(self._handler.answer_bytes(serialized(request)))
        except SparringError as error:
            kind, counted = _TOLD.get(type(error), (PolicyRefused, "refused"))
            self._stats.error(counted)
            raise kind(status_message(error.sentence)) from error


class _AtOnce:
    """Stands where a server has its batcher: asks the policy where it is called, one row at a time."""

    def __init__(self, calls: PolicyCalls, rng: SeparateRng, stats: StatsCounter) -> None:
        self._calls = calls
        self._rng = rng
        self._stats = stats

    async def new_session(self, task: Instruction, seed: int, *, who: object = None) -> Any:
        with self._rng.in_use():
            return self._calls.new_session(task, seed)

    async def act(self, observation: Observation, state: Any, *, action_dim: int, who: object = None) -> Answer:
        began = time.monotonic()
        try:
            with self._rng.in_use():
                (chunk,) = self._calls.act([observation], [state])
        except PolicyFailed as failure:
            raise self._calls.located(failure, observation) from failure
        finally:
            seconds = time.monotonic() - began
            self._stats.forward_pass([0.0], seconds)
            self._stats.policy_warnings(self._calls.new_warnings())
        return Answer(self._calls.checked(chunk, observation, action_dim), 0.0, seconds, 1)


def _without_waiting(coroutine: Coroutine[Any, Any, T]) -> T:
    """Returns the result of a coroutine that waits for nothing, so that it needs no event loop."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    coroutine.close()
    raise RuntimeError("a session in this process waited for something.")

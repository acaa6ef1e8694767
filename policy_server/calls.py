"""Calling a policy: whatever it raises or answers with becomes chunks of usable actions, or a failure in a sentence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from sparring.policy_server.chunks import checked_chunk
from sparring.policy_server.errors import EpisodeInterrupted, PolicyFailed
from sparring.policy_server.policies.base import Instruction, Observation, Policy, spec_on, warnings_of
from sparring.protos.advice import shortened
from sparring.protos.errors import SparringError
from sparring.protos.tensor import Array
from sparring.protos.tracebacks import Tracebacks, cause_of, traceback_of

_LONGEST: Final = 1000
"""Characters of what an exception says; it may be a whole array, and its traceback has it all."""

T = TypeVar("T")


class PolicyCalls:
    """The methods of a policy, as those who serve it call them.

    Args:
        policy: Whose `new_session` and `act` are called.
        name: Of the policy, for what is said about its failures.
        not_its_own: What may come out of a call and is not the policy's failure, such as Ctrl-C where it is called in
            the main thread.
        tracebacks: Where what it raises is kept.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        name: str = "",
        not_its_own: tuple[type[BaseException], ...] = (),
        tracebacks: Tracebacks | None = None,
    ) -> None:
        self._tracebacks = tracebacks or Tracebacks()
        self._policy = policy
        self._name = name
        self._not_its_own = not_its_own
        self._said = len(warnings_of(policy))

    def new_session(self, task: Instruction, seed: int) -> Any:
        """Makes the policy's memory of a new episode.

        Raises:
            PolicyFailed: If it raised.
        """
        try:
            return self._calling("new_session", lambda: self._policy.new_session(task, seed))
        except PolicyFailed as failure:
            raise self._detailed(failure) from failure.__cause__

    def act(self, observations: Sequence[Observation], states: Sequence[Any]) -> list[Any]:
        """Returns one answer per observation, not looked at yet.

        Raises:
            PolicyFailed: If it raised, or gave another number of answers.
        """
        chunks = self._calling("act", lambda: self._policy.act(observations, states))
        try:
            count, chunks = len(chunks), list(chunks)
        except TypeError:
            raise PolicyFailed(f"act() returned {type(chunks).__name__}, not a sequence of chunks.") from None
        if count != len(observations):
            raise PolicyFailed(f"act() got {len(observations)} observations and returned {count} chunks.")
        return chunks

    def checked(self, chunk: Any, observation: Observation, action_dim: int) -> Array:
        """Returns one of those answers as actions.

        Raises:
            PolicyFailed: If it is not a chunk of usable actions, with where that happened.
        """
        try:
            return checked_chunk(chunk, action_dim, spec_on(self._policy, observation.task.benchmark).chunk_length)
        except PolicyFailed as failure:
            raise self.located(failure, observation) from failure

    def located(self, failure: PolicyFailed, observation: Observation) -> PolicyFailed:
        """Returns the failure with where it happened: not in which episode, for who asks knows that best."""
        return self._detailed(failure, f"step {observation.step}")

    def _detailed(self, failure: PolicyFailed, *where: str) -> PolicyFailed:
        """Returns the failure with what is known beside it. What was raised comes first: lines may be cut off."""
        who = [f"policy {self._name!r}"] if self._name else []
        details = [", ".join([*who, *where]), failure.traceback]
        told = f" ({'; '.join(filter(None, details))})" if any(details) else ""
        found = PolicyFailed(f"{failure.sentence}{told}")
        found.__cause__ = failure.__cause__
        return found

    def new_warnings(self) -> Sequence[str]:
        """Returns what the policy has come to say about itself since it was made, or since this was asked last."""
        warnings = warnings_of(self._policy)
        new = warnings[self._said :]
        self._said = len(warnings)
        return new

    def _calling(self, method: str, call: Callable[[], T]) -> T:
        """Calls a method of the policy and returns its result.

        Raises:
            EpisodeInterrupted: If it says so: whom it asks has gone away.
            PolicyFailed: Whatever else it raised. Not only exceptions proper: a `SystemExit` or a `KeyboardInterrupt`
                ends the event loop that it comes to, a `CancelledError` passes for somebody else's, and all would be
                left waiting.
        """
        try:
            return call()
        except EpisodeInterrupted:
            raise
        except self._not_its_own:
            raise
        except BaseException as error:
            if isinstance(error, SparringError):  # a sentence that is meant for people
                sentence = error.sentence
            else:
                sentence = f"the policy's {method}() raised {in_short(error)}"
            failure = PolicyFailed(sentence)
            if (raised := cause_of(error)) is not None:
                failure.traceback = self._tracebacks.keep("policy", sentence, traceback_of(raised))
            raise failure from error


def in_short(error: BaseException) -> str:
    """Returns what was raised, so short that what is said after it still fits into the status of a stream."""
    said = f"{type(error).__name__}: {error}"
    return said if len(said) <= _LONGEST else f"{shortened(said, _LONGEST)} ..."

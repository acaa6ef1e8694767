"""A policy that lives in an actor of Ray, such as the one that trains it: asked from here, computed there."""

from __future__ import annotations

import itertools
import secrets
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sparring.policy_server.policies.base import (
    Array,
    Instruction,
    Observation,
    Policy,
    PolicySpec,
    spec_on,
    warnings_of,
)
from sparring.policy_server.policies.preserve import evaluation_mode, preserved_rng
from sparring.protos.conditions import Conditions
from sparring.protos.errors import UsageError
from sparring.protos.spec import Offer

_SECONDS: Final = 3600.0
"""For the actor to answer: it may be training. `policy_timeout` is what limits an evaluation."""


@dataclass(frozen=True)
class Beginning:
    """What an episode begins with: an `Instruction` and a seed, as plain data that Ray can send."""

    text: str
    benchmark: str
    name: str
    episode: int
    offer: Offer
    conditions: Conditions | None
    seed: int

    @property
    def task(self) -> Instruction:
        """The instruction again."""
        return Instruction(
            self.text,
            benchmark=self.benchmark,
            name=self.name,
            episode=self.episode,
            offer=self.offer,
            conditions=self.conditions,
        )


@dataclass(frozen=True)
class Row:
    """One observation of a batch.

    Attributes:
        session: Whose it is.
        beginning: Of its episode, with the first observation of it that the actor sees.
        tensors: The observation.
        step: Of the episode.
    """

    session: str
    beginning: Beginning | None
    tensors: Mapping[str, Array]
    step: int


class PolicyActor:
    """Lets `ActorPolicy` ask an actor that derives from it and has a policy as `self.policy`.

    What a session remembers stays in the actor. Modules are in evaluation mode while they are asked, and random
    generators where they were afterwards, so that training goes on as if nothing had been asked.
    """

    policy: Policy
    """What is asked; it may be another one, or have other weights, with each call."""

    _sessions: dict[str, tuple[Instruction, Any]] | None = None

    def sparring_spec(self, benchmark: str) -> tuple[PolicySpec, Sequence[str]]:
        """Returns what the policy needs, on a benchmark or in general, and its warnings."""
        policy = self.policy
        return (spec_on(policy, benchmark) if benchmark else policy.spec), list(warnings_of(policy))

    def sparring_act(self, rows: Sequence[Row], ended: Sequence[str]) -> Sequence[Array]:
        """Returns a chunk for each row of a batch, and forgets sessions that have ended."""
        if self._sessions is None:
            self._sessions = {}
        sessions = self._sessions
        for name in ended:
            sessions.pop(name, None)
        policy = self.policy
        with preserved_rng(), evaluation_mode(policy):
            for row in rows:
                if row.beginning is not None:
                    task = row.beginning.task
                    state = policy.new_session(task, row.beginning.seed) if hasattr(policy, "new_session") else None
                    sessions[row.session] = task, state
            seen = [Observation(row.tensors, sessions[row.session][0], row.step) for row in rows]
            return list(policy.act(seen, [sessions[row.session][1] for row in rows]))


class _Session:
    """What is here of a session: its name, and what it begins with, until that was sent."""

    def __init__(self, name: str, beginning: Beginning) -> None:
        self.name = name
        self.beginning: Beginning | None = beginning


class ActorPolicy(Policy):
    """Asks the policy of an actor of Ray; a batch is one call.

    Args:
        actor: Handle of an actor whose class derives from `PolicyActor`.
        seconds: For its answers.
    """

    def __init__(self, actor: Any, *, seconds: float = _SECONDS) -> None:
        self._actor = actor
        self._seconds = seconds
        self._name = secrets.token_hex(8)  # others may ask the same actor
        self._numbers = itertools.count()
        self._ended: list[str] = []
        if not hasattr(actor, "sparring_act"):
            raise UsageError("ActorPolicy asks an actor of Ray whose class derives from sparring.PolicyActor.")
        self.spec, self.warnings = self._ask(actor.sparring_spec, "")

    def spec_for(self, benchmark: str) -> PolicySpec:
        found: tuple[PolicySpec, Sequence[str]] = self._ask(self._actor.sparring_spec, benchmark)
        spec, self.warnings = found
        return spec

    def new_session(self, task: Instruction, seed: int) -> _Session:
        told = (task.benchmark, task.name, task.episode, task.offer, task.conditions)
        session = _Session(f"{self._name}-{next(self._numbers)}", Beginning(str(task), *told, seed))
        weakref.finalize(session, self._ended.append, session.name)
        return session

    def act(self, observations: Sequence[Observation], states: Sequence[_Session]) -> Sequence[Array]:
        rows = [
            Row(session.name, session.beginning, dict(observation), observation.step)
            for observation, session in zip(observations, states, strict=True)
        ]
        ended = [self._ended.pop() for _ in range(len(self._ended))]
        chunks: Sequence[Array] = self._ask(self._actor.sparring_act, rows, ended)
        for session in states:
            session.beginning = None
        return chunks

    def _ask(self, method: Any, *arguments: Any) -> Any:
        import ray

        return ray.get(method.remote(*arguments), timeout=self._seconds)

"""A policy in an actor, asked by several: Ray itself is in tests/ray_cluster."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

from sparring.policy_server.policies.base import Array, Instruction, Observation, Policy, PolicySpec
from sparring.policy_server.policies.in_actor import ActorPolicy, PolicyActor
from sparring.protos.spec import Offer


class Remembers(Policy):
    """Answers with the seed that its session began with."""

    spec = PolicySpec()

    def new_session(self, task: Instruction, seed: int) -> int:
        return seed

    def act(self, observations: Any, states: Any) -> list[Array]:
        return [np.full((1, 1), seed, np.float32) for seed in states]


class Learner(PolicyActor):
    def __init__(self) -> None:
        self.policy = Remembers()

    @property
    def kept(self) -> int:
        return len(self._sessions or {})


def test_two_that_ask_one_actor_have_sessions_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    # A call of Ray's is a call: what is sent is the same.
    monkeypatch.setattr(ActorPolicy, "_ask", lambda self, method, *arguments: method(*arguments))
    actor = Learner()
    one, other = ActorPolicy(actor), ActorPolicy(actor)
    offer = Offer({}, (0.0,), (1.0,))
    task = Instruction("go", benchmark="toy", name="go", episode=0, offer=offer, conditions=None)
    seen = [Observation({}, task, 0)]
    first, second = one.new_session(task, 1), other.new_session(task, 2)
    assert one.act(seen, [first])[0] == 1
    assert other.act(seen, [second])[0] == 2
    assert one.act(seen, [first])[0] == 1, "its own, and not the other's"
    third = one.new_session(task, 3)
    del first
    gc.collect()
    one.act(seen, [third])
    assert other.act(seen, [second])[0] == 2, "who ends a session of its own ends no other's"
    assert actor.kept == 2

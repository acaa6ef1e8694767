"""A policy that stands for one on a GPU: it occupies the server for a given time per forward pass, computing nothing.

sparring run --policy modelled:Modelled --policy-arg pass_ms=40 --policy-arg row_ms=2 ...    # PYTHONPATH=benchmarks
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from sparring import Policy, PolicySpec
from sparring.policy_server.policies.base import Array, Instruction, Observation


class Modelled(Policy):
    """Waits, and answers that nothing be done.

    Args:
        pass_ms: Of a forward pass, whatever its size.
        row_ms: Of each of its rows.
        chunk: Actions of an answer.
        observations: That it asks for, and does not look at.
    """

    def __init__(
        self,
        pass_ms: float = 40.0,
        row_ms: float = 2.0,
        chunk: int = 10,
        observations: Sequence[str] = ("observation.state",),
    ) -> None:
        self.spec = PolicySpec(tuple(observations), chunk_length=chunk)
        self.instant = pass_ms == row_ms == 0
        self._pass, self._row, self._chunk = pass_ms / 1000, row_ms / 1000, chunk

    def new_session(self, task: Instruction, seed: int) -> Any:
        return np.zeros((self._chunk, task.offer.action_dim), np.float32)

    def act(self, observations: Sequence[Observation], states: Sequence[Any]) -> Sequence[Array]:
        if not self.instant:
            time.sleep(self._pass + self._row * len(observations))
        return states

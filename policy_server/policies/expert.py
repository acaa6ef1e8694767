"""The scripted experts of several benchmarks behind one address."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from policy_server.policies.base import Array, Instruction, Observation, Policy, PolicySpec
from protos.spec import SpecMismatch


class Experts(Policy):
    """Passes each session on to the expert of its benchmark.

    Args:
        experts: By benchmark.
    """

    spec = PolicySpec()

    def __init__(self, experts: Mapping[str, Policy]) -> None:
        self._experts = experts

    def spec_for(self, benchmark: str) -> PolicySpec:
        if benchmark not in self._experts:
            raise SpecMismatch(f"there is no expert for {benchmark!r} here, only for: {', '.join(self._experts)}.")
        return self._experts[benchmark].spec

    def new_session(self, task: Instruction, seed: int) -> Any:
        return self._experts[task.benchmark].new_session(task, seed)

    def act(self, observations: Sequence[Observation], states: Sequence[Any]) -> Sequence[Array]:
        answers: dict[int, Array] = {}
        for benchmark, expert in self._experts.items():
            rows = [row for row, observation in enumerate(observations) if observation.task.benchmark == benchmark]
            if rows:
                chunks = expert.act([observations[row] for row in rows], [states[row] for row in rows])
                answers.update(zip(rows, chunks, strict=True))
        return [answers[row] for row in range(len(observations))]

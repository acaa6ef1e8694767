"""The scripted experts of several benchmarks behind one address."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sparring.policy_server.policies.base import Array, Instruction, Observation, Policy, PolicySpec, TensorSpec
from sparring.protos.errors import UsageError
from sparring.protos.spec import SpecMismatch


class Experts(Policy):
    """Passes each session on to the expert of its benchmark.

    Args:
        experts: By benchmark.
        look: Observations to look at beside what experts need, which is no image: to record them, or to see them made.
    """

    spec = PolicySpec()

    def __init__(self, experts: Mapping[str, Policy], look: Sequence[str] = ()) -> None:
        if isinstance(look, str):
            raise UsageError(f"look must be a list of names, not the text {look!r}.")
        self._experts = experts
        self._look = {name: TensorSpec() for name in look}

    def spec_for(self, benchmark: str) -> PolicySpec:
        if benchmark not in self._experts:
            raise SpecMismatch(f"there is no expert for {benchmark!r} here, only for: {', '.join(self._experts)}.")
        spec = self._experts[benchmark].spec
        assert isinstance(spec.observations, Mapping)
        return replace(spec, observations={**self._look, **spec.observations})

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

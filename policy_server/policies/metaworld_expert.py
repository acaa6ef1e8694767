"""Meta-World's own scripted experts behind the policy interface."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from sparring.policy_server.policies.base import Array, Instruction, Observation, Policy, PolicySpec, TensorSpec
from sparring.protos.errors import UsageError

STATE = "environment_state"


class MetaworldExpert(Policy):
    """One scripted expert per session; reads the raw 39-dim state, never an image."""

    instant = True
    spec = PolicySpec(observations={STATE: TensorSpec("float64", (39,))}, action_dim=4, chunk_length=1)

    def __init__(self) -> None:
        try:
            from metaworld.policies import ENV_POLICY_MAP
        except ImportError as error:
            raise UsageError(
                f"the Meta-World experts need the metaworld package ({error}). "
                "Install it with: pip install 'sparring[metaworld]'"
            ) from error
        self._experts: dict[str, Any] = dict(ENV_POLICY_MAP)
        # The experts warn at every step that environments clip actions; ours does, as theirs do.
        warnings.filterwarnings("ignore", message="Constant.s. may be too high", category=UserWarning)

    def new_session(self, task: Instruction, seed: int) -> Any:
        if task.name not in self._experts:
            raise UsageError(f"Meta-World has no scripted expert for the task {task.name!r}.")
        return self._experts[task.name]()

    def act(self, observations: Sequence[Observation], states: Sequence[Any]) -> Sequence[Array]:
        return [
            np.asarray(expert.get_action(observation[STATE].copy()))[
                None
            ]  # some experts write into what they are shown
            for observation, expert in zip(observations, states, strict=True)
        ]

"""A policy that leaves nothing open, so that the suite can ask for each thing the wrong way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sparring.policy_server.policies.base import Array, Observation, Policy, PolicySpec, TensorSpec


class StrictPolicy(Policy):
    spec = PolicySpec(
        observations={"camera": TensorSpec("uint8", (8, 6, 3)), "joints": TensorSpec("float64", (5,))},
        action_dim=3,
        chunk_length=6,
        history=2,
    )

    def act(self, observations: Sequence[Observation], states: Sequence[Any]) -> Sequence[Array]:
        # Shorter and shorter chunks, down to one action: clients must take the length as it comes.
        return [np.full((max(1, 6 - o.step), 3), o.step / 100) for o in observations]

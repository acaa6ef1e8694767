"""The scripted expert for PushT behind the policy interface."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sparring.policy_server.policies._pusht.player import PushtPlayer
from sparring.policy_server.policies.base import Array, Instruction, Observation, Policy, PolicySpec, TensorSpec

_DISC = "observation.state"
_KEYPOINTS = "observation.environment_state"


class PushtExpert(Policy):
    """One player per episode; reads where disc and T are, never an image."""

    spec = PolicySpec(
        observations={_DISC: TensorSpec("float32", (2,)), _KEYPOINTS: TensorSpec("float32", (16,))},
        action_dim=2,
        chunk_length=1,
    )

    def new_session(self, task: Instruction, seed: int) -> PushtPlayer:
        return PushtPlayer()

    def act(self, observations: Sequence[Observation], states: Sequence[PushtPlayer]) -> Sequence[Array]:
        return [
            player.act(seen[_DISC].astype(np.float64), seen[_KEYPOINTS].astype(np.float64).reshape(8, 2))[None]
            for seen, player in zip(observations, states, strict=True)
        ]

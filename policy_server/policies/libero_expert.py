"""The scripted expert for LIBERO behind the policy interface."""

from __future__ import annotations

from collections.abc import Sequence

from sparring.policy_server.policies._libero.player import LiberoPlayer
from sparring.policy_server.policies.base import Array, Instruction, Observation, Policy, PolicySpec


class LiberoExpert(Policy):
    """One player per episode; reads the goal and the privileged state, never an image."""

    spec = PolicySpec(LiberoPlayer.needs, action_dim=7, chunk_length=1)

    def new_session(self, task: Instruction, seed: int) -> LiberoPlayer:
        return LiberoPlayer()

    def act(self, observations: Sequence[Observation], states: Sequence[LiberoPlayer]) -> Sequence[Array]:
        return [player.act(observation)[None] for observation, player in zip(observations, states, strict=True)]

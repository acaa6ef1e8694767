"""The scripted expert for ALOHA behind the policy interface."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sparring.policy_server.policies._aloha.both_arms import STEPS
from sparring.policy_server.policies._aloha.handover import hand_over
from sparring.policy_server.policies._aloha.insertion import insert
from sparring.policy_server.policies.base import Array, Instruction, Observation, Policy, PolicySpec, TensorSpec
from sparring.protos.errors import UsageError

_OBJECTS = "environment_state"

ArmScript = Callable[[Array], Array]
"""From where objects are at first to the actions of an episode."""
_SCRIPTS: dict[str, ArmScript] = {
    "AlohaTransferCube-v0": lambda objects: hand_over(objects[:3]),
    "AlohaInsertion-v0": lambda objects: insert(objects[:3], objects[7:10]),
}


class AlohaExpert(Policy):
    """Looks once, at where things lie, and answers with the whole episode; it looks at no image."""

    spec = PolicySpec(observations={_OBJECTS: TensorSpec("float64")}, action_dim=14, chunk_length=STEPS)

    def new_session(self, task: Instruction, seed: int) -> ArmScript:
        if task.name not in _SCRIPTS:
            raise UsageError(f"ALOHA has no scripted expert for the task {task.name!r}.")
        return _SCRIPTS[task.name]

    def act(self, observations: Sequence[Observation], states: Sequence[ArmScript]) -> Sequence[Array]:
        return [script(seen[_OBJECTS]) for seen, script in zip(observations, states, strict=True)]

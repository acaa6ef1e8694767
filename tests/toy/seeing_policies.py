"""Policies that are trained, in a way: what they do depends on all that they see, and data sets are made of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from toy_benchmark import Toy, ToySimulator

from sparring.env_worker.benchmark import Simulator, Task
from sparring.policy_server.policies.base import Array, Instruction, Observation, Policy, PolicySpec

IMAGE, STATE = "observation.image", "observation.state"


class Seeing(Policy):
    """Acts by where the picture is light, by its colours, and by where the arm is; it may have a mistake.

    Args:
        mistake: That its author has made.
        image: What it looks at.
        state: Likewise.
        size: Of its actions.
        reads: Whether it reads the sentence, too.
        chunk: How often it does the same before it looks again.
    """

    def __init__(
        self,
        mistake: str = "",
        image: str = IMAGE,
        state: str = STATE,
        size: int = 4,
        reads: bool = False,
        chunk: int = 1,
    ) -> None:
        self.spec = PolicySpec([image, state], action_dim=size, chunk_length=chunk)
        self._names, self._size, self._mistake, self._reads = (image, state), size, mistake, reads

    def new_session(self, task: Instruction, seed: int) -> float:
        return 0.3 * (len(task) % 7) if self._reads else 0.0

    def act(self, observations: Sequence[Observation], states: Sequence[Any]) -> Sequence[Array]:
        return [
            self._act(o[self._names[0]], o[self._names[1]], said) for o, said in zip(observations, states, strict=True)
        ]

    def _act(self, image: Array, state: Array, said: float) -> Array:
        seen = image.astype(np.float64) / 255
        wrong = self._mistake
        if wrong == "upside down":
            seen = seen[::-1]
        if wrong == "mirrored":
            seen = seen[:, ::-1]
        if wrong == "turned by 180 degrees":
            seen = seen[::-1, ::-1]
        if wrong == "red and blue exchanged":
            seen = seen[..., ::-1]
        if wrong == "values from 0 to 255":
            seen = 255 * seen
        if wrong == "state negated":
            state = -state
        height, width = seen.shape[:2]
        looks = [
            seen[: height // 2].mean() - seen[height // 2 :].mean(),
            seen[:, : width // 2].mean() - seen[:, width // 2 :].mean(),
            seen[..., 0].mean() - seen[..., 2].mean(),
        ]
        moves = 0.6 * np.sin(25 * state[:3].astype(np.float64) + said) + 0.6 * np.tanh(8 * np.array(looks))
        gripper = 1.0 if np.sin(60 * float(state[0]) + 40 * float(state[1])) > 0 else -1.0
        if wrong == "gripper negated":
            gripper = -gripper
        if wrong == "actions in metres":
            moves = moves / 20
        action = np.zeros(self._size)
        action[:3], action[-1] = moves, gripper
        return np.tile(action, (self.spec.chunk_length, 1))


class Reader(Policy):
    """Goes by what it is told."""

    max_sessions = 1
    spec = PolicySpec(["position"], action_dim=1, chunk_length=4)

    def new_session(self, task: Instruction, seed: int) -> float:
        return 0.1 + 0.8 * (len(task) % 10) / 10

    def act(self, observations: Sequence[Observation], states: Sequence[float]) -> Sequence[Array]:
        return [np.full((4, 1), state) for state in states]


class NamedTasks(Toy):
    """A benchmark whose author has left its sentences out."""

    name: ClassVar[str] = "named-tasks"

    def tasks(self, selection: str) -> Sequence[Task]:
        return [Task(selection, instruction=selection, group=selection)]

    def make(self, task: Task, settings: Any) -> Simulator:
        return ToySimulator("short", settings)

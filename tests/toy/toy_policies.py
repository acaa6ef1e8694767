"""Policies that tests evaluate: good, slow, and broken in every way a user's can be."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sparring.policy_server.policies.base import Array, Instruction, Observation, Policy, PolicySpec, TensorSpec

POSITION = {"position": TensorSpec("float64", (1,))}


class Forward(Policy):
    """Goes forward by `gain`, in chunks."""

    def __init__(self, gain: float = 1.0, chunk: int = 1, history: int = 1, seconds: float = 0.0) -> None:
        self.spec = PolicySpec(POSITION, action_dim=1, chunk_length=chunk, history=history)
        self._gain = gain
        self._seconds = seconds

    def act(self, observations: Sequence[Observation], states: Sequence[Any]) -> Sequence[Array]:
        time.sleep(self._seconds)
        return [np.full((self.spec.chunk_length, 1), self._gain) for _ in observations]


class Wanderer(Policy):
    """Samples and remembers: its numbers depend on the episode's seed and on every step before."""

    spec = PolicySpec(POSITION, action_dim=1, chunk_length=4)

    def new_session(self, task: Instruction, seed: int) -> dict[str, Any]:
        return {"rng": np.random.default_rng(seed), "drift": 0.0}

    def act(self, observations: Sequence[Observation], states: Sequence[dict[str, Any]]) -> Sequence[Array]:
        chunks = []
        for observation, state in zip(observations, states, strict=True):
            state["drift"] += 0.3 - 0.1 * float(observation["position"][0])
            chunks.append(np.clip(state["rng"].normal(state["drift"], 0.5, (4, 1)), -1, 1))
        return chunks


class SlowWanderer(Wanderer):
    """Leaves others time to do harm."""

    def act(self, observations: Sequence[Observation], states: Sequence[dict[str, Any]]) -> Sequence[Array]:
        time.sleep(0.3)
        return super().act(observations, states)


class _Broken(Forward):
    """Fails in episodes of odd index, at the third step; also when that row is asked again by itself."""

    def new_session(self, task: Instruction, seed: int) -> int:
        return task.episode

    def act(self, observations: Sequence[Observation], states: Sequence[int]) -> Sequence[Array]:
        return [
            self.broken() if episode % 2 and observation.step == 2 else np.ones((1, 1))
            for observation, episode in zip(observations, states, strict=True)
        ]

    def broken(self) -> Any:
        raise NotImplementedError


class Raises(_Broken):
    def broken(self) -> Any:
        raise RuntimeError("my knees are weak")


class NeverWorks(Forward):
    """Raises whenever it is asked."""

    def act(self, observations: Sequence[Observation], states: Sequence[Any]) -> Sequence[Array]:
        raise ValueError("this cannot work")


class SaysNaN(_Broken):
    def broken(self) -> Any:
        return np.array([[np.nan]])


class WrongShape(_Broken):
    def broken(self) -> Any:
        return np.zeros((1, 3))


class DiesOnce(Forward):
    """Takes the whole server down in the middle of the first episode it ever sees."""

    def __init__(self, flag: str) -> None:
        super().__init__()
        self._flag = Path(flag)

    def act(self, observations: Sequence[Observation], states: Sequence[Any]) -> Sequence[Array]:
        if observations[0].step == 5 and not self._flag.exists():
            self._flag.touch()
            os._exit(9)
        return super().act(observations, states)


class TakesDown(_Broken):
    """Takes the whole server down, or hangs, in episodes of these numbers; each time, at the third step.

    Args:
        episodes: Numbers.
        how: exit, segfault or hang.
    """

    def __init__(self, episodes: Sequence[int], how: str) -> None:
        super().__init__()
        self._episodes = episodes
        self._how = how

    def act(self, observations: Sequence[Observation], states: Sequence[int]) -> Sequence[Array]:
        for observation, episode in zip(observations, states, strict=True):
            if episode in self._episodes and observation.step == 2:
                self.broken()
        return [np.ones((1, 1)) for _ in observations]

    def broken(self) -> Any:
        if self._how == "exit":
            os._exit(9)
        if self._how == "segfault":
            os.kill(os.getpid(), signal.SIGSEGV)
        time.sleep(3600)


class Moody(Wanderer):
    """Breaks in episodes 1 to 3 of `short`, at their second chunk: raises, says NaN, answers in another shape.

    Args:
        takes_down: What else it does, in episode 5: exit or hang.
    """

    def __init__(self, takes_down: str = "") -> None:
        self._takes_down = takes_down

    def new_session(self, task: Instruction, seed: int) -> dict[str, Any]:
        mood = {1: "raise", 2: "nan", 3: "shape", 5: self._takes_down}.get(task.episode, "")
        return {**super().new_session(task, seed), "mood": mood if task.name == "short" else ""}

    def act(self, observations: Sequence[Observation], states: Sequence[dict[str, Any]]) -> Sequence[Array]:
        asked = zip(observations, states, strict=True)
        moods = [state["mood"] if observation.step else "" for observation, state in asked]
        for mood in moods:  # before anything is remembered: the others are asked again, one by one
            if mood == "raise":
                raise RuntimeError("not today")
            if mood == "exit":
                os._exit(9)
            if mood == "hang":
                time.sleep(3600)
        spoilt = {"nan": np.full((4, 1), np.nan), "shape": np.zeros((1, 3))}
        chunks = zip(moods, super().act(observations, states), strict=True)
        return [spoilt.get(mood, chunk) for mood, chunk in chunks]


class LacksAct(Policy):
    spec = PolicySpec(POSITION)


class WantsTooMuch(Forward):
    def __init__(self) -> None:
        super().__init__()
        self.spec = PolicySpec({"image": TensorSpec("uint8", (32, 32, 3)), "depth": TensorSpec()}, action_dim=7)


class OtherImages(Forward):
    """Wants images of another size than the toy shows, or takes them and was trained on others."""

    def __init__(self, strict: bool = True) -> None:
        super().__init__()
        wanted = TensorSpec("uint8", (224, 224, 3))
        needs = POSITION | {"image": wanted if strict else TensorSpec("uint8", (-1, -1, 3))}
        self.spec = PolicySpec(needs, action_dim=1, made_for={"image": wanted})

"""What is checked: one task of a benchmark, and episodes of it played in ways that must not matter."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np

from sparring.env_worker.benchmark import NOTHING, Benchmark, Names, Observation, Simulator, Step, Task
from sparring.protos.spec import Offer
from sparring.protos.tensor import Array

EPISODES: Final = 2
STEPS: Final = 30
_LOOK_EVERY: Final = 10
SEED: Final = 1000
"""Of the first episode; as the run's seed is by default."""


@dataclass(frozen=True)
class Episode:
    """Says which episode is played."""

    seed: int
    index: int

    def __str__(self) -> str:
        return f"seed {self.seed}, index {self.index}"


@dataclass(frozen=True)
class StepFingerprint:
    """What one reset or step gave, in a form that can be compared and sent: hashes of tensors, numbers to the bit."""

    observation: Mapping[str, str]
    reward: str = ""
    ended: str = ""
    metrics: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, observation: Observation, step: Step | None = None) -> StepFingerprint:
        """Makes one of what a simulator returned."""
        seen = {name: fingerprint(array) for name, array in sorted(observation.items())}
        if step is None:
            return cls(seen)
        ended = f"terminated={step.terminated} truncated={step.truncated} success={step.success}"
        return cls(seen, float(step.reward).hex(), ended, {k: float(v).hex() for k, v in step.metrics.items()})

    def difference(self, other: StepFingerprint) -> str:
        """Says what differs, in words; of observations only those that both have. Empty: nothing."""
        for name in sorted(self.observation.keys() & other.observation.keys()):
            if self.observation[name] != other.observation[name]:
                return f"the observation {name!r} differs"
        if self.reward != other.reward:
            return f"the reward is {_shown(self.reward)} in one and {_shown(other.reward)} in the other"
        if self.ended != other.ended:
            return f"one has {self.ended}, the other {other.ended}"
        return "the metrics differ" if self.metrics != other.metrics else ""


EpisodeFingerprint = list[StepFingerprint]


def difference(one: EpisodeFingerprint, other: EpisodeFingerprint) -> str:
    """Says what the first difference of two plays of an episode is; empty: none."""
    for number, (left, right) in enumerate(zip(one, other, strict=False)):
        if found := left.difference(right):
            return f"{found} {'after reset' if number == 0 else f'at step {number}'}"
    if len(one) != len(other):
        return f"one ends after {len(one) - 1} steps, the other after {len(other) - 1}"
    return ""


def fingerprint(array: Array) -> str:
    """Returns a hash of a tensor's type, shape and bytes."""
    tensor = np.ascontiguousarray(array)
    return hashlib.sha256(f"{tensor.dtype} {tensor.shape} ".encode() + tensor.tobytes()).hexdigest()


class Subject:
    """One task of a benchmark under test.

    Args:
        benchmark: Whose.
        task: Which.
        settings: Of the benchmark.
        arguments: The same as they were given, for another process.
        episodes: How many episodes are compared.
        steps: How many steps of each, at most.
    """

    def __init__(
        self,
        benchmark: Benchmark,
        task: Task,
        settings: Any,
        arguments: Mapping[str, Any],
        *,
        episodes: int = EPISODES,
        steps: int = STEPS,
    ) -> None:
        self.benchmark = benchmark
        self.task = task
        self.settings = settings
        self.arguments = arguments
        self.episodes = [Episode(SEED + index, index) for index in range(episodes)]
        self.steps = steps
        self._shared: Simulator | None = None

    @contextmanager
    def simulator(self) -> Iterator[Simulator]:
        """One that rules share, as the episodes of a slot do; whoever finds it broken leaves the next one a new one."""
        simulator = self._shared or self.benchmark.make(self.task, self.settings)
        self._shared = None
        try:
            yield simulator
        except BaseException:
            simulator.close()
            raise
        self._shared = simulator

    @contextmanager
    def new_simulator(self) -> Iterator[Simulator]:
        """One of its own, closed at the end."""
        simulator = self.benchmark.make(self.task, self.settings)
        try:
            yield simulator
        finally:
            simulator.close()

    def close(self) -> None:
        """Closes the one that is shared."""
        if self._shared is not None:
            self._shared.close()
            self._shared = None

    @cached_property
    def reference(self) -> list[EpisodeFingerprint]:
        """Every episode, by a new simulator: what other ways are compared with."""
        with self.new_simulator() as simulator:
            return [self.play(simulator, episode) for episode in self.episodes]

    def play(
        self, simulator: Simulator, episode: Episode, *, look: Callable[[int], Names] | None = None, steps: int = 0
    ) -> EpisodeFingerprint:
        """Plays the beginning of an episode with random actions, always the same.

        Args:
            simulator: Of this task.
            episode: Which.
            look: What to look at after so many steps; by default at everything, now and then: images take their time.
            steps: How many; by default as many as this subject says.
        """
        everything, count = frozenset(simulator.offers.observations), steps or self.steps
        looks = look or (lambda number: everything if number in (1, count) or number % _LOOK_EVERY == 0 else NOTHING)
        with strange_generators():
            trace = [StepFingerprint.of(simulator.reset(seed=episode.seed, index=episode.index, look=looks(0)))]
            for number, action in enumerate(actions(simulator.offers, episode.seed, count), start=1):
                step = simulator.step(action, look=looks(number))
                trace.append(StepFingerprint.of(step.observation, step))
                if step.terminated or step.truncated:
                    break
        return trace


def actions(offers: Offer, seed: int, count: int) -> Array:
    """Actions within the bounds, always the same for a seed; unbounded ones within -1 and 1."""
    low, high = bounds(offers)
    return np.random.default_rng(seed).uniform(low, high, (count, offers.action_dim))


def bounds(offers: Offer) -> tuple[Array, Array]:
    """The action space, with -1 and 1 where it has no end."""
    low, high = np.array(offers.action_low), np.array(offers.action_high)
    return np.where(np.isfinite(low), low, np.minimum(-1.0, high)), np.where(
        np.isfinite(high), high, np.maximum(1.0, low)
    )


_plays = 0


@contextmanager
def strange_generators() -> Iterator[None]:
    """Gives Python's and numpy's global generators another state in every play: nothing may come from them unseeded."""
    global _plays
    _plays += 1
    before, numpy_before = random.getstate(), np.random.get_state()
    random.seed(_plays)
    np.random.seed(_plays)
    try:
        yield
    finally:
        random.setstate(before)
        np.random.set_state(numpy_before)


def _shown(number: str) -> str:
    return repr(float.fromhex(number)) if number else "none"

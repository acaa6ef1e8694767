"""Policies that know nothing: `random` and `zero`. They look at anything, to imitate another policy's load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sparring.policy_server.policies.base import Array, Instruction, Observation, Policy, PolicySpec


class _Blind(Policy):
    instant = True

    def __init__(self, *, chunk: int = 1, observations: Sequence[str] = (), history: int = 1) -> None:
        self.spec = PolicySpec(observations=observations, chunk_length=chunk, history=history)


class ZeroPolicy(_Blind):
    """Does nothing, in chunks of `chunk` actions."""

    def new_session(self, task: Instruction, seed: int) -> Array:
        return np.zeros((self.spec.chunk_length, task.offer.action_dim), np.float32)

    def act(self, observations: Sequence[Observation], states: Sequence[Array]) -> Sequence[Array]:
        return states


@dataclass
class _ActionSampler:
    generator: np.random.Generator
    low: Array
    high: Array

    def draw(self, length: int) -> Array:
        # Scaled by hand: uniform() refuses a range that is wider than the largest float.
        drawn = self.generator.random((length, len(self.low)))
        return (self.low * (1.0 - drawn) + self.high * drawn).astype(np.float32)


class RandomPolicy(_Blind):
    """Uniform in the action space, in chunks of `chunk` actions; the episode's seed decides every number."""

    def new_session(self, task: Instruction, seed: int) -> _ActionSampler:
        low, high = np.asarray(task.offer.action_low), np.asarray(task.offer.action_high)
        # Unbounded axes exist in Gymnasium; one unit from the bound there is, or around zero, is as good as any.
        floor = np.where(np.isfinite(low), low, np.where(np.isfinite(high), high - 1.0, -1.0))
        ceiling = np.where(np.isfinite(high), high, np.where(np.isfinite(low), low + 1.0, 1.0))
        return _ActionSampler(np.random.default_rng(seed), floor, ceiling)

    def act(self, observations: Sequence[Observation], states: Sequence[_ActionSampler]) -> Sequence[Array]:
        length = self.spec.chunk_length
        return [s.draw(length) for s in states]

"""Policies that do what policies do wrong, on command: the observation or the task says when."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from sparring.policy_server.policies.base import Array, Instruction, Observation, Policy, PolicySpec, TensorSpec

SIGNAL = "signal"

FINE, RAISE, NAN, WRONG_SHAPE, TOO_LONG, TEXT, RAGGED, LONG_DOUBLE, EXIT, WORDY, ODD_WORDS, GRADIENT = range(12)


class WantsGradient:
    """What a torch tensor does that is still part of a graph, where there is no torch."""

    def __array__(self, *arguments: Any, **more: Any) -> Any:
        raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")


class Alone(Policy):
    """Has one session at a time."""

    max_sessions = 1
    spec = PolicySpec({}, action_dim=1)

    def act(self, observations: Sequence[Observation], states: Sequence[Any]) -> Sequence[Any]:
        return [np.zeros((1, 1)) for _ in observations]


class Fragile(Policy):
    """Answers `signal` + 0.5 in both dimensions, or fails in the way that `signal` asks for."""

    spec = PolicySpec({SIGNAL: TensorSpec("float64", (1,))}, action_dim=2, chunk_length=3)

    def new_session(self, task: Instruction, seed: int) -> dict[str, Any]:
        if task.name == "unstartable":
            raise RuntimeError("no such thing can be started")
        return {"seed": seed, "answered": 0}

    def act(self, observations: Sequence[Observation], states: Sequence[dict[str, Any]]) -> Sequence[Any]:
        for state in states:
            state["answered"] += 1
        return [self._row(float(o[SIGNAL][0]), s["seed"]) for o, s in zip(observations, states, strict=True)]

    def _row(self, signal: float, seed: int) -> Any:
        if signal == RAISE:
            raise ZeroDivisionError(f"seed {seed} divided by zero")
        if signal == EXIT:
            raise SystemExit("I quit")
        if signal == WORDY:
            raise RuntimeError("Error(s) in loading state_dict:\n" + "\tsize mismatch for layer.weight;\n" * 3000)
        if signal == ODD_WORDS:
            raise RuntimeError("cannot read \udcff\n\x00 naïve 力")
        return {
            NAN: [[0.0, float("nan")]],
            WRONG_SHAPE: np.zeros((1, 3)),
            TOO_LONG: np.zeros((4, 2)),
            TEXT: [["left", "right"]],
            RAGGED: [[1.0, 2.0], [3.0]],
            LONG_DOUBLE: np.zeros((1, 2), np.longdouble),
            GRADIENT: WantsGradient(),
        }.get(int(signal), np.full((1, 2), signal + 0.5))


class Chatty(Policy):
    """Prints more than a pipe holds with every answer."""

    spec = PolicySpec(action_dim=1)

    def act(self, observations: Sequence[Observation], states: Sequence[None]) -> Sequence[Array]:
        print("x" * 200_000)  # noqa: T201 - that is the fault
        return [np.zeros((1, 1))] * len(observations)


class Slow(Policy):
    """Takes its time, and answers with the episode's seed."""

    spec = PolicySpec(action_dim=1)

    def __init__(self, *, seconds: float) -> None:
        self.seconds = seconds

    def new_session(self, task: Instruction, seed: int) -> int:
        return seed

    def act(self, observations: Sequence[Observation], states: Sequence[int]) -> Sequence[Array]:
        time.sleep(self.seconds)
        return [np.full((1, 1), float(seed)) for seed in states]

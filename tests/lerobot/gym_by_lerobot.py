"""LeRobot's own loop over environments of Gymnasium's packages, with actions that are known beforehand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from sparring.protos.tensor import Array


class Recited(torch.nn.Module):
    """A policy that says the actions that it was given, whatever it sees."""

    def __init__(self, actions: Array) -> None:
        super().__init__()
        self._actions = torch.from_numpy(actions)
        self._said = 0

    def reset(self) -> None:
        self._said = 0

    def select_action(self, observation: Any) -> torch.Tensor:
        self._said += 1
        return self._actions[self._said - 1][None]


def rollout(config: Any, actions: Array, seed: int) -> dict[str, Any]:
    """What `lerobot.scripts.lerobot_eval.rollout` returns of one episode, with what was seen."""
    from lerobot.envs.factory import make_env
    from lerobot.scripts.lerobot_eval import rollout as by_lerobot

    ((suite, envs),) = make_env(config, n_envs=1).items()
    assert (suite, list(envs)) == (config.type, [0])

    def same(given: Any) -> Any:
        return given

    found: dict[str, Any] = by_lerobot(
        envs[0], Recited(actions), same, same, same, same, seeds=[seed], return_observations=True
    )
    envs[0].close()
    return found


def by_sparring(simulator: Any, actions: Array, seed: int, names: Sequence[str]) -> dict[str, Any]:
    """The same episode here, as LeRobot puts it."""
    look = frozenset(names)
    seen = [simulator.reset(seed=seed, index=0, look=look)]
    steps = []
    for action in actions:
        steps.append(simulator.step(action, look=look))
        seen.append(steps[-1].observation)
        if steps[-1].terminated or steps[-1].truncated:
            break
    return {
        "observation": {name: np.stack([one[name] for one in seen]) for name in names},
        "reward": [step.reward for step in steps],
        "success": [bool(step.success) for step in steps],
        "done": [step.terminated or step.truncated for step in steps],
    }


def assert_same(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Bit by bit: what was seen at every step, success and ends; and rewards, but for the last bit.

    gym-pusht sums areas in the order of a set, which is another in every process.
    """
    assert ours["reward"] == pytest.approx(theirs["reward"][0].tolist(), rel=1e-15)
    assert ours["success"] == theirs["success"][0].tolist()
    assert ours["done"] == theirs["done"][0].tolist()
    assert set(ours["observation"]) == set(theirs["observation"])
    for name, shown in ours["observation"].items():
        tensor = torch.from_numpy(shown)
        if shown.dtype == np.uint8:
            tensor = tensor.permute(0, 3, 1, 2).contiguous().type(torch.float32) / 255
        # The last is of an episode that LeRobot has begun anew, where this one has ended.
        assert torch.equal(tensor[:-1], theirs["observation"][name][0, :-1]), name
        assert tensor.dtype == theirs["observation"][name].dtype

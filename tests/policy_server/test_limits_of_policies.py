"""How much of a policy is told, searched and remembered: what just fits, and what is one more."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sparring.policy_server import calls
from sparring.policy_server.calls import in_short
from sparring.policy_server.policies import preserve, replay
from sparring.policy_server.policies.preserve import _within
from sparring.protos.conditions import Conditions


def test_what_an_exception_says() -> None:
    room = calls._LONGEST - len("ValueError: ")
    assert in_short(ValueError("x" * room)) == f"ValueError: {'x' * room}"
    cut = in_short(ValueError("x" * (room + 1)))
    assert cut.endswith("x ...")
    assert cut.count("x") <= room


class Holder:
    def __init__(self, held: Any) -> None:
        self.held = held


@pytest.mark.parametrize("made", [list, tuple, set, lambda numbers: {number: number for number in numbers}])
def test_containers_that_are_searched_for_modules(made: Callable[[list[float]], Any]) -> None:
    for count in (preserve._LONGEST, preserve._LONGEST + 1):
        numbers = [0.5 + number for number in range(count)]
        found = list(_within(made(numbers)))
        assert len(found) == (1 + count if count <= preserve._LONGEST else 1)


def test_how_deep_modules_are_searched_for() -> None:
    module = object()

    def nested(levels: int) -> Any:
        thing: Any = module
        for _ in range(levels):
            thing = [thing]
        return thing

    assert module in list(_within(nested(preserve._DEPTH)))
    assert module not in list(_within(nested(preserve._DEPTH + 1)))


def test_how_deep_changes_of_a_networks_memory_are_noticed() -> None:
    from sparring.policy_server.policies._lerobot import module_state

    def is_noticed(levels: int) -> bool:
        network: Any = SimpleNamespace(_buffers={}, memory=[0])
        inner = network.memory
        for _ in range(levels - 1):
            network.memory = [network.memory]
        changes = module_state.Changes(network)
        inner[0] = 1
        return changes.names() == {"memory"}

    assert is_noticed(module_state._DEPTH)
    assert not is_noticed(module_state._DEPTH + 1)


def test_warnings_of_recordings_that_were_made_by_other_conditions(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", one=np.zeros((3, 2), np.float32))
    policy = replay.ReplayPolicy(file=str(tmp_path / "a.npz"), strict=False)
    policy.warnings.clear()
    tape = replay._Tape(np.zeros((3, 2), np.float32), conditions=Conditions(rules={"steps": 1}))
    for number in range(replay._MOST_WARNINGS + 1):
        policy._check(f"toy/short/{number}", tape, Conditions(rules={"steps": 2}))
        assert len(policy.warnings) == min(number + 1, replay._MOST_WARNINGS)

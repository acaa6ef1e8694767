"""Other names for what a policy looks at, whether it knows of that or not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from sparring.policy_server.policies import load_policy
from sparring.policy_server.policies.base import Array, Instruction, Observation, Policy, PolicySpec, TensorSpec
from sparring.protos.errors import UsageError
from sparring.protos.spec import Offer


class Wrist(Policy):
    """Knows nothing of other names."""

    checkpoint_sha256 = "abc"
    instant = True
    spec = PolicySpec({"wrist": TensorSpec("float32", (2,)), "state": TensorSpec("float32", (2,))}, action_dim=2)

    def act(self, observations: Sequence[Observation], states: Sequence[Any]) -> Sequence[Array]:
        return [np.stack([o["wrist"] - o["state"]]) for o in observations]


class Knowing(Wrist):
    """Has a use of its own for the argument."""

    def __init__(self, rename: dict[str, str]) -> None:
        self.given = rename


def load(name: str, **arguments: Any) -> Any:
    return load_policy(f"{__name__}:{name}", arguments)


def test_it_asks_for_the_benchmark_s_name_and_is_shown_its_own() -> None:
    policy = load("Wrist", rename={"wrist": "observation.images.image2"})
    assert list(policy.spec.named) == ["observation.images.image2", "state"]
    assert policy.spec_for("any").named["observation.images.image2"] == TensorSpec("float32", (2,))
    assert policy.spec.own_names == {"observation.images.image2": "wrist", "state": "state"}
    shown = {"observation.images.image2": np.array([5, 7], np.float32), "state": np.array([1, 2], np.float32)}
    task = Instruction("do", offer=Offer({}, (-1.0,), (1.0,)))
    (answer,) = policy.act([Observation(shown, task)], [None])
    assert answer.tolist() == [[4, 5]]
    assert (policy.checkpoint_sha256, policy.instant) == ("abc", True)


def test_names_may_be_exchanged() -> None:
    policy = load("Wrist", rename={"wrist": "state", "state": "wrist"})
    shown = {"state": np.array([5, 7], np.float32), "wrist": np.array([1, 2], np.float32)}
    (answer,) = policy.act([Observation(shown, Instruction("do", offer=Offer({}, (-1.0,), (1.0,))))], [None])
    assert answer.tolist() == [[4, 5]]


def test_a_policy_that_knows_the_argument_gets_it() -> None:
    assert load("Knowing", rename={"wrist": "x"}).given == {"wrist": "x"}


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        ({"wirst": "x"}, "unknown observation of the policy: 'wirst'. Did you mean 'wrist'"),
        ({"wrist": "state"}, "would both be 'state'"),
        ({"wrist": 3}, "rename must map"),
        (["wrist"], "rename must map"),
    ],
)
def test_names_that_cannot_be(names: Any, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        load("Wrist", rename=names)

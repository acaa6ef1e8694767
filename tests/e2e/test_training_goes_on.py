"""What an evaluation leaves as it was in the program that trains: modes, random numbers, settings of torch, threads."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from toy_policies import POSITION

from sparring import Evaluator
from sparring.policy_server.policies.base import Observation, Policy, PolicySpec
from sparring.policy_server.policies.torch import Batch, TorchPolicy

TOY: dict[str, Any] = {"benchmark": "toy", "tasks": "short", "episodes": 3, "slots": 2}


@pytest.fixture(scope="module")
def evaluator() -> Iterator[Evaluator]:
    with Evaluator() as made:
        yield made


def network() -> torch.nn.Sequential:
    return torch.nn.Sequential(torch.nn.Linear(1, 16), torch.nn.Dropout(0.5), torch.nn.Linear(16, 1))


class Restless(Policy):
    """Draws from every generator there is, in everything it does: what a user's own policy may do without a thought."""

    spec = PolicySpec(POSITION, action_dim=1)

    def __init__(self, network: torch.nn.Module) -> None:
        self.network = network

    def warm_up(self) -> None:
        self.throw()

    def new_session(self, task: Any, seed: int) -> None:
        self.throw()

    def throw(self) -> None:
        torch.randn(3)
        np.random.rand(3)
        random.random()

    def act(self, observations: Sequence[Observation], states: Sequence[Any]) -> Sequence[Any]:
        self.throw()
        with torch.no_grad():
            return [self.network(torch.tensor(o["position"]).float())[None].numpy() for o in observations]


def trained(evaluator: Evaluator | None) -> bytes:
    """The weights after a small training that draws from everywhere, with evaluations in between or without."""
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)
    module = network()
    optimiser = torch.optim.Adam(module.parameters(), lr=0.01)
    for step in range(6):
        if evaluator is not None and step % 2 == 0:
            evaluator.evaluate(Restless(module), **TOY)
        noise = torch.randn(8, 1) + float(np.random.normal()) + random.random()
        loss = (module(noise) - 1.0).square().mean()
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return b"".join(value.numpy().tobytes() for value in module.state_dict().values())


def test_training_is_the_same_bit_by_bit_with_and_without_evaluations(evaluator: Evaluator) -> None:
    assert trained(evaluator) == trained(None)


def test_generators_are_not_turned_back_under_a_training_that_goes_on_meanwhile(evaluator: Evaluator) -> None:
    """Who evaluates a copy in another thread trains on in this one: it would draw the same numbers twice."""
    thread = threading.Thread(target=evaluator.evaluate, args=(Restless(network()),), kwargs=TOY)
    torch.manual_seed(0)
    thread.start()
    drawn = []
    while thread.is_alive():
        drawn.append(float(torch.rand(1)))
        time.sleep(0.01)
    drawn += torch.rand(50).tolist()
    assert len(set(drawn)) > len(drawn) - 5, "few repetitions by chance, none by the hundred"


class Merging(torch.nn.Linear):
    """As adapters do it: in evaluation the correction is merged into the weights, in training it is kept apart."""

    merged = False

    def train(self, mode: bool = True) -> Merging:
        if self.merged == mode:
            self.weight.data += 1.0 if self.merged is False else -1.0
            self.merged = not mode
        super().train(mode)
        return self


class Hiding(Policy):
    """Has its modules in all the places where modules can be."""

    spec = PolicySpec(POSITION, action_dim=1)

    class Holder:
        def __init__(self) -> None:
            self.module = network()

    def __init__(self) -> None:
        self.plain = network()
        self.listed = [network(), {"one": network()}]
        self.held = self.Holder()
        self.frozen = torch.nn.Sequential(network(), network().eval())
        self.merging = torch.nn.Sequential(Merging(1, 1), Merging(1, 1))
        self.merging[1].eval()
        self.myself = self  # a circle
        self.seen: list[list[bool]] = []

    def modules(self) -> list[torch.nn.Module]:
        inner: Any = self.listed[1]
        roots = [self.plain, self.listed[0], inner["one"], self.held.module, self.frozen, self.merging]
        return [module for root in roots for module in root.modules()]  # type: ignore[union-attr]

    def modes(self) -> list[bool]:
        return [module.training for module in self.modules()]

    def act(self, observations: Sequence[Observation], states: Sequence[Any]) -> Sequence[Any]:
        self.seen.append(self.modes())
        return [np.ones((1, 1)) for _ in observations]


def test_modules_are_found_wherever_they_are_and_get_their_own_mode_back(evaluator: Evaluator) -> None:
    policy = Hiding()
    before, weights = policy.modes(), [float(layer.weight.data) for layer in policy.merging]
    assert True in before
    assert False in before
    evaluator.evaluate(policy, **TOY)
    assert policy.seen
    assert not any(any(modes) for modes in policy.seen), "a module was in training mode while it was evaluated"
    assert policy.modes() == before
    assert [float(layer.weight.data) for layer in policy.merging] == weights, (
        "what eval() did has to be undone by train()"
    )


class Caching(torch.nn.Module):
    """Keeps what it has made in its first forward pass, as rotary embeddings do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.cache: Any = None

    def forward(self, x: Any) -> Any:
        if self.cache is None:
            self.cache = torch.full((1, 1), 2.0)
        return self.layer(x) * self.cache


class Cloned(TorchPolicy):
    spec = PolicySpec(POSITION, action_dim=1)

    def __init__(self, module: torch.nn.Module, **options: Any) -> None:
        super().__init__(device="cpu", **options)
        self.network = module
        self.modes: set[tuple[bool, bool]] = set()

    def forward(self, batch: Batch) -> Any:
        self.modes.add((torch.is_inference_mode_enabled(), torch.are_deterministic_algorithms_enabled()))
        return self.network(batch["position"])


def test_what_a_module_keeps_of_an_evaluation_can_be_trained_with(evaluator: Evaluator) -> None:
    policy = Cloned(Caching())
    evaluator.evaluate(policy, **TOY)
    assert policy.network.cache is not None
    policy.network(torch.ones(4, 1)).sum().backward()
    assert policy.network.layer.weight.grad is not None
    assert policy.modes == {(False, False)}
    frozen = Cloned(Caching().requires_grad_(False))
    evaluator.evaluate(frozen, **TOY)
    assert frozen.modes == {(True, False)}, "what is not in training is computed in the quicker mode"


def test_deterministic_mode_is_the_policys_and_not_the_programs(evaluator: Evaluator) -> None:
    benchmark = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        policy = Cloned(network(), deterministic=True)
        evaluator.evaluate(policy, **TOY)
        assert policy.modes == {(False, True)}
        assert not torch.are_deterministic_algorithms_enabled()
        assert torch.backends.cudnn.benchmark
    finally:
        torch.backends.cudnn.benchmark = benchmark


class Placed(Cloned):
    """What it does depends on where in a batch it is asked."""

    def forward(self, batch: Batch) -> Any:
        return super().forward(batch) + 1e-6 * torch.arange(len(batch))[:, None]


def test_where_deterministic_mode_computes_rows_one_by_one_the_results_say_so(evaluator: Evaluator) -> None:
    results = evaluator.evaluate(Placed(network(), deterministic=True), **TOY)
    (warning,) = results.warnings
    assert "rows are computed one by one and not 8 at a time" in warning
    assert results.to_json()["warnings"] == [warning]


class Slow(Restless):
    """In the middle of a forward pass for a long time."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__(module)
        self.entered = threading.Event()
        self.inside = 0
        self.disturbed = False

    def act(self, observations: Sequence[Observation], states: Sequence[Any]) -> Sequence[Any]:
        self.inside += 1
        self.entered.set()
        time.sleep(1.0)
        self.disturbed |= self.network.training
        self.inside -= 1
        return super().act(observations, states)


def test_after_ctrl_c_nobody_uses_the_policy_any_more(evaluator: Evaluator) -> None:
    policy = Slow(network())

    def interrupt() -> None:
        assert policy.entered.wait(30)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    torch.manual_seed(3)
    with pytest.raises(KeyboardInterrupt):
        evaluator.evaluate(policy, **TOY)
    assert policy.inside == 0, "a thread is still in the middle of the policy"
    assert not policy.disturbed, "its modules were in training again under its hands"
    assert policy.network.training
    drawn = torch.rand(1)
    torch.manual_seed(3)
    assert torch.equal(torch.rand(1), drawn)
    assert evaluator.evaluate(Restless(network()), **TOY).overall.n == 3

"""The episode: when the policy looks, what it sees, and what is counted."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from toy_benchmark import Toy, ToySettings, ToySimulator

from sparring.env_worker.benchmark import Names, Step
from sparring.env_worker.episode.play import Order, UnusableStep, run_episode
from sparring.env_worker.episode.session import Session
from sparring.policy_server.client import PolicyFailed
from sparring.policy_server.local import LocalPolicy, LocalSession
from sparring.policy_server.policies import load_policy
from sparring.protos.chunk import Chunk
from sparring.protos.episode_rules import EpisodeRules
from sparring.protos.spec import PolicySpec
from sparring.protos.tensor import Array

POSITION = frozenset({"position"})


def playing(simulator: ToySimulator, policy: str, **arguments: object) -> LocalSession:
    """A session of a real policy."""
    return LocalPolicy(load_policy(policy, arguments), name=policy).open(simulator.offers)


def toy(name: str = "short") -> tuple[ToySimulator, Order]:
    task = Toy().tasks(name)[0]
    return ToySimulator(name, ToySettings()), Order(task=task, index=0, seed=3)


def with_(order: Order, **changes: object) -> Order:
    return Order(**{**vars(order), **changes})


def test_a_chunk_is_played_with_one_look() -> None:
    simulator, order = toy()
    session = playing(simulator, "toy_policies:Forward", chunk=5)
    record = run_episode(simulator, session, order)
    looks = [step for step, look in enumerate(simulator.looked) if look]
    assert looks == list(range(0, record.steps, 5)), "a look at the last step is for nobody"
    assert record.round_trips == (record.steps - 1) // 5 + 1
    assert set().union(*simulator.looked) == POSITION, "only what the policy asked for"


def test_every_step_looks_at_every_step_and_changes_nothing() -> None:
    simulator, order = toy()
    session = playing(simulator, "toy_policies:Wanderer")
    lazy = run_episode(simulator, session, order)
    eager = run_episode(simulator, session, with_(order, rules=EpisodeRules(observe="every-step")))
    assert all(simulator.looked)
    assert (lazy.reward_sum, lazy.steps, lazy.outcome) == (eager.reward_sum, eager.steps, eager.outcome)


def test_history_looks_at_the_last_steps_of_a_chunk() -> None:
    simulator, order = toy()
    session = playing(simulator, "toy_policies:Forward", chunk=5, history=2)
    record = run_episode(simulator, session, order)
    looks = [step for step, look in enumerate(simulator.looked) if look]
    assert looks == [s for s in range(record.steps) if s % 5 == 0 or s % 5 == 4]


@pytest.mark.parametrize(("history", "looked"), [(1, {0}), (2, {0, 1})])
def test_only_so_many_actions_of_a_chunk_are_played_before_it_looks_again(history: int, looked: set[int]) -> None:
    simulator, order = toy()
    session = playing(simulator, "toy_policies:Forward", chunk=5, history=history)
    record = run_episode(simulator, session, with_(order, rules=EpisodeRules(actions_per_look=2)))
    assert record.round_trips == (record.steps - 1) // 2 + 1
    looks = [step for step, look in enumerate(simulator.looked) if look]
    assert looks == [step for step in range(record.steps) if step % 2 in looked]


def test_a_chunk_that_is_shorter_is_played_whole() -> None:
    simulator, order = toy()
    session = playing(simulator, "toy_policies:Forward", chunk=2)
    record = run_episode(simulator, session, with_(order, rules=EpisodeRules(actions_per_look=5)))
    assert record.round_trips == (record.steps - 1) // 2 + 1


def test_actions_that_are_not_played_are_not_counted() -> None:
    simulator, order = toy()
    script = Script([np.array([[0.0], [9.0]])] * 20)
    record = run_episode(simulator, script, with_(order, rules=EpisodeRules(actions_per_look=1, max_steps=3)))
    assert (record.steps, record.out_of_range) == (3, 0)


class Script(Session):
    """Stands in for a policy's session: what an episode asks of one can be seen, and what it is answered is set, only
    with a session of our own. It is what the episode knows of a policy, no more and no less."""

    def __init__(self, chunks: list[Array], *, history: int = 1) -> None:
        self._chunks = iter(chunks)
        self._needs = PolicySpec(["step"], action_dim=1, chunk_length=100, history=history)
        self.asked: list[object] = []

    @property
    def needs(self) -> PolicySpec:
        return self._needs

    def start(self, *, task: str, instruction: str, seed: int, index: int) -> None:
        self.asked.append((task, instruction, seed, index))

    def act(self, tensors: Mapping[str, Array], *, step: int) -> Chunk:
        assert set(tensors) == {"step"}
        self.asked.append((step, tensors["step"].tolist()))
        return Chunk(next(self._chunks), policy_seconds=2.0, transport_seconds=0.5, batch_size=1)


def test_an_episode_starts_once_and_asks_at_the_end_of_each_chunk_however_long_that_is() -> None:
    simulator, order = toy()
    session = Script([np.zeros((n, 1)) for n in (3, 1, 4, 100)])
    record = run_episode(simulator, session, order)
    assert session.asked == [("short", "Go a little", 3, 0), (0, 0), (3, 3), (4, 4), (8, 8)]
    assert (record.steps, record.round_trips, record.outcome) == (20, 4, "failure")
    assert (record.policy_s, record.transport_s) == (8.0, 2.0)


def test_the_rest_of_a_chunk_is_not_played_when_the_episode_has_ended() -> None:
    simulator, order = toy()
    record = run_episode(simulator, Script([np.full((100, 1), 10.0)]), order)
    assert record.outcome == "success"
    assert record.steps == 2
    assert record.out_of_range == 2, "of the actions executed, not of those that were not"


def test_the_episode_needs_no_grpc() -> None:
    code = "import sys, sparring.env_worker.episode.play; assert 'grpc' not in sys.modules, 'grpc was imported'"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)


@pytest.mark.parametrize(
    ("chunk", "history", "expected"),
    [
        (1, 3, [[0, 0, 0], [0, 0, 1], [0, 1, 2], [1, 2, 3]]),
        (2, 3, [[0, 0, 0], [0, 1, 2], [2, 3, 4], [4, 5, 6]]),
        (4, 2, [[0, 0], [3, 4], [7, 8], [11, 12]]),
    ],
)
def test_history_is_of_consecutive_steps_padded_at_the_start(
    chunk: int, history: int, expected: list[list[int]]
) -> None:
    simulator, order = toy()
    session = Script([np.zeros((chunk, 1))] * 20, history=history)
    run_episode(simulator, session, order)
    assert [seen for _, seen in session.asked[1:5]] == expected


def test_what_is_counted() -> None:
    simulator, order = toy()
    session = playing(simulator, "toy_policies:Forward")
    record = run_episode(simulator, session, order)
    start = float(np.random.default_rng(3).uniform(-1, 0))
    rewards = []
    while not rewards or rewards[-1] < 1.0:
        start += 0.1
        rewards.append(start)
    assert record.outcome == "success"
    assert record.steps == record.round_trips == len(rewards)
    assert record.reward_sum == pytest.approx(sum(rewards))
    assert record.reward_max == pytest.approx(max(rewards))
    assert record.renders == 0
    assert record.physics_s > 0
    assert record.transport_s > 0


def test_a_limit_ends_the_episode_as_a_failure() -> None:
    simulator, order = toy()
    session = playing(simulator, "zero")
    assert run_episode(simulator, session, with_(order, rules=EpisodeRules(max_steps=7))).steps == 7
    record = run_episode(simulator, session, order)
    assert (record.steps, record.outcome) == (simulator.max_steps, "failure")


def test_a_policy_that_fails_ends_the_episode_with_its_message() -> None:
    simulator, order = toy()
    session = playing(simulator, "toy_policies:Raises")
    with pytest.raises(PolicyFailed, match="my knees are weak"):
        run_episode(simulator, session, with_(order, index=1))


def test_the_toy_shows_what_it_offers() -> None:
    simulator, _ = toy()
    seen = simulator.reset(seed=0, index=0, look=frozenset(simulator.offers.observations))
    for name, spec in simulator.offers.observations.items():
        assert (seen[name].dtype.name, seen[name].shape) == (spec.dtype, spec.shape)


class Measured(ToySimulator):
    """Reports what it is told to report at each step."""

    def __init__(self, *steps: Mapping[str, float], reward: float = 0.0) -> None:
        super().__init__("short", ToySettings())
        self._reports = steps
        self._reward = reward
        self.max_steps = len(steps)

    def step(self, action: Array, *, look: Names) -> Step:
        step = super().step(action, look=look)
        return replace(step, metrics=self._reports[self._steps - 1], reward=self._reward)


def measured(simulator: Measured) -> dict[str, float]:
    order = Order(task=Toy().tasks("short")[0], index=0, seed=3)
    return run_episode(simulator, playing(simulator, "toy_policies:Forward"), order).metrics


def test_of_each_metric_the_last_value_is_the_episodes() -> None:
    metrics = measured(Measured({"drawers": 2}, {"distance": np.float32(0.5)}, {"distance": 0.25}, {}))
    assert metrics == {"drawers": 2.0, "distance": 0.25}
    assert {type(value) for value in metrics.values()} == {float}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_metric_that_is_no_finite_number_is_an_error(value: float) -> None:
    with pytest.raises(UnusableStep, match=f"reported {value} as its metric 'distance' at step 2"):
        measured(Measured({"distance": 1.0}, {"distance": value}, {"distance": 1.0}))


@pytest.mark.parametrize("reward", [math.nan, math.inf, -math.inf])
def test_a_reward_that_is_no_finite_number_is_an_error(reward: float) -> None:
    with pytest.raises(UnusableStep, match=f"the reward {reward} for step 1"):
        measured(Measured({}, {}, reward=reward))


def test_rewards_that_add_up_to_no_finite_number_are_an_error() -> None:
    with pytest.raises(UnusableStep, match="add up to inf at step 2"):
        measured(Measured({}, {}, {}, reward=1.7e308))


@pytest.mark.parametrize(
    ("said", "outcome"),
    [((None, None), "played"), ((None, False), "failure"), ((True, None), "success"), ((False, None), "failure")],
)
def test_an_outcome_is_what_the_simulator_says_and_nothing_where_it_says_nothing(
    said: tuple[bool | None, ...], outcome: str
) -> None:
    class Saying(ToySimulator):
        def step(self, action: Array, *, look: Names) -> Step:
            step = super().step(action, look=look)
            return replace(step, success=said[self._steps - 1], terminated=self._steps == len(said))

    simulator = Saying("short", ToySettings())
    record = run_episode(simulator, playing(simulator, "toy_policies:Forward"), toy()[1])
    assert (record.outcome, record.steps) == (outcome, 2)

"""Replays: the same steps, rewards and outcome from the actions alone; what is not the same is told."""

from __future__ import annotations

import av
import numpy as np
import pytest
from encoded import encoded_frames
from toy_benchmark import ToySettings, ToySimulator
from toy_policies import Forward

from sparring.env_worker.benchmark import Step, Task
from sparring.env_worker.episode.film import Film
from sparring.env_worker.episode.kept_actions import KeptActions
from sparring.env_worker.episode.observers import EpisodeObserver
from sparring.env_worker.episode.play import Order, run_episode
from sparring.env_worker.episode.replay import ReplayDiverged, replay_episode
from sparring.policy_server.local import LocalPolicy
from sparring.policy_server.policies.base import Policy
from sparring.protos.action_list import unpack
from sparring.protos.episode_rules import EpisodeRules
from sparring.protos.record import EpisodeRecord
from sparring.protos.spec import PolicySpec
from sparring.protos.tensor import Array

TASK = Task("long", "Go a lot", "good")


class TooFar(Policy):
    """Gives what is outside the action space."""

    spec = PolicySpec(["position"], action_dim=1, chunk_length=3)

    def act(self, observations: object, states: object) -> list[Array]:
        return [np.array([[1.5], [0.1], [0.7]], np.float32)]


class Rewards(EpisodeObserver):
    """Writes rewards down."""

    def __init__(self) -> None:
        self.all: list[float] = []

    def on_step(self, step: int, action: Array, result: Step) -> None:
        self.all.append(result.reward)


def order(**rules: object) -> Order:
    return Order(task=TASK, index=3, seed=1003, rules=EpisodeRules(**rules))  # type: ignore[arg-type]


def played(policy: Policy, to_play: Order) -> tuple[EpisodeRecord, Array, list[float]]:
    simulator = ToySimulator("long", ToySettings())
    actions, rewards = KeptActions(simulator), Rewards()
    session = LocalPolicy(policy, name="toy").open(simulator.offers)
    record = run_episode(simulator, session, to_play, [actions, rewards])
    return record, unpack(actions.content), rewards.all


@pytest.mark.parametrize("rules", [{}, {"out_of_range": "clip"}, {"max_steps": 7}, {"observe": "every-step"}])
@pytest.mark.parametrize("policy", [Forward(), TooFar()])
def test_a_replay_is_the_episode(policy: Policy, rules: dict[str, object]) -> None:
    record, actions, rewards = played(policy, order(**rules))
    simulator = ToySimulator("long", ToySettings())
    again = Rewards()
    replayed = replay_episode(simulator, order(**rules), actions, [again])
    assert again.all == rewards
    for name in ("outcome", "steps", "reward_sum", "reward_max", "metrics"):
        assert getattr(replayed, name) == getattr(record, name), name
    assert replayed.renders == 0
    assert not any(simulator.looked), "something was looked at, and nobody wants to see it"


def test_clipped_actions_are_kept_as_they_were_executed() -> None:
    _, actions, _ = played(TooFar(), order(out_of_range="clip"))
    assert (actions.dtype, actions.max()) == (np.float32, 1.0)
    _, actions, _ = played(TooFar(), order())
    assert actions.max() == 1.5


def test_a_film_of_a_replay_is_that_of_the_episode(monkeypatch: pytest.MonkeyPatch) -> None:
    added = encoded_frames(monkeypatch)
    _, actions, _ = played(Forward(), order())
    live, later = ToySimulator("long", ToySettings()), ToySimulator("long", ToySettings())
    session = LocalPolicy(Forward(), name="toy").open(live.offers)
    films = Film(live, fps=20.0), Film(later, fps=20.0)
    run_episode(live, session, order(), [films[0]])
    replay_episode(later, order(), actions, [films[1]])
    seen = []
    for film in films:
        assert film.file is not None
        film.file.seek(0)
        with av.open(film.file) as file:  # not its bytes: x264 does not always choose the same ones
            seen.append(np.stack([frame.to_ndarray(format="rgb24") for frame in file.decode(video=0)]))
        film.close()
    assert np.array_equal(*seen)
    assert np.array_equal(*added.values())


def test_an_episode_that_goes_on_where_it_had_ended_is_told() -> None:
    _, actions, _ = played(Forward(), order())
    with pytest.raises(ReplayDiverged, match="had ended after"):
        replay_episode(ToySimulator("long", ToySettings()), order(), actions[:-1])


def test_an_episode_that_ends_earlier_has_fewer_steps() -> None:
    record, actions, _ = played(Forward(), order())
    longer = np.concatenate([actions, actions])
    assert replay_episode(ToySimulator("long", ToySettings()), order(), longer).steps == record.steps < len(longer)


def test_actions_that_are_too_many_are_given_up_and_the_episode_counts() -> None:
    simulator = ToySimulator("long", ToySettings())
    actions = KeptActions(simulator, most=10)
    session = LocalPolicy(Forward(), name="toy").open(simulator.offers)
    assert run_episode(simulator, session, order(), [actions]).outcome == "success"
    assert actions.content == b""
    assert "10 are the most: the episode cannot be played again" in actions.missing


def test_actions_that_could_not_be_read_again_are_not_kept_however_small_they_pack() -> None:
    simulator = ToySimulator("long", ToySettings())
    session = LocalPolicy(Forward(), name="toy").open(simulator.offers)
    kept = KeptActions(simulator)
    record = run_episode(simulator, session, order(), [kept])
    size = unpack(kept.content).nbytes
    assert size > len(kept.content) > 0
    for most, there in ((size, True), (size - 1, False)):
        again = KeptActions(simulator, most_unpacked=most)
        assert run_episode(simulator, session, order(), [again]).outcome == record.outcome
        assert bool(again.content) is there
        assert (f"they have {size:,} bytes, and {most:,} are the most" in again.missing) is not there

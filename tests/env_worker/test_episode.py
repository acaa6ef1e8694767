"""The episode: when the policy looks, what it sees, and what is counted."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import av
import numpy as np
import pytest
from toy_benchmark import Toy, ToySettings, ToySimulator

from sparring.env_worker.benchmark import NOTHING
from sparring.env_worker.episode.play import Order, Record, run_episode
from sparring.policy_server.client import PolicyClient, PolicyFailed, RemoteSession

POSITION = frozenset({"position"})


@contextmanager
def playing(simulator: ToySimulator, policy: str, **arguments: object) -> Iterator[RemoteSession]:
    """A session of a real policy server."""
    command = [
        sys.executable,
        "-m",
        "sparring.policy_server",
        f"--policy={policy}",
        f"--policy-args={json.dumps(arguments)}",
    ]
    with subprocess.Popen([*command, "--listen=127.0.0.1:0", "--grace=0"], stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        address = json.loads(server.stdout.readline())["listening"][0]
        with PolicyClient(address, timeout=20) as client, client.open(simulator.offers) as session:
            yield session
        server.terminate()


def toy(name: str = "short") -> tuple[ToySimulator, Order]:
    task = Toy().tasks(name)[0]
    return ToySimulator(name, ToySettings()), Order(task=task, index=0, seed=3)


def play(simulator: ToySimulator, session: RemoteSession, order: Order) -> Record:
    return run_episode(simulator, session, order, on_step=lambda steps: None)


def with_(order: Order, **changes: object) -> Order:
    return Order(**{**vars(order), **changes})


def test_a_chunk_is_played_with_one_look() -> None:
    simulator, order = toy()
    with playing(simulator, "toy_policies:Forward", chunk=5) as session:
        record = play(simulator, session, order)
    looks = [step for step, look in enumerate(simulator.looked) if look]
    assert looks == list(range(0, record.steps, 5)), "a look at the last step is for nobody"
    assert record.round_trips == (record.steps - 1) // 5 + 1
    assert set().union(*simulator.looked) == POSITION, "only what the policy asked for"


def test_every_step_looks_at_every_step_and_changes_nothing() -> None:
    simulator, order = toy()
    with playing(simulator, "toy_policies:Wanderer") as session:
        lazy = play(simulator, session, order)
        eager = play(simulator, session, with_(order, observe_every_step=True))
    assert all(simulator.looked)
    assert (lazy.reward_sum, lazy.steps, lazy.outcome) == (eager.reward_sum, eager.steps, eager.outcome)


def test_history_looks_at_the_last_steps_of_a_chunk() -> None:
    simulator, order = toy()
    with playing(simulator, "toy_policies:Forward", chunk=5, history=2) as session:
        record = play(simulator, session, order)
    looks = [step for step, look in enumerate(simulator.looked) if look]
    assert looks == [s for s in range(record.steps) if s % 5 == 0 or s % 5 == 4]


class _Recording:
    """Stands in for a RemoteSession: what reaches a policy cannot be seen from outside a real one."""

    def __init__(self, session: RemoteSession) -> None:
        self._session = session
        self.needs = session.needs
        self.seen: list[np.ndarray] = []

    def start(self, **arguments: object) -> None:
        self._session.start(**arguments)

    def act(self, tensors: dict[str, np.ndarray], *, step: int) -> object:
        self.seen.append(tensors["step"].copy())
        return self._session.act(tensors, step=step)


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
    with playing(simulator, "zero", chunk=chunk, history=history, observations=["step"]) as session:
        recording = _Recording(session)
        run_episode(simulator, recording, order, on_step=lambda steps: None)
    assert [list(seen) for seen in recording.seen[:4]] == expected


def test_what_is_counted() -> None:
    simulator, order = toy()
    with playing(simulator, "toy_policies:Forward") as session:
        record = play(simulator, session, order)
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
    with playing(simulator, "zero") as session:
        assert play(simulator, session, with_(order, max_steps=7)).steps == 7
        record = play(simulator, session, order)
    assert (record.steps, record.outcome) == (simulator.max_steps, "failure")


def test_filming_changes_no_trajectory_and_reuses_frames() -> None:
    simulator, order = toy()
    with playing(simulator, "random", chunk=5, observations=["image"]) as session:
        unfilmed = play(simulator, session, order)
        filmed = play(simulator, session, with_(order, film_fps=20.0))
    assert (filmed.reward_sum, filmed.steps) == (unfilmed.reward_sum, unfilmed.steps)
    assert unfilmed.renders == len(range(0, unfilmed.steps, 5))
    assert filmed.renders == filmed.steps + 1, "frames that the policy looked at were rendered twice"
    with av.open(io.BytesIO(filmed.video)) as film:
        frames = [frame.to_ndarray(format="rgb24") for frame in film.decode(video=0)]
    assert len(frames) == filmed.steps + 1
    assert frames[0].shape == (16, 16, 3)


def test_a_slow_film_skips_steps() -> None:
    simulator, order = toy()
    with playing(simulator, "zero") as session:
        record = play(simulator, session, with_(order, film_fps=5.0))
    assert [step for step, look in enumerate(simulator.looked) if look] == list(range(0, record.steps + 1, 4))
    assert simulator.looked[1] == NOTHING


def test_a_policy_that_fails_ends_the_episode_with_its_message() -> None:
    simulator, order = toy()
    with (
        playing(simulator, "toy_policies:Raises") as session,
        pytest.raises(PolicyFailed, match="my knees are weak"),
    ):
        play(simulator, session, with_(order, index=1))


def test_the_toy_shows_what_it_offers() -> None:
    simulator, _ = toy()
    seen = simulator.reset(seed=0, index=0, look=frozenset(simulator.offers.observations))
    for name, spec in simulator.offers.observations.items():
        assert (seen[name].dtype.name, seen[name].shape) == (spec.dtype, spec.shape)

"""What protocols change about LIBERO's episodes: how they begin, and how long they are."""

from __future__ import annotations

import numpy as np
import pytest

from sparring.env_worker.benchmark import NOTHING
from sparring.env_worker.benchmarks.libero import Libero, LiberoSettings
from sparring.env_worker.protocol import protocols_of, whole

pytestmark = pytest.mark.requires("libero-assets")

TASK = "libero_goal/8"
STATE = frozenset(["observation.state"])


def poses(settings: LiberoSettings, *episodes: int, seed: int = 7) -> list[bytes]:
    """Positions of everything, fixtures too, at the beginning of some episodes, played in this order."""
    simulator = Libero().make(Libero().tasks(TASK)[0], settings)
    found = []
    for index in episodes:
        simulator.reset(seed=seed + index, index=index, look=NOTHING)
        model = simulator._environment.sim.model  # type: ignore[attr-defined]
        found.append(model.body_pos.tobytes() + simulator.physics_state().tobytes())  # type: ignore[union-attr]
        simulator.step(np.zeros(7), look=NOTHING)
    simulator.close()
    return found


def test_one_stream_for_a_task_gives_each_episode_its_own_whatever_was_played_before() -> None:
    settings = LiberoSettings(seeding="task")
    in_order = poses(settings, 0, 1, 2, 1)
    assert poses(settings, 2) == in_order[2:3]
    assert in_order[3] == in_order[1]
    assert len(set(in_order)) == 3
    by_episode = poses(LiberoSettings(), 0, 1)
    assert by_episode[0] == in_order[0], "the first one is seeded with the same number"
    assert by_episode[1] != in_order[1]


def test_sampled_states_follow_from_the_seed_and_not_from_the_number() -> None:
    settings = LiberoSettings(initial_states="sampled", settling_steps=0)
    first, second = poses(settings, 0, 1)
    assert first != second
    assert poses(settings, 1, seed=6) == [first]


def test_limits_and_states_are_known_to_the_plan_and_to_the_simulator() -> None:
    benchmark = Libero()
    settings = benchmark.read_settings(whole(benchmark, protocols_of(benchmark)["gr00t"]).settings)
    (task,) = benchmark.planned(benchmark.tasks(TASK), settings)
    assert (task.max_steps, task.initial_states) == (720, 0)
    settings = LiberoSettings(limit_goal=3)
    simulator = benchmark.make(task, settings)
    simulator.reset(seed=0, index=0, look=STATE)
    ends = [simulator.step(np.zeros(7), look=NOTHING).truncated for _ in range(3)]
    assert ends == [False, False, True]
    simulator.close()

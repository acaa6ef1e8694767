"""gym-aloha and gym-pusht themselves, in the Python that `sparring env create gym --with ...` makes: make test-gym."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sparring.env_worker.benchmark import Names
from sparring.env_worker.benchmarks.gym import Gym, GymSettings
from sparring.env_worker.compliance import check_benchmark
from sparring.env_worker.gl import choose_backend
from sparring.env_worker.registry import installed_versions

choose_backend()  # as a worker does, before anything imports MuJoCo

PUSHT, ALOHA = "gym_pusht/PushT-v0", "gym_aloha/AlohaInsertion-v0"
WITH_PIXELS = {"obs_type": "pixels_agent_pos"}


def make(task: str, **settings: Any) -> Any:
    benchmark = Gym()
    return benchmark.make(benchmark.tasks(task)[0], GymSettings(kwargs=WITH_PIXELS, **settings))


def play(simulator: Any, steps: int, looks_at: Names) -> tuple[list[Any], int]:
    """What came of an episode, with two looks at the images, and how many were drawn for it."""
    everything = frozenset(simulator.offers.observations)
    bounds = np.array([simulator.offers.action_low, simulator.offers.action_high])
    actions = np.random.default_rng(0).uniform(bounds[0], bounds[1], (steps, len(bounds[0])))
    before = simulator.meter.renders
    came = [dict(simulator.reset(seed=5, index=0, look=everything))]
    for number, action in enumerate(actions, start=1):
        step = simulator.step(action, look=everything if number == steps else everything - looks_at)
        came.append((step.reward, step.terminated, step.success, dict(step.observation)))
    return came, simulator.meter.renders - before


@pytest.mark.parametrize(
    ("task", "image", "place", "cameras"),
    [(PUSHT, "pixels", "_render", 1), (ALOHA, "pixels.top", "_env.physics.render", 3)],
)
def test_drawn_on_look_it_is_the_same_with_two_images(task: str, image: str, place: str, cameras: int) -> None:
    always, on_look = make(task), make(task, draw="on-look")
    assert always._drawing.place == on_look._drawing.place == place
    expected, all_images = play(always, 5, frozenset({image}))
    seen, images = play(on_look, 5, frozenset({image}))
    assert (all_images, images) == (6 * cameras, 2)
    np.testing.assert_equal(seen, expected)  # rewards, states, and both images that were looked at, bit by bit
    assert seen[-1][3][image].any()
    assert not np.array_equal(seen[0][image], seen[-1][3][image]), "something has moved in between"
    assert "draws its images in every step" in always.warnings[0]
    assert on_look.warnings == ()


def test_pusht_holds_the_rules_on_look() -> None:
    settings = {"kwargs": WITH_PIXELS, "draw": "on-look"}
    check_benchmark("gym", task=PUSHT, episodes=1, steps=5, settings=settings)


def test_their_versions_are_recorded() -> None:
    versions = installed_versions()
    assert versions["gym-aloha"] == "0.1.5"
    assert versions["gym-pusht"] == "0.1.8"
    assert {"mujoco", "dm_control", "pymunk"} <= versions.keys()

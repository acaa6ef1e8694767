"""Any Gymnasium environment as a Simulator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from sparring.env_worker.benchmark import NOTHING
from sparring.env_worker.benchmarks import gym
from sparring.env_worker.benchmarks.gym import Gym, GymSettings
from sparring.policy_server.policies.base import Instruction
from sparring.policy_server.policies.blind import RandomPolicy
from sparring.protos.errors import UsageError


class Walk(gymnasium.Env):
    """A user's own environment with a Dict space."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012
    observation_space = gymnasium.spaces.Dict(
        {
            "where": gymnasium.spaces.Box(-9, 9, (2,), np.float32),
            "inner": gymnasium.spaces.Dict({"a": gymnasium.spaces.Box(0, 1, (1,), np.float64)}),
        }
    )
    action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)

    def __init__(self, render_mode: str | None = None, says: str = "is_success") -> None:
        self.render_mode = render_mode
        self._says = says

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._where = self.np_random.uniform(-1, 0, 2).astype(np.float32)
        return self._observation(), {}

    def step(self, action: Any) -> Any:
        self._where = self._where + action
        done = bool((self._where > 1).all())
        return self._observation(), 1.0, done, False, {self._says: done} if self._says else {}

    def render(self) -> Any:
        return np.full((8, 8, 3), 7, np.uint8)

    def _observation(self) -> Any:
        return {"where": self._where, "inner": {"a": np.zeros(1)}}


@pytest.fixture(scope="module", autouse=True)
def registered() -> None:
    gymnasium.register("Walk-v0", Walk, max_episode_steps=30)


def make(name: str, **settings: Any) -> Any:
    benchmark = Gym()
    return benchmark.make(benchmark.tasks(name)[0], GymSettings(**settings))


def test_dict_spaces_are_offered_by_their_keys() -> None:
    simulator = make("Walk-v0")
    assert {n: str(s) for n, s in simulator.offers.observations.items()} == {
        "where": "float32 (2,)",
        "inner.a": "float64 (1,)",
    }
    seen = simulator.reset(seed=1, index=0, look=frozenset({"where"}))
    assert set(seen) == {"where"}
    assert np.array_equal(seen["where"], simulator.reset(seed=1, index=5, look=frozenset({"where"}))["where"])


def test_success_is_what_the_environment_says() -> None:
    simulator = make("Walk-v0")
    simulator.reset(seed=1, index=0, look=NOTHING)
    steps = [simulator.step(np.ones(2), look=NOTHING) for _ in range(3)]
    assert [s.success for s in steps][-1]
    assert steps[-1].terminated


def test_frames_are_made_on_demand() -> None:
    simulator = make("Walk-v0", render=True)
    assert simulator.camera == "observation.image"
    simulator.reset(seed=1, index=0, look=NOTHING)
    assert simulator.meter.renders == 0
    assert simulator.step(np.ones(2), look=frozenset({"observation.image"})).observation["observation.image"].shape == (
        8,
        8,
        3,
    )
    assert simulator.meter.renders == 1


def test_time_runs_out() -> None:
    simulator = make("Walk-v0", max_steps=4)
    simulator.reset(seed=1, index=0, look=NOTHING)
    assert [simulator.step(-np.ones(2), look=NOTHING).truncated for _ in range(4)] == [False, False, False, True]


def test_discrete_actions_and_reward_thresholds() -> None:
    simulator = make("CartPole-v1")
    assert (simulator.offers.action_low, simulator.offers.action_high) == ((-0.5,), (1.5,))
    simulator.reset(seed=1, index=0, look=NOTHING)
    step = simulator.step(np.array([0.8]), look=frozenset({"observation"}))
    assert step.observation["observation"].shape == (4,)
    while not step.terminated:
        step = simulator.step(np.array([1.0]), look=NOTHING)
    assert not step.success, "falling over after ten steps is not a success"


def test_random_is_uniform_in_discrete_spaces() -> None:
    simulator = make("Acrobot-v1")
    task = Instruction("swing", name="Acrobot-v1", offer=simulator.offers)
    sampler = RandomPolicy().new_session(task, 7)
    executed = [simulator._to_action(sampler.draw(1)[0]) for _ in range(3000)]
    counts = np.bincount(executed, minlength=3)
    assert counts.sum() == 3000
    assert (abs(counts - 1000) < 130).all(), counts  # five standard deviations; a quarter, a half, a quarter before


def test_an_environment_that_knows_no_success_says_so_before_its_first_episode() -> None:
    for name, settings in {"Walk-v0": {"kwargs": {"says": ""}, "max_steps": 2}, "Pendulum-v1": {}}.items():
        simulator = make(name, **settings)
        assert simulator.tells_success is False
        assert "success_return" in simulator.success_advice
    assert make("Walk-v0").tells_success is True


def test_one_that_is_too_slow_to_be_tried_out_says_nothing_of_success_and_never_no(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gym, "_TRIAL_SECONDS", -1.0)
    simulator = make("Walk-v0", kwargs={"says": ""}, max_steps=2)
    assert simulator.tells_success is None
    simulator.reset(seed=1, index=0, look=NOTHING)
    assert [simulator.step(np.ones(2), look=NOTHING).success for _ in range(2)] == [None, None]


def test_an_environment_with_a_threshold_says_success_in_the_end() -> None:
    judged = make("Walk-v0", kwargs={"says": ""}, max_steps=2, success_return=2.0)
    judged.reset(seed=1, index=0, look=NOTHING)
    assert not judged.step(-np.ones(2), look=NOTHING).success
    assert judged.step(-np.ones(2), look=NOTHING).success
    assert judged.tells_success is True


def test_arguments_that_an_environment_does_not_take_are_refused() -> None:
    with pytest.raises(UsageError, match=r"'Walk-v0'.*'colour'"):
        make("Walk-v0", kwargs={"colour": "red"})


def test_an_unknown_environment_is_named() -> None:
    with pytest.raises(UsageError, match="NoSuchThing-v0"):
        make("NoSuchThing-v0")
    with pytest.raises(UsageError, match=r"'CartPole-v9'.*`v1`"):
        make("CartPole-v9")
    for module in ("no_such_module", "no_such.module", ""):
        with pytest.raises(UsageError, match=f"there is no module '{module}'.*PYTHONPATH"):
            make(f"{module}:Thing-v0")


def test_the_module_of_a_namespace_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    register = "import gymnasium; gymnasium.register('{}/Cart-v0', 'gymnasium.envs.classic_control:CartPoleEnv')"
    (tmp_path / "gym_of_mine.py").write_text(register.format("gym_of_mine"))
    (tmp_path / "gym_of_others.py").write_text(register.format("gym-of-others"))
    (tmp_path / "gym_of_nothing.py").write_text("")
    (tmp_path / "gym_that_is_broken.py").write_text("import no_such_dependency")
    for name in ("gym_of_mine/Cart-v0", "gym-of-others/Cart-v0"):
        assert make(name, success_return=1.0).offers.action_dim == 1
    with pytest.raises(UsageError, match=r"'gym_of_mine/Crat-v0'.*Cart"):
        make("gym_of_mine/Crat-v0")
    with pytest.raises(UsageError, match="The module 'gym_of_nothing' was imported, and does not register it"):
        make("gym_of_nothing/Cart-v0")
    with pytest.raises(UsageError, match=r"'gym_that_is_broken'.*cannot be imported: ModuleNotFoundError.*no_such_dep"):
        make("gym_that_is_broken/Cart-v0")
    with pytest.raises(
        UsageError, match=r"A module 'gym-not-here' and 'gym_not_here' would have been.*env create gym --w"
    ):
        make("gym-not-here/Cart-v0")

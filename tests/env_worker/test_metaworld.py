"""Meta-World behind the Simulator interface: the right tasks, the same bits as LeRobot's recipe, and no leaks."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from support import sampled

from sparring.env_worker.benchmark import NOTHING, Names, Simulator
from sparring.env_worker.benchmarks.metaworld import (
    ENVIRONMENT_STATE,
    IMAGE,
    STATE,
    TASKS,
    Metaworld,
    MetaworldSettings,
    MetaworldSimulator,
)
from sparring.protos.errors import UsageError

pytestmark = pytest.mark.processes

ALL = frozenset({ENVIRONMENT_STATE, IMAGE, STATE})
RAW = frozenset({ENVIRONMENT_STATE})


@pytest.fixture(scope="module", autouse=True)
def rendering() -> None:
    from sparring.env_worker.gl import choose_backend

    assert choose_backend(), "no GL backend: run tools/system-libraries"


def test_one_that_is_closed_takes_nothing_of_what_another_draws_with() -> None:
    """Of two in one process: GL frees what is in the context that is current, whosever that is."""
    one, other = (MetaworldSimulator(name, MetaworldSettings(resolution=32)) for name in ("reach-v3", "push-v3"))
    for simulator in (one, other):
        simulator.reset(seed=1, index=0, look=frozenset({IMAGE}))
    before = other.snapshot()
    one.close()
    one.close()
    assert np.array_equal(other.snapshot(), before)
    del one, simulator
    gc.collect()
    assert np.array_equal(other.snapshot(), before)
    other.close()


def recipe(name: str) -> Any:
    """The environment as LeRobot makes it: through MT1, with its first task set, then unfrozen."""
    import metaworld

    mt1 = metaworld.MT1(name, seed=42)
    env = mt1.train_classes[name](render_mode="rgb_array", camera_name="corner2")
    env.set_task(mt1.train_tasks[0])
    env.model.cam_pos[2] = [0.75, 0.075, 0.7]
    env.reset()
    env._freeze_rand_vec = False
    env.seeded_rand_vec = True
    return env


def trajectory(simulator: Simulator, seed: int, steps: int, look: Names = RAW) -> list[Any]:
    rng = np.random.default_rng(seed)
    seen = [simulator.reset(seed=seed, index=0, look=look)[ENVIRONMENT_STATE]]
    for _ in range(steps):
        step = simulator.step(rng.uniform(-1, 1, 4).astype(np.float32), look=look)
        seen += [step.observation[ENVIRONMENT_STATE], step.reward]
    return seen


def same(a: list[Any], b: list[Any]) -> bool:
    return len(a) == len(b) and all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def test_tasks_and_groups_are_metaworlds() -> None:
    from metaworld.env_dict import MT10_V3
    from metaworld.policies import ENV_POLICY_MAP

    assert set(TASKS.instructions) == set(ENV_POLICY_MAP)
    assert set(TASKS.groups["mt10"]) == set(MT10_V3)
    difficulties = [set(TASKS.groups[g]) for g in ("easy", "medium", "hard", "very_hard")]
    assert [len(d) for d in difficulties] == [28, 11, 6, 5]
    assert set.union(*difficulties) == set(TASKS.groups["mt50"]) == set(ENV_POLICY_MAP)


def test_selections() -> None:
    benchmark = Metaworld()
    assert [t.name for t in benchmark.tasks("metaworld-reach-v3, push-v3,reach-v3")] == ["reach-v3", "push-v3"]
    assert {t.group for t in benchmark.tasks("hard")} == {"hard"}
    mixed = {t.name: t.group for t in benchmark.tasks("assembly-v3,hard")}
    assert mixed["assembly-v3"] == "assembly-v3"
    assert mixed["push-v3"] == "hard"
    with pytest.raises(UsageError, match="Did you mean 'reach-v3'"):
        benchmark.tasks("reach-v2")
    with pytest.raises(UsageError, match="no task"):
        benchmark.tasks(" , ")


def test_sentences_are_sentences_and_not_names() -> None:
    assert TASKS.instructions["peg-unplug-side-v3"] == "Unplug a peg sideways"
    assert all(" " in s and "-v3" not in s and "_" not in s for s in TASKS.instructions.values())


@pytest.mark.parametrize(
    "name", sampled(["reach-v3", "assembly-v3", "door-open-v3", "stick-pull-v3", "hammer-v3"], "reach-v3", "hammer-v3")
)
def test_same_bits_as_lerobots_recipe(name: str) -> None:
    env = recipe(name)
    simulator = MetaworldSimulator(name, MetaworldSettings())
    for seed in (1001, 1000):
        env.seed(seed)
        state, _ = env.reset()
        rng = np.random.default_rng(seed)
        expected = [state]
        for _ in range(40):
            state, reward, _, _, _ = env.step(rng.uniform(-1, 1, 4).astype(np.float32))
            expected += [state, reward]
        assert same(trajectory(simulator, seed, 40), expected)
    simulator.close()
    env.close()


@pytest.mark.parametrize(
    "name",
    sampled(["reach-v3", "box-close-v3", "drawer-open-v3", "soccer-v3", "sweep-into-v3"], "reach-v3", "soccer-v3"),
)
def test_nothing_is_left_of_the_episode_before(name: str) -> None:
    used = MetaworldSimulator(name, MetaworldSettings())
    trajectory(used, 5, 60)
    fresh = MetaworldSimulator(name, MetaworldSettings())
    assert same(trajectory(used, 6, 60), trajectory(fresh, 6, 60))
    assert not same(trajectory(used, 6, 10), trajectory(used, 7, 10)), "the seed decides nothing"


def test_looking_does_not_change_physics() -> None:
    simulator = MetaworldSimulator("push-v3", MetaworldSettings(resolution=32))
    blind = trajectory(simulator, 3, 12)
    assert simulator.meter.renders == 0
    assert same(trajectory(simulator, 3, 12, look=ALL), blind)
    assert simulator.meter.renders == 13
    simulator.close()


def test_the_layout_is_lerobots() -> None:
    env = recipe("door-open-v3")
    env.seed(9)
    state, _ = env.reset()
    expected = env.render()[::-1, ::-1]  # turned by half a circle: both axes flipped
    simulator = MetaworldSimulator("door-open-v3", MetaworldSettings())
    seen = simulator.reset(seed=9, index=0, look=ALL)
    assert np.array_equal(seen[IMAGE], expected)
    assert not np.array_equal(seen[IMAGE], expected[::-1]), "a test image must tell flips apart"
    assert np.array_equal(seen[STATE], state[:4].astype(np.float32))
    assert np.array_equal(seen[ENVIRONMENT_STATE], state)
    for name, spec in simulator.offers.observations.items():
        assert seen[name].dtype.name == spec.dtype
        assert seen[name].shape == spec.shape
    assert simulator.offers.action_dim == 4
    assert simulator.max_steps == 500
    simulator.close()
    env.close()


@pytest.mark.parametrize("name", ["push-v3", "push-back-v3"])
def test_the_first_frame_does_not_depend_on_the_episode_before(name: str) -> None:
    used, fresh = (MetaworldSimulator(name, MetaworldSettings()) for _ in range(2))
    trajectory(used, 5, 60)
    for simulator in (used, fresh):
        simulator.reset(seed=9, index=0, look=NOTHING)
    # The marker of the goal, as it would be drawn: Meta-World lets it depend on where the object was left.
    assert np.array_equal(used._env.data.site_xpos, fresh._env.data.site_xpos)


def test_only_what_is_looked_at_is_made() -> None:
    simulator = MetaworldSimulator("reach-v3", MetaworldSettings())
    assert simulator.reset(seed=0, index=0, look=NOTHING) == {}
    assert set(simulator.step(np.zeros(4), look=frozenset({STATE})).observation) == {STATE}


def test_settings_are_checked() -> None:
    assert Metaworld().read_settings({"resolution": 128}).resolution == 128
    with pytest.raises(UsageError, match="Did you mean 'resolution'"):
        Metaworld().read_settings({"resolutoin": 128})
    with pytest.raises(UsageError, match="must be int"):
        Metaworld().read_settings({"resolution": "large"})


@pytest.mark.everything
def test_every_camera_of_the_scene_can_be_filmed_with_and_looking_changes_nothing() -> None:
    def states(simulator: Simulator, cameras: Sequence[str]) -> list[Any]:
        simulator.reset(seed=3, index=0, look=NOTHING)
        seen = []
        for action in np.random.default_rng(3).uniform(-1, 1, (4, 4)):
            step = simulator.step(action.astype(np.float32), look=NOTHING)
            for camera in cameras:
                image = simulator.picture(camera)
                assert (image.shape, image.dtype) == ((32, 32, 3), np.uint8)
                assert image.std() > 1, f"{camera} sees nothing"
            seen += [step.reward, simulator.physics_state()]
        return seen

    simulator = MetaworldSimulator("door-open-v3", MetaworldSettings(resolution=32))
    assert {"topview", "corner", "gripperPOV"} <= set(simulator.cameras)
    assert same(states(simulator, ()), states(simulator, simulator.cameras))
    own = simulator.step(np.zeros(4, np.float32), look=frozenset({IMAGE})).observation[IMAGE]
    assert np.array_equal(own, simulator.picture("corner2")), "the datasets' camera is one of them, upright"
    assert np.array_equal(own, simulator.snapshot()), "and what is shown live"
    simulator.close()


@pytest.mark.parametrize("name", sampled(["reach-v3", "push-v3", "stick-push-v3", "door-open-v3"], "push-v3"))
def test_what_draws_images_may_be_made_before_the_first_episode_and_nothing_is_otherwise(name: str) -> None:
    settings = MetaworldSettings(resolution=48)
    plain, prepared = MetaworldSimulator(name, settings), MetaworldSimulator(name, settings)
    prepared.prepare_images()
    assert prepared.meter.renders == 0
    for seed in (3, 4):
        rng = np.random.default_rng(seed)
        one, other = (simulator.reset(seed=seed, index=0, look=ALL) for simulator in (plain, prepared))
        assert one.keys() == other.keys() == ALL
        assert all(np.array_equal(one[key], other[key]) for key in ALL)
        for step in range(12):
            action = rng.uniform(-1, 1, 4).astype(np.float32)
            look = ALL if step % 4 == 3 else RAW
            a, b = (simulator.step(action, look=look) for simulator in (plain, prepared))
            assert (a.reward, a.success, a.terminated, a.truncated) == (b.reward, b.success, b.terminated, b.truncated)
            assert all(np.array_equal(a.observation[key], b.observation[key]) for key in look)
        assert np.array_equal(plain._env.data.qpos, prepared._env.data.qpos)
        assert np.array_equal(plain._env.data.qacc, prepared._env.data.qacc)
    assert plain.meter.renders == prepared.meter.renders
    plain.close()
    prepared.close()

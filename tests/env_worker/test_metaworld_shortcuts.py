"""Meta-World's shortcuts against its own way: the same bits of everything, in episodes in which things are grasped."""

from __future__ import annotations

import gc
import hashlib
import importlib.metadata
import logging
import weakref
from typing import Any

import numpy as np
import pytest
from support import sampled

from sparring.env_worker.benchmark import NOTHING
from sparring.env_worker.benchmarks import metaworld
from sparring.env_worker.benchmarks._metaworld import shortcuts
from sparring.env_worker.benchmarks.metaworld import ENVIRONMENT_STATE, TASKS, MetaworldSettings, MetaworldSimulator

pytestmark = pytest.mark.processes

LOOK = frozenset({ENVIRONMENT_STATE})
STEPS = 60
# Some whose reward asks for contacts, and some of each way to set a scene.
SAMPLE = (
    "pick-place-v3",
    "push-back-v3",
    "assembly-v3",
    "door-open-v3",
)


def plain(name: str, monkeypatch: pytest.MonkeyPatch) -> MetaworldSimulator:
    with monkeypatch.context() as without:
        without.setattr(metaworld, "take_shortcuts", lambda env, task: None)
        return MetaworldSimulator(name, MetaworldSettings())


def trace(simulator: MetaworldSimulator, name: str, seed: int) -> list[str]:
    """A digest per step of an expert's episode with some noise, from its reset on."""
    from metaworld.policies import ENV_POLICY_MAP

    expert, rng, env = ENV_POLICY_MAP[name](), np.random.default_rng(seed), simulator._env
    state = simulator.reset(seed=seed, index=0, look=LOOK)[ENVIRONMENT_STATE]
    digests, reward, success = [], 0.0, False
    for _ in range(STEPS):
        digest = hashlib.sha256(repr((reward, success, env.data.time)).encode() + state.tobytes())
        for values in (env.data.qpos, env.data.qvel, env.data.qacc_warmstart, env.data.mocap_pos, env.data.site_xpos):
            digest.update(values.tobytes())
        for values in (env.model.body_pos, env.model.site_pos, env.model.body_quat, env.init_tcp, env._target_pos):
            digest.update(np.asarray(values).tobytes())
        digests.append(digest.hexdigest())
        action = np.clip(expert.get_action(state) + 0.05 * rng.standard_normal(4), -1, 1)
        step = simulator.step(action, look=LOOK)
        state, reward, success = step.observation[ENVIRONMENT_STATE], step.reward, step.success
    return digests


@pytest.mark.parametrize("name", sampled(sorted(TASKS.instructions), *SAMPLE))
def test_every_bit_is_metaworlds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    quick, own = MetaworldSimulator(name, MetaworldSettings()), plain(name, monkeypatch)
    assert "touching_object" in vars(type(quick._env))
    assert "touching_object" not in vars(type(own._env))
    for seed in (3, 4):
        expected = trace(own, name, seed)
        assert trace(quick, name, seed) == expected
    quick.close()
    own.close()


def test_a_last_bit_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "pick-place-v3"
    quick = MetaworldSimulator(name, MetaworldSettings())
    expected = trace(quick, name, 3)
    target = quick._env._get_state_rand_vec

    def slightly_off() -> Any:
        return np.nextafter(target(), np.inf)

    monkeypatch.setattr(quick._env, "_get_state_rand_vec", slightly_off)
    assert all(a != b for a, b in zip(trace(quick, name, 3), expected, strict=True))
    quick.close()


def test_what_the_pads_touch_is_found_in_arrays() -> None:
    """In an episode in which the puck is grasped: both answers are given, and both ways give them."""
    from metaworld.policies import ENV_POLICY_MAP

    simulator, expert, answers = MetaworldSimulator("pick-place-v3", MetaworldSettings()), None, set()
    env, expert = simulator._env, ENV_POLICY_MAP["pick-place-v3"]()
    state = simulator.reset(seed=3, index=0, look=LOOK)[ENVIRONMENT_STATE]
    for _ in range(STEPS):
        state = simulator.step(expert.get_action(state), look=LOOK).observation[ENVIRONMENT_STATE]
        for geom in range(env.model.ngeom):
            answer = env.touching_object(geom)
            assert answer == super(type(env), env).touching_object(geom)
            answers.add(bool(answer))
    assert answers == {True, False}
    simulator.close()


def what_comes_of(rotations: Any, matrix: Any) -> bytes | str:
    try:
        found: bytes = rotations.from_matrix(matrix).as_quat().tobytes()
    except (ValueError, np.linalg.LinAlgError) as error:
        return str(error)
    return found


def test_a_matrix_that_is_no_rotation_is_scipys_affair() -> None:
    """A rotation has scipy's bits without its check; what is none has whatever scipy makes of it."""
    from scipy.spatial.transform import Rotation

    quick = shortcuts._Rotation
    turns = Rotation.random(500, rng=5).as_matrix()
    turns[0] = np.eye(3)
    for matrix in turns:
        assert quick.from_matrix(matrix).as_quat().tobytes() == Rotation.from_matrix(matrix).as_quat().tobytes()
    askew = turns[1] + 1e-9 * np.arange(9).reshape(3, 3)
    expected = Rotation.from_matrix(askew).as_quat()
    assert not np.array_equal(Rotation.from_matrix(askew, assume_valid=True).as_quat(), expected), (
        "it is not askew enough"
    )
    assert np.array_equal(quick.from_matrix(askew).as_quat(), expected)
    for place in range(9):
        broken = turns[1].copy()
        broken.flat[place] = np.nan
        with np.errstate(invalid="ignore"):
            assert what_comes_of(quick, broken) == what_comes_of(Rotation, broken)
        assert what_comes_of(quick, broken) != Rotation.from_matrix(broken, assume_valid=True).as_quat().tobytes()
    for wrong in (turns[1] @ np.diag([1.0, 1.0, -1.0]), np.zeros((3, 3))):
        with pytest.raises(ValueError, match="determinant"):
            quick.from_matrix(wrong)


def test_another_version_of_scipy_makes_its_own_quaternions(monkeypatch: pytest.MonkeyPatch) -> None:
    version = importlib.metadata.version
    for scipy, quick in ((version("scipy"), True), ("99.0", False)):
        monkeypatch.setattr(
            importlib.metadata, "version", lambda name, scipy=scipy: {"scipy": scipy}.get(name, version(name))
        )
        simulator = MetaworldSimulator("reach-v3", MetaworldSettings())
        assert ("_get_quat_objects" in vars(type(simulator._env))) is quick
        simulator.close()


def test_physics_is_played_once_in_a_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = {}
    for kind, simulator in {
        "quick": MetaworldSimulator("reach-v3", MetaworldSettings()),
        "own": plain("reach-v3", monkeypatch),
    }.items():
        simulator.reset(seed=1, index=0, look=NOTHING)
        calls: list[int] = []
        play = simulator._env._step_mujoco_simulation

        def count(ctrl: Any, n_frames: int, play: Any = play, calls: list[int] = calls) -> None:
            calls.append(n_frames)
            play(ctrl, n_frames)

        simulator._env._step_mujoco_simulation = count
        simulator.reset(seed=1, index=0, look=NOTHING)
        counted[kind] = len(calls)
        simulator.close()
    assert counted["quick"] * 2 == counted["own"] > 0


def test_an_environment_that_nobody_holds_is_gone_at_once() -> None:
    """One that waits for the garbage collector takes its GL context down while another simulator draws."""
    simulator = MetaworldSimulator("reach-v3", MetaworldSettings())
    simulator.reset(seed=3, index=0, look=LOOK)
    kept = weakref.ref(simulator._env)
    simulator.close()
    gc.disable()
    try:
        del simulator
        assert kept() is None
    finally:
        gc.enable()


def test_another_version_is_left_alone_and_one_line_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert importlib.metadata.version("metaworld") in shortcuts.KNOWN_VERSIONS
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "99.0")
    shortcuts._say_once.cache_clear()
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            simulator = MetaworldSimulator("reach-v3", MetaworldSettings())
            assert "touching_object" not in vars(type(simulator._env))
            simulator.close()
    assert [record.getMessage() for record in caplog.records if "99.0" in record.getMessage()] != []
    assert len(caplog.records) == 1

"""LIBERO's fast steps against its own: the same bits of everything. Runs in LIBERO's environment."""

from __future__ import annotations

import hashlib
import importlib.metadata
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from libero_directly import Official
from support import EVERYTHING

from sparring.env_worker.benchmark import NOTHING
from sparring.env_worker.benchmarks._libero import control_loop as loops
from sparring.env_worker.benchmarks._libero.control_loop import FastLoop, Played, RobosuiteLoop
from sparring.env_worker.benchmarks._libero.sampling import Clock, common_clock, sampled_substep
from sparring.env_worker.benchmarks._libero.tasks import EPISODE_LIMITS
from sparring.env_worker.benchmarks.libero import Libero, LiberoSettings, LiberoSimulator
from sparring.policy_server.policies._libero.player import LiberoPlayer

SIDE = 64
CAMERAS = ("agentview", "robot0_eye_in_hand")
STEPS = {"relative": 24, "absolute": 8}
SAMPLE = ("libero_spatial/5", "libero_object/2", "libero_goal/3", "libero_10/8", "libero_90/21")
SEED, INDEX = 1004, 4

with_assets = pytest.mark.requires("libero-assets", "rendering")


def make(name: str, **settings: Any) -> LiberoSimulator:
    benchmark = Libero()
    simulator = benchmark.make(benchmark.tasks(name)[0], LiberoSettings(resolution=SIDE, **settings))
    assert isinstance(simulator, LiberoSimulator)
    return simulator


def random_actions(n: int, control: str = "relative") -> np.ndarray:
    actions = np.random.default_rng(11).uniform(-1.2, 1.2, (n, 7))  # some of which are clipped
    actions[2, 3:6] = 0.0  # no turn is asked for: the goal's rotation stays what it was
    actions[5, 6] = 0.0  # the gripper stays what it is
    if control == "absolute":
        actions[:, :6] = np.array([-0.1, 0.1, 1.1, np.pi, 0.0, 0.0]) + 0.1 * actions[:, :6]
    return actions


class Trace:
    """A digest per step, of everything that a step leaves behind."""

    def __init__(self, environment: Any) -> None:
        self._environment = environment
        self.digests: list[str] = []

    def add(self, readings: Any, reward: float, success: bool) -> None:
        data = self._environment.sim.data._data
        digest = hashlib.sha256(repr((float(reward), bool(success), data.time)).encode())
        for values in (data.qpos, data.qvel, data.act, data.ctrl, data.qacc, data.qacc_warmstart, data.sensordata):
            digest.update(values.tobytes())
        robot = self._environment.robots[0]
        for values in (robot.controller.ee_pos, robot.controller.ee_ori_mat, robot.gripper.current_action):
            digest.update(np.asarray(values).tobytes())
        for name in sorted(readings):
            digest.update(name.encode() + np.asarray(readings[name]).tobytes())
        self.digests.append(digest.hexdigest())


def everything(environment: Any) -> frozenset[str]:
    """All that the environment's own step returns: each observable that is active, cameras among them."""
    return frozenset(name for name, observable in environment._observables.items() if observable.is_active())


def traced(simulator: LiberoSimulator, actions: Any, sensors: Callable[[int], frozenset[str]]) -> Trace:
    """Plays an episode of the simulator's own loop, reading these sensors in each step."""
    trace, loop = Trace(simulator._environment), simulator._loop
    simulator.reset(seed=SEED, index=INDEX, look=NOTHING)
    for step, action in enumerate(actions):
        names = sensors(step)
        simulator._watch(frozenset(camera for camera in CAMERAS if f"{camera}_image" in names))
        played = loop.step(action, names)
        trace.add(played.readings, played.reward, played.success)
    return trace


def officially(official: Official, actions: Any, control: str, sensors: Callable[[int], frozenset[str]]) -> Trace:
    trace = Trace(official.env)
    official.reset(seed=SEED, index=INDEX)
    official.env.robots[0].controller.use_delta = control == "relative"
    for step, action in enumerate(actions):
        raw, reward, success, _ = official.env.step(action)
        trace.add({name: raw[name] for name in sensors(step)}, reward, success)
    return trace


@pytest.fixture(scope="module", params=SAMPLE)
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[Official, LiberoSimulator]]:
    official, ours = Official(request.param, None), make(request.param)
    assert isinstance(ours._loop, FastLoop)
    yield official, ours
    official.env.close()
    ours.close()


@with_assets
@pytest.mark.parametrize("control", ["relative", "absolute"])
def test_every_bit_is_that_of_liberos_own_environment(pair: tuple[Official, LiberoSimulator], control: str) -> None:
    official, ours = pair
    ours._settings = replace(ours._settings, control=control)
    actions = random_actions(STEPS[control], control)
    ours.reset(seed=3, index=1, look=NOTHING)  # an episode before, which must leave nothing behind
    ours.step(actions[0], look=NOTHING)
    # Images are in test_libero_simulator.py: they cost ten times as much as all this.
    names = everything(ours._environment) - {f"{camera}_image" for camera in CAMERAS}
    assert names == everything(official.env.env)
    assert len(names) >= 16

    def looked_at(step: int) -> frozenset[str]:
        return names if step % 2 else NOTHING

    expected = officially(official, actions, control, looked_at)
    assert traced(ours, actions, looked_at).digests == expected.digests


@pytest.fixture(scope="module")
def shared() -> Iterator[LiberoSimulator]:
    """A simulator for tests that leave nothing behind."""
    simulator = make("libero_object/2")
    yield simulator
    simulator.close()


@pytest.fixture
def simulator(shared: LiberoSimulator) -> Iterator[LiberoSimulator]:
    loop, sensors = shared._loop, {name: o._sensor for name, o in shared._environment._observables.items()}
    yield shared
    shared._loop = loop
    for name, read in sensors.items():
        shared._environment._observables[name]._sensor = read


@with_assets
def test_a_last_bit_is_noticed(simulator: LiberoSimulator, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the tests above rest on: a controller that is off by the least there is gives another trace."""
    ours = simulator
    actions = random_actions(8)
    names = everything(ours._environment) - {f"{camera}_image" for camera in CAMERAS}
    right = traced(ours, actions, lambda _: names)
    begin = ours._loop.begin

    def slightly_off() -> None:
        begin()
        ours._loop._arm = ours._loop._arm._replace(stiffness=np.nextafter(ours._loop._arm.stiffness, 1e9))

    monkeypatch.setattr(ours._loop, "begin", slightly_off)
    wrong = traced(ours, actions, lambda _: names)
    assert all(a != b for a, b in zip(right.digests, wrong.digests, strict=True))


def compared_tasks() -> list[str]:
    names = [task.name for suite in EPISODE_LIMITS for task in Libero().tasks(suite)]
    return names if EVERYTHING else ["libero_spatial/0", "libero_90/83"]


@with_assets
@pytest.mark.parametrize("name", compared_tasks())
def test_a_task_shows_what_it_offers_and_fast_and_original_steps_take_turns_in_it(name: str) -> None:
    """In one test: what costs most is to make a simulator, of each of 130 tasks in `make test-all`."""
    simulator = make(name)
    assert_shows_what_it_offers(simulator, name)
    loop, original = simulator._loop, RobosuiteLoop(simulator._environment)
    assert isinstance(loop, FastLoop)
    names = everything(simulator._environment) - {f"{camera}_image" for camera in CAMERAS}
    for control in ("relative", "absolute"):
        simulator._settings = replace(simulator._settings, control=control)
        traces: list[list[str]] = []
        turns = [(loop, names), (original, names)]
        if control == "relative":  # and without a look, which leaves nothing behind either
            turns += [(loop, NOTHING), (original, NOTHING)]
        for simulator._loop, sensors in turns:
            ours = traced(simulator, random_actions(8, control), lambda _, sensors=sensors: sensors)
            traces.append(ours.digests)
        assert traces[0] == traces[1]
        assert traces[2:3] == traces[3:], "what a step leaves behind"
    simulator.close()


def assert_shows_what_it_offers(simulator: LiberoSimulator, name: str) -> None:
    look = frozenset(simulator.offers.observations)
    seen = simulator.reset(seed=5, index=2, look=look)
    for key, spec in simulator.offers.observations.items():
        assert (seen[key].dtype.name, seen[key].shape) == (spec.dtype, spec.shape), key
    assert seen["observation.images.image"].std() > 5, "an empty picture"
    assert simulator.init_states == Libero().tasks(name)[0].initial_states == 50
    for action in random_actions(6)[:3]:
        assert not simulator.step(action, look=frozenset({"observation.state"})).truncated


@with_assets
@pytest.mark.parametrize("against", ["its own steps", pytest.param("a fresh one", marks=pytest.mark.everything)])
def test_success_comes_in_the_same_step_and_the_stove_glows_in_the_same_frames(against: str) -> None:
    """The expert turns the stove's knob, which LIBERO shows by a light that its steps switch on."""
    name = "libero_goal/7"
    ours, player, actions = make(name), LiberoPlayer(), []
    look = frozenset(player.needs)
    shown = ours.reset(seed=SEED, index=INDEX, look=look)
    trace, done = Trace(ours._environment), False
    while not done:
        actions.append(np.asarray(player.act(shown), np.float64))
        step = ours.step(actions[-1], look=look)
        shown, done = step.observation, step.terminated or step.truncated
        trace.add({}, step.reward, step.success)
    assert step.success
    assert step.reward == 1.0
    assert traced(ours, actions, lambda _: NOTHING).digests == trace.digests, "looking changes nothing"
    last = len(actions) - 1

    def at_the_end(step: int) -> frozenset[str]:
        return frozenset({"agentview_image"}) if step >= last - 1 else NOTHING

    fast = traced(ours, actions, at_the_end)
    if against == "a fresh one":
        official = Official(name, SIDE)
        assert officially(official, actions, "relative", at_the_end).digests == fast.digests
        official.env.close()
    else:
        ours._loop = RobosuiteLoop(ours._environment)
        assert traced(ours, actions, at_the_end).digests == fast.digests
    ours.close()


@with_assets
@pytest.mark.parametrize("when", ["before a step", "in a step", "by its accelerations"])
def test_a_simulation_that_explodes_does_so_in_the_original_way(
    when: str,
    simulator: LiberoSimulator,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """MuJoCo starts over where a position, a velocity or an acceleration is beyond 1e10, in the middle of a step."""
    monkeypatch.chdir(tmp_path)  # where MuJoCo writes a log of its own
    fast, original = simulator._loop, RobosuiteLoop(simulator._environment)
    data, model = simulator._environment.sim.data._data, simulator._environment.sim.model
    joint = int(model.get_joint_qvel_addr("alphabet_soup_1_joint0")[0])
    names = everything(simulator._environment) - {f"{camera}_image" for camera in CAMERAS}
    armed = False
    observable = simulator._environment._observables["robot0_eef_pos"]
    read = observable._sensor

    def disturbing(cache: Any) -> Any:  # sensors are read before the last substep of a step
        if armed and when == "in a step":
            data.qvel[joint] = 2e10
        return read(cache)

    disturbing.__modality__ = read.__modality__  # type: ignore[attr-defined]
    observable._sensor = disturbing

    def explode(loop: Any) -> list[str]:
        nonlocal armed
        simulator._loop = loop
        simulator.reset(seed=SEED, index=INDEX, look=NOTHING)
        trace = Trace(simulator._environment)
        for number, action in enumerate(random_actions(6)):
            armed = number == 3
            if armed and when != "in a step":
                data.qvel[joint] = 2e10 if when == "before a step" else 9e9
            played: Played = loop.step(action, names)
            trace.add(played.readings, played.reward, played.success)
        assert data.warning.number.any(), "it did not explode"
        return trace.digests

    with caplog.at_level(logging.WARNING):
        first = explode(fast)
    noticed = any("unstable" in record.getMessage() for record in caplog.records)
    assert noticed == (when != "by its accelerations")
    assert first == explode(original)
    assert explode(fast) == first, "the next episode is fast again, and the same"


@with_assets
@pytest.mark.parametrize("package", ["robosuite", "mujoco"])
def test_a_version_that_is_not_known_has_the_original_steps_and_one_line(
    package: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    versions = {"robosuite": "1.4.0", "mujoco": "3.8.1", package: "99.0"}
    assert importlib.metadata.version(package) in loops.KNOWN_VERSIONS[package]
    monkeypatch.setattr(importlib.metadata, "version", versions.__getitem__)
    loops._say_once.cache_clear()
    for _ in range(2):
        # No environment is needed: nothing of one is looked at before its versions are.
        assert isinstance(loops.control_loop(None, steps=1), RobosuiteLoop)
    said = [record.getMessage() for record in caplog.records if "LIBERO" in record.getMessage()]
    assert len(said) == 1
    assert f"{package} 99.0" in said[0]


@with_assets
def test_an_environment_that_does_more_than_liberos_has_the_original_steps(
    simulator: LiberoSimulator, caplog: pytest.LogCaptureFixture
) -> None:
    from robosuite.utils.observables import create_deterministic_corrupter

    environment = simulator._environment
    simulator.reset(seed=SEED, index=INDEX, look=NOTHING)
    assert not simulator._loop._slow
    environment.modify_observable("robot0_joint_pos", "corrupter", create_deterministic_corrupter(0.5))
    assert common_clock(environment._observables.values()) is None
    loops._say_once.cache_clear()
    seen = simulator.reset(seed=SEED, index=INDEX, look=frozenset({"robot0_joint_pos"}))["robot0_joint_pos"]
    assert simulator._loop._slow
    assert any("sensors" in record.getMessage() for record in caplog.records)
    environment.modify_observable("robot0_joint_pos", "corrupter", None)
    plain = simulator.reset(seed=SEED, index=INDEX, look=frozenset({"robot0_joint_pos"}))["robot0_joint_pos"]
    assert np.array_equal(seen, plain + 0.5)
    assert not simulator._loop._slow
    environment.robots[0].controller.impedance_mode = "variable"
    assert isinstance(loops.control_loop(environment, steps=1), RobosuiteLoop)


@with_assets
def test_what_is_compiled_before_slots_are_forked_is_what_steps_call(simulator: LiberoSimulator) -> None:
    from sparring.env_worker.benchmarks._libero import compiled_control

    assert Libero.preload[-1].endswith("preloaded")
    loops.warm_up()
    simulator.reset(seed=SEED, index=INDEX, look=NOTHING)
    simulator.step(np.zeros(7), look=NOTHING)
    (signature,) = compiled_control._advance.signatures
    # Numba looks for these types by name when it reads its cache, also that of another Sparring: all must be its own.
    assert {type(kind).__module__.split(".")[0] for kind in signature} == {"numba"}
    assert not any(hasattr(kind, "instance_class") for kind in signature), "a class of ours"
    assert len(compiled_control.sane.signatures) == 1


@with_assets
def test_the_original_steps_can_be_asked_for() -> None:
    simulator = make("libero_object/2", loop="robosuite")
    assert isinstance(simulator._loop, RobosuiteLoop)
    simulator.close()


def test_sensors_are_read_in_the_substep_in_which_observables_are() -> None:
    """Counted by robosuite's own observable, however often it was forced to update before."""
    from robosuite.utils.observables import Observable, sensor

    for forced in range(4):
        reads: list[int] = []

        @sensor(modality="test")
        def read(_: Any, reads: list[int] = reads) -> np.ndarray:
            reads.append(1)
            return np.zeros(3)

        observable = Observable("test", sensor=read, sampling_rate=20)
        observable.reset()
        for _ in range(forced):
            observable.update(timestep=0.002, obs_cache={}, force=True)
        clock = common_clock([observable])
        assert clock is not None
        counted = []
        for _ in range(600):
            for substep in range(1, 26):
                reads.clear()
                observable.update(timestep=0.002, obs_cache={})
                counted += [substep] if reads else []
        assert {sampled_substep(clock, 0.002, 25, 600)} == (set(counted) if len(counted) == 600 else {None})
    assert sampled_substep(Clock(0.0, False, 0.1), 0.002, 25, 4) is None, "every other step"

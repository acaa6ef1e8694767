"""LIBERO's simulator against LIBERO's own, made and reset the slow way. Runs in LIBERO's environment."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from libero_directly import Official
from support import EVERYTHING

from sparring.env_worker.benchmark import NOTHING, Simulator
from sparring.env_worker.benchmarks._libero.installation import write_config
from sparring.env_worker.benchmarks._libero.observations import lerobot_state, offers
from sparring.env_worker.benchmarks._libero.tasks import EPISODE_LIMITS
from sparring.env_worker.benchmarks.libero import Libero, LiberoSettings, LiberoSimulator
from sparring.env_worker.episode import live_frames

AGENT, WRIST, STATE = "observation.images.image", "observation.images.image2", "observation.state"
LOOK = frozenset({AGENT, WRIST, "agentview_image", "robot0_eye_in_hand_image", STATE, "robot0_joint_pos"})
TURN = "robot0_eef_mat"
SIDE = 64
SAMPLE = ("libero_spatial/2", "libero_object/1", "libero_goal/3", "libero_10/6", "libero_90/40")

with_assets = pytest.mark.requires("libero-assets", "rendering")


def make(name: str, **settings: Any) -> Simulator:
    benchmark = Libero()
    return benchmark.make(benchmark.tasks(name)[0], LiberoSettings(resolution=SIDE, **settings))


def actions(n: int) -> np.ndarray:
    return np.random.default_rng(7).uniform(-1, 1, (n, 7))


@pytest.fixture(scope="module", params=SAMPLE if EVERYTHING else SAMPLE[::2])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[Official, Simulator]]:
    official, ours = Official(request.param, SIDE), make(request.param)
    yield official, ours
    official.env.close()
    ours.close()


def assert_same(raw: Any, seen: Any, names: frozenset[str] = LOOK) -> None:
    expected = {
        # LeRobot flips the raw image, whose first row is the lowest, in height and width.
        AGENT: raw["agentview_image"][::-1, ::-1],
        WRIST: raw["robot0_eye_in_hand_image"][::-1, ::-1],
        "agentview_image": raw["agentview_image"][::-1],
        "robot0_eye_in_hand_image": raw["robot0_eye_in_hand_image"][::-1],
        "robot0_joint_pos": raw["robot0_joint_pos"],
    }
    for name in names & expected.keys():
        assert np.array_equal(seen[name], expected[name]), name
    position, gripper = raw["robot0_eef_pos"], raw["robot0_gripper_qpos"]
    assert np.array_equal(seen[STATE][:3], position.astype(np.float32))
    assert np.array_equal(seen[STATE][6:], gripper.astype(np.float32))


@with_assets
@pytest.mark.parametrize("control", ["relative", "absolute"])
def test_the_same_bits_as_hard_resets_and_rendering_always(pair: tuple[Official, Simulator], control: str) -> None:
    official, ours = pair
    assert isinstance(ours, LiberoSimulator)
    ours._settings = replace(ours._settings, control=control)
    ours.reset(seed=3, index=1, look=NOTHING)  # an episode before, whose traces a fast reset must not leave
    for action in actions(6):
        ours.step(action, look=NOTHING)
    raw = official.reset(seed=1004, index=4)
    official.env.robots[0].controller.use_delta = control == "relative"
    seen = ours.reset(seed=1004, index=4, look=LOOK | {TURN})
    assert_same(raw, seen)
    assert np.array_equal(seen[TURN], official.turn)
    played = actions(8)
    if control == "absolute":
        played = (0.1 * played + np.array([-0.1, 0.1, 1.1, np.pi, 0.0, 0.0, 0.0]))[:4]
    for step, action in enumerate(played, start=1):
        raw, reward, _, _ = official.env.step(action)
        look = LOOK if step % 4 == 0 else frozenset({STATE})
        result = ours.step(action, look=look | {TURN})
        assert result.reward == reward
        assert_same(raw, result.observation, look)
        assert np.array_equal(result.observation[TURN], official.turn)


@with_assets
def test_what_draws_images_may_be_made_before_the_first_episode() -> None:
    """As a slot does while the policy is loaded: nothing is otherwise."""
    plain, prepared = (make("libero_object/1") for _ in range(2))
    prepared.prepare_images()
    assert prepared.meter.renders == 0
    for index in (0, 1):
        one, other = (simulator.reset(seed=5, index=index, look=LOOK) for simulator in (plain, prepared))
        assert all(np.array_equal(one[name], other[name]) for name in LOOK)
        for step, action in enumerate(actions(6)):
            look = LOOK if step == 5 else frozenset({STATE})
            a, b = (simulator.step(action, look=look) for simulator in (plain, prepared))
            assert (a.reward, a.success) == (b.reward, b.success)
            assert all(np.array_equal(a.observation[name], b.observation[name]) for name in look)
            for one_, other_ in zip(*(everything(simulator) for simulator in (plain, prepared)), strict=True):
                assert np.array_equal(one_, other_)
    assert plain.meter.renders == prepared.meter.renders > 0
    plain.close()
    prepared.close()


def everything(simulator: Any) -> list[np.ndarray]:
    data = simulator._environment.sim.data._data
    return [data.qpos, data.qvel, data.qacc, data.qacc_warmstart, data.ctrl, data.sensordata]


@with_assets
def test_the_seed_places_fixtures_and_the_index_picks_the_state() -> None:
    simulator = make("libero_goal/0")
    look = frozenset({"privileged.poses"})

    def poses(seed: int, index: int) -> np.ndarray:
        return np.asarray(simulator.reset(seed=seed, index=index, look=look)["privileged.poses"])

    first = poses(1, 0)
    assert np.array_equal(poses(1, 0), first)
    assert not np.array_equal(poses(2, 0), first)
    assert not np.array_equal(poses(1, 1), first)
    assert np.array_equal(poses(1, 50), first), "an index past the last of 50 states wraps"
    simulator.close()


@with_assets
@pytest.mark.parametrize("name", ["libero_10/3", "libero_spatial/4"])
def test_a_used_simulator_is_as_good_as_a_fresh_one(name: str) -> None:
    """Here LIBERO's own hard resets place the cabinet elsewhere each time: a list of theirs grows and draws numbers."""
    look = frozenset({"privileged.poses", "privileged.joints", STATE})
    used, fresh = make(name), make(name)
    for seed in (1, 2):
        used.reset(seed=seed, index=seed, look=NOTHING)
        for action in actions(5):
            used.step(action, look=NOTHING)
    first, second = (simulator.reset(seed=9, index=3, look=look) for simulator in (used, fresh))
    for action in actions(5):
        assert all(np.array_equal(first[key], second[key]) for key in look)
        first, second = (simulator.step(action, look=look).observation for simulator in (used, fresh))
    used.close()
    fresh.close()


@with_assets
def test_a_camera_costs_only_when_it_is_looked_at() -> None:
    simulator = make("libero_object/0")
    simulator.reset(seed=0, index=0, look=frozenset({STATE}))
    assert simulator.meter.renders == 0
    simulator.step(np.zeros(7), look=frozenset({AGENT}))
    assert simulator.meter.renders == 1
    seen = simulator.step(np.zeros(7), look=frozenset({AGENT, "agentview_image", WRIST})).observation
    assert simulator.meter.renders == 3, "one camera under two names was rendered twice"
    for name, film_frame in simulator.same_view.items():
        assert np.array_equal(film_frame(seen[name]), seen["agentview_image"]), "films by the way show something else"
        assert not np.array_equal(seen[name], seen["agentview_image"])
    simulator.close()


@pytest.mark.parametrize(
    ("quaternion", "rotation"),
    [
        ((0, 0, 0, 1), (0, 0, 0)),
        ((0, 0, np.sin(0.5), np.cos(0.5)), (0, 0, 1.0)),
        ((np.sin(1.5), 0, 0, np.cos(1.5)), (3.0, 0, 0)),
        # The negated quaternion is the same turn the long way round: no sign is made canonical.
        ((-np.sin(0.5), 0, 0, -np.cos(0.5)), (-(2 * np.pi - 1.0), 0, 0)),
        ((0, -0.6, 0, -0.8), (0, -2 * np.arccos(-0.8), 0)),
        ((0, 0, 0, -1.0000001), (0, 0, 0)),
    ],
)
def test_the_state_of_eight(quaternion: tuple[float, ...], rotation: tuple[float, ...]) -> None:
    state = lerobot_state(np.array([1.0, 2.0, 3.0]), np.array(quaternion), np.array([0.04, -0.04]))
    assert state.dtype == np.float32
    assert state == pytest.approx([1, 2, 3, *rotation, 0.04, -0.04], abs=1e-6)


@with_assets
def test_absolute_control_goes_where_it_is_told() -> None:
    simulator = make("libero_object/0", control="absolute")
    assert simulator.offers.control == "absolute"
    assert LiberoSettings().control == offers().control == "relative"
    look = frozenset({STATE})
    start = simulator.reset(seed=0, index=0, look=look)[STATE]
    target = np.concatenate([start[:3] + np.array([0.0, 0.05, 0.05]), start[3:6], [-1.0]])
    for _ in range(40):
        step = simulator.step(target, look=look)
    assert step.observation[STATE][:3] == pytest.approx(target[:3], abs=0.01)
    simulator.close()


@with_assets
def test_the_offered_rotation_is_the_one_that_absolute_control_takes() -> None:
    """Whoever answers with the pose that is shown stays there: what X-VLA sees and what it says are in one frame."""
    from robosuite.utils.transform_utils import mat2quat, quat2axisangle

    simulator = make("libero_object/0", control="absolute")
    look = frozenset({"robot0_eef_pos", TURN})
    shown = start = simulator.reset(seed=0, index=0, look=look)
    hold = np.concatenate([start["robot0_eef_pos"], quat2axisangle(mat2quat(start[TURN])), [-1.0]])
    for _ in range(20):
        shown = simulator.step(hold, look=look).observation
    assert shown["robot0_eef_pos"] == pytest.approx(start["robot0_eef_pos"], abs=0.005)
    assert shown[TURN] == pytest.approx(start[TURN], abs=0.02)
    simulator.close()


@with_assets
def test_robosuite_writes_no_file_that_is_the_first_users_alone() -> None:
    from sparring.env_worker.benchmarks.libero import _assets

    write_config(_assets(LiberoSettings()))
    script = (  # as the process does that slots are forked from
        f"import importlib, logging; [importlib.import_module(name) for name in {Libero.preload!r}]; "
        "import robosuite.macros; assert robosuite.macros.SIMULATION_TIMESTEP == 0.002; "
        "print([type(handler).__name__ for handler in logging.getLogger('robosuite_logs').handlers])"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert said.stdout.strip() == "['StreamHandler']", said.stderr


@with_assets
def test_time_runs_out() -> None:
    simulator = make("libero_object/0")
    assert simulator.max_steps == EPISODE_LIMITS["libero_object"] == 280
    simulator.reset(seed=0, index=0, look=NOTHING)
    steps = [simulator.step(np.zeros(7), look=NOTHING) for _ in range(280)]
    assert [s.truncated for s in steps] == [False] * 279 + [True]
    assert not steps[-1].success
    simulator.close()


@with_assets
def test_one_that_is_closed_takes_nothing_of_what_another_draws_with() -> None:
    """Of two in one process: GL frees what is in the context that is current, whosever that is."""
    closed, drawing = make("libero_object/0"), make("libero_object/1")
    for simulator in (closed, drawing):
        simulator.reset(seed=1, index=0, look=frozenset({AGENT}))
    before = drawing.picture("agentview")
    closed.close()
    assert np.array_equal(drawing.picture("agentview"), before)
    drawing.close()


@with_assets
def test_every_camera_of_the_scene_can_be_filmed_with_and_looking_changes_nothing() -> None:
    simulator = make("libero_goal/3")

    def states(cameras: Sequence[str]) -> list[np.ndarray]:
        simulator.reset(seed=3, index=1, look=NOTHING)
        seen = []
        for action in actions(4):
            simulator.step(action, look=NOTHING)
            for camera in cameras:
                image = simulator.picture(camera)
                assert (image.shape, image.dtype) == ((SIDE, SIDE, 3), np.uint8)
            state = simulator.physics_state()
            assert state is not None
            seen.append(state)
        return seen

    assert {"agentview", "robot0_eye_in_hand", "frontview", "birdview"} <= set(simulator.cameras)
    assert np.array_equal(states(()), states(simulator.cameras))
    simulator.close()


@with_assets
def test_what_is_drawn_for_who_watches_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_frames, "_EVERY_SECONDS", 0.0)
    monkeypatch.setattr(live_frames, "_PAUSE", 0.0)
    shown: list[bytes] = []
    request = live_frames.FrameRequest(lambda task, index, steps, image: shown.append(image), looking=lambda: True)
    simulator = make("libero_goal/3")
    played = []
    try:
        for watched in (False, True):
            frames = live_frames.LiveFrames(simulator, request, "libero_goal/3", 0)
            observation = simulator.reset(seed=5, index=0, look=NOTHING)
            if watched:
                frames.on_reset(observation)
            rewards = []
            for number, action in enumerate(actions(6), start=1):
                step = simulator.step(action, look=NOTHING)
                rewards.append(step.reward)
                if watched:
                    frames.on_step(number, action, step)
            state = simulator.physics_state()
            assert state is not None
            played.append((rewards, state.tobytes(), simulator.meter.renders))
    finally:
        simulator.close()
    assert played[0] == played[1]
    assert len(shown) == 7
    assert len(set(shown)) > 1, "it shows what moves"
    assert all(image.startswith(b"\x89PNG") for image in shown)

"""LIBERO: 130 tasks of a Panda arm, cameras on demand.

robosuite samples its sensors inside a step, at a fixed substep. So looking is decided before the step: each camera is a
sensor that renders only while it is being watched, and an unwatched one costs nothing. The sampling schedule stays the
same, hence physics and every image that is rendered are bit for bit what rendering always would give.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt

from sparring import env_worker
from sparring.env_worker.assets import find_assets
from sparring.env_worker.benchmark import (
    NOTHING,
    Assets,
    Benchmark,
    Names,
    Observation,
    RenderMeter,
    Simulator,
    SmokeTest,
    Step,
    Task,
    WorkerImage,
)
from sparring.env_worker.benchmarks._libero.control_loop import control_loop
from sparring.env_worker.benchmarks._libero.installation import (
    LiberoSetupFailed,
    load_init_states,
    prepare_libero,
    write_config,
)
from sparring.env_worker.benchmarks._libero.observations import (
    AGENT,
    CONTROL_RATE_HZ,
    IMAGES,
    PARTS,
    WRIST,
    cameras_of,
    lerobot_state,
    mirrored,
    offers,
    sensors_of,
)
from sparring.env_worker.benchmarks._libero.placements import Placements
from sparring.env_worker.benchmarks._libero.protocols import FIXED, FIXED_BY_LAYOUT, PROTOCOLS
from sparring.env_worker.benchmarks._libero.scene import PrivilegedScene
from sparring.env_worker.benchmarks._libero.settings import LiberoSettings as LiberoSettings
from sparring.env_worker.benchmarks._libero.tasks import TASKS, LiberoTask, find
from sparring.env_worker.hub import AssetSource
from sparring.env_worker.protocol import Protocol
from sparring.env_worker.rendering.mark import drawing
from sparring.protos.spec import TensorSpec
from sparring.protos.tensor import Array

ASSETS: Final = Assets(variable="SPARRING_LIBERO_ASSETS")
ASSET_FOLDERS: Final = (
    "articulated_objects",
    "scenes",
    "stable_hope_objects",
    "stable_scanned_objects",
    "textures",
    "turbosquid_objects",
)


_SETTLING_ACTION = np.array([0, 0, 0, 0, 0, 0, -1.0])
_RESET_ATTEMPTS = 100


class Libero(Benchmark):
    """All 130 tasks in their five suites."""

    name: ClassVar[str] = "libero"
    summary: ClassVar[str] = "130 manipulation tasks of a Panda arm, in five suites"
    requires: ClassVar[Sequence[str]] = ("libero", "robosuite", "bddl", "mujoco", "numba", "cv2")
    preload: ClassVar[Sequence[str]] = (
        "sparring.env_worker.benchmarks._libero.robosuite_log",
        "libero.libero.envs",
        "sparring.env_worker.benchmarks._libero.preloaded",
    )
    settings: ClassVar[type[Any]] = LiberoSettings
    smoke: ClassVar[SmokeTest | None] = SmokeTest(
        "libero_goal/1",
        {
            "observation.images.image": TensorSpec("uint8", (256, 256, 3)),
            "observation.images.image2": TensorSpec("uint8", (256, 256, 3)),
            "observation.state": TensorSpec("float32", (8,)),
        },
    )
    packages: ClassVar[Sequence[str]] = ("hf-libero", "robosuite", "bddl", "mujoco", "gymnasium")
    extra: ClassVar[str] = "libero"
    environment: ClassVar[Path | None] = Path(env_worker.__file__).resolve().parent / "environments" / "libero"
    assets: ClassVar[Assets | None] = ASSETS
    image: ClassVar[WorkerImage | None] = WorkerImage("sparring/libero", "docker compose build worker-libero")
    expert: ClassVar[str] = "sparring.policy_server.policies.libero_expert:LiberoExpert"
    protocols: ClassVar[Sequence[Protocol]] = PROTOCOLS
    fixed: ClassVar[Mapping[str, str]] = FIXED
    fixed_by_layout: ClassVar[Mapping[str, Mapping[str, str]]] = FIXED_BY_LAYOUT
    tasks_per_process: ClassVar[int] = 4  # robosuite does not give back all memory of a simulator that was closed

    def tasks(self, selection: str) -> Sequence[Task]:
        return TASKS.select(selection)

    def groups(self) -> Mapping[str, Sequence[str]]:
        return TASKS.groups

    def planned(self, tasks: Sequence[Task], settings: LiberoSettings) -> Sequence[Task]:
        limits = [settings.limit_of(find(task.name).suite) for task in tasks]
        limited = [replace(task, max_steps=limit) for task, limit in zip(tasks, limits, strict=True)]
        return limited if settings.initial_states == "official" else [replace(t, initial_states=0) for t in limited]

    def fetch(self, settings: LiberoSettings) -> None:
        _assets(settings)

    def prepare(self, settings: LiberoSettings) -> None:
        write_config(_assets(settings))  # before the fork server imports the package, which would ask for it

    def make(self, task: Task, settings: LiberoSettings) -> Simulator:
        return LiberoSimulator(find(task.name), settings, assets=_assets(settings))


def _assets(settings: LiberoSettings) -> Path:
    return find_assets(
        setting=settings.assets or None,
        variable=ASSETS.variable,
        cache_name="libero-assets",
        parts=ASSET_FOLDERS,
        source=AssetSource("lerobot/libero-assets"),
    )


class LiberoSimulator(Simulator):
    """One LIBERO task.

    The GL context is made when a camera is first looked at, so policies that read states need no GL at all.

    Args:
        task: The task to simulate.
        settings: By which.
        assets: LIBERO's assets folder.
    """

    camera = "agentview_image"
    same_view: ClassVar[Mapping[str, Callable[[Array], Array]]] = {"observation.images.image": mirrored}

    def __init__(self, task: LiberoTask, settings: LiberoSettings, *, assets: Path) -> None:
        package = prepare_libero(assets)
        resolution = settings.resolution
        self.offers = offers(control=settings.control, resolution=resolution)
        self.meter = RenderMeter()
        self.max_steps = settings.limit_of(task.suite)
        self._task = task
        self._settings = settings
        self._placements = Placements(once=settings.seeding == "task")
        self._resolution = resolution
        self._watched: frozenset[str] = frozenset()
        self._blank = np.zeros((resolution, resolution, 3), np.uint8)
        self._context: Any = None
        self._steps_left = 0
        self._wrapper = _build(package / "bddl_files" / task.suite / f"{task.name}.bddl")
        self._environment: Any = self._wrapper.env
        self._states = load_init_states(package / "init_files" / task.suite / f"{task.name}.pruned_init")
        self._add_cameras()
        self._scene: PrivilegedScene | None = PrivilegedScene(self._environment)
        self._loop: Any = control_loop(
            self._environment, steps=settings.settling_steps + self.max_steps, original=settings.loop == "robosuite"
        )

    @property
    def init_states(self) -> int:
        """How many official initial states the task has."""
        return len(self._states)

    def reset(self, *, seed: int, index: int, look: Names) -> Observation:
        """Starts an episode.

        Args:
            seed: Decides what is placed at random: fixtures, which are not part of an initial state, or everything.
            index: Picks the official initial state; an index past the last one wraps.
            look: Names of the observations to return.
        """
        self._check_names(look)
        self._watch(frozenset())
        # LIBERO places the fixtures with numpy's global generator; env.seed() would do no more than this.
        self._placements.seed(seed, index, self._reset_physics)
        # Sensors are read in the reset, when a state is set, and in each step: cameras look at the last of these only.
        official, settling = self._settings.initial_states == "official", self._settings.settling_steps
        self._watch(cameras_of(look) if not official and not settling else frozenset())
        readings = self._reset_physics()
        if official:
            self._watch(cameras_of(look) if not settling else frozenset())
            readings = self._wrapper.set_init_state(self._states[index % len(self._states)])
        self._loop.begin()
        for left in range(settling, 0, -1):
            self._watch(cameras_of(look) if left == 1 else frozenset())
            readings = self._loop.step(_SETTLING_ACTION, sensors_of(look) if left == 1 else NOTHING).readings
        for robot in self._environment.robots:
            robot.controller.use_delta = self._settings.control == "relative"
        self._steps_left = self.max_steps
        return self._observe(readings, look)

    def step(self, action: Array, *, look: Names) -> Step:
        """Plays one action for one control period (50 ms).

        Raises:
            ValueError: the action has a wrong shape or is not finite, a name is not offered, or the episode has ended.
        """
        self._check_names(look)
        if self._steps_left <= 0:
            raise ValueError("the episode has ended (or none was started): call reset first")
        if np.shape(action) != (self.offers.action_dim,):
            raise ValueError(f"an action has shape ({self.offers.action_dim},), not {np.shape(action)}")
        if not np.all(np.isfinite(action)):
            # MuJoCo would reset itself to its default state, silently, in the middle of the episode.
            raise ValueError(f"an action has to be finite: {np.asarray(action)}")
        self._watch(cameras_of(look))
        played = self._loop.step(np.asarray(action, np.float64), sensors_of(look))
        self._steps_left = 0 if played.success else self._steps_left - 1
        return Step(
            observation=self._observe(played.readings, look),
            reward=played.reward,
            terminated=played.success,
            truncated=not played.success and self._steps_left == 0,
            success=played.success,
        )

    def prepare_images(self) -> None:
        """Makes the GL context, and draws once: the first frame of a process compiles what draws."""
        if self._context is None:
            self._context = _render_context(self._environment)
        self._drawn(AGENT)

    def close(self) -> None:
        """Frees the simulator and its GL context. May be called again."""
        if self._wrapper is None:
            return
        if self._context is not None:
            # What is freed is of the context that is current: else the images of whoever drew last in this process.
            self._context.gl_ctx.make_current()
            self._context.con.free()
            self._context.gl_ctx.free()
            self._context = None
        self._wrapper.close()
        self._wrapper = self._environment = self._scene = self._loop = None
        self._steps_left = 0

    @property
    def cameras(self) -> Sequence[str]:
        """All cameras of the scene."""
        return list(self._environment.sim.model.camera_names)

    def picture(self, camera: str) -> Array:
        """Returns what a camera sees now: at the end of the step, a substep later than what policies are shown."""
        if self._context is None:
            self._context = _render_context(self._environment)
        return np.ascontiguousarray(self._rendered(camera)[::-1])

    def snapshot(self) -> Array:
        """Returns what the camera sees that films are made with."""
        return self.picture(AGENT)

    def physics_state(self) -> Array:
        """Returns the joints' positions and velocities."""
        data = self._environment.sim.data
        return np.concatenate([data.qpos, data.qvel])

    def _reset_physics(self) -> Mapping[str, Array]:
        from robosuite.utils.errors import RandomizationError

        for robot in self._environment.robots:
            # The smoothed gripper command is the one thing that robosuite 1.4 carries over a soft reset.
            robot.gripper.current_action = np.zeros(robot.gripper.dof)
        # LIBERO's own wrapper retries forever and on any exception whatever; a broken task must not hang a slot.
        for _ in range(_RESET_ATTEMPTS):
            with contextlib.suppress(RandomizationError):
                readings: Mapping[str, Array] = self._environment.reset()
                return readings
        raise LiberoSetupFailed(f"{self._task.id}: no valid placement of the objects in {_RESET_ATTEMPTS} attempts")

    def _add_cameras(self) -> None:
        from robosuite.utils.observables import Observable, sensor

        for camera in (AGENT, WRIST):
            read = sensor(modality="image")(self._camera(camera))
            rate = self._environment.control_freq
            self._environment.add_observable(Observable(f"{camera}_image", sensor=read, sampling_rate=rate))

    def _camera(self, camera: str) -> Callable[[dict[str, Any]], npt.NDArray[np.uint8]]:
        def read(_: dict[str, Any]) -> npt.NDArray[np.uint8]:
            return self._rendered(camera) if camera in self._watched else self._blank

        return read

    def _rendered(self, camera: str) -> npt.NDArray[np.uint8]:
        with self.meter.image():
            return self._drawn(camera)

    def _drawn(self, camera: str) -> npt.NDArray[np.uint8]:
        # Another simulator of this process may have made its own context current.
        self._context.gl_ctx.make_current()
        image: npt.NDArray[np.uint8] = self._environment.sim.render(
            camera_name=camera, width=self._resolution, height=self._resolution
        )
        return image

    def _watch(self, cameras: frozenset[str]) -> None:
        if cameras and self._context is None:
            self._context = _render_context(self._environment)
        self._watched = cameras

    def _observe(self, raw: Mapping[str, Array], look: frozenset[str]) -> Observation:
        return {name: self._observation(name, raw) for name in sorted(look)}

    def _observation(self, name: str, raw: Mapping[str, Array]) -> Array:
        if name in IMAGES:
            camera, mirrored = IMAGES[name]
            image = raw[f"{camera}_image"]  # OpenGL's rows: bottom first
            return np.ascontiguousarray(image[::-1, ::-1] if mirrored else image[::-1])
        if name == "robot0_eef_mat":
            # Not among robosuite's sensors, and not the quaternion's rotation, which is the hand's: this is the point
            # between the fingers, as the controller that moves it saw it last, one physics substep after the sensors.
            # That is where LeRobot reads it.
            return np.array(self._environment.robots[0].controller.ee_ori_mat, np.float64)
        if name in PARTS:
            return np.array(raw[name], np.float64)
        if name == "observation.state":
            return lerobot_state(raw["robot0_eef_pos"], raw["robot0_eef_quat"], raw["robot0_gripper_qpos"])
        assert self._scene is not None
        if name == "privileged.scene":
            return self._scene.scene
        if name == "privileged.poses":
            return self._scene.poses()
        return self._scene.joints()

    def _check_names(self, look: frozenset[str]) -> None:
        unknown = look - self.offers.observations.keys()
        if unknown:
            raise ValueError(f"LIBERO does not offer {', '.join(sorted(unknown))}")


def _build(problem: Path) -> Any:
    # Importing the package registers its problems, objects and robots; it takes seconds, so not at module level.
    import libero.libero.envs  # noqa: F401
    from libero.libero.envs.env_wrapper import ControlEnv

    if not problem.is_file():
        raise LiberoSetupFailed(f"the installed libero package lacks {problem.name}")
    # No cameras and no renderer here: this class adds its own, which render on demand.
    return ControlEnv(
        bddl_file_name=str(problem),
        use_camera_obs=False,
        has_offscreen_renderer=False,
        control_freq=int(CONTROL_RATE_HZ),
        hard_reset=False,
        ignore_done=True,
    )


def _render_context(environment: Any) -> Any:
    from robosuite.utils.binding_utils import MjRenderContextOffscreen

    # Made between steps, never in one: it calls mj_forward, which would move the sensors' phase.
    try:
        with drawing():
            # -1: the device that MUJOCO_EGL_DEVICE_ID names. Any other number is held against CUDA_VISIBLE_DEVICES.
            context = MjRenderContextOffscreen(environment.sim, device_id=-1)
    except Exception as error:  # GL stacks raise what they please
        raise LiberoSetupFailed(
            f"no GL context ({error}): run 'sparring doctor' for the backends found here"
        ) from error
    context.vopt.geomgroup[0] = 0  # collision shapes hidden
    context.vopt.geomgroup[1] = 1  # visual shapes shown
    return context

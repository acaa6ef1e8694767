"""Meta-World: 50 tasks of a Sawyer arm, in LeRobot's observation layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import numpy as np

from sparring.env_worker.benchmark import (
    Benchmark,
    Names,
    Observation,
    RenderMeter,
    Simulator,
    SmokeTest,
    Step,
    Task,
    WorkerImage,
    setting,
)
from sparring.env_worker.benchmark_settings import image_side
from sparring.env_worker.benchmarks._metaworld.shortcuts import take_shortcuts
from sparring.env_worker.protocol import Protocol
from sparring.env_worker.rendering.viewers import draw_with_own, free_viewers
from sparring.env_worker.task_table import TaskTable
from sparring.protos.effect import Effect
from sparring.protos.errors import SparringError
from sparring.protos.spec import Offer, TensorSpec
from sparring.protos.tensor import Array

IMAGE: Final = "observation.image"
STATE: Final = "observation.state"
ENVIRONMENT_STATE: Final = "environment_state"
_UPSIDE_DOWN: Final = frozenset({"corner", "corner2", "corner3", "corner4"})
"""Cameras that hang so: their pictures are turned."""
_CAMERA: Final = "corner2"
"""What data sets were made with, and films are."""

# The sentences that LeRobot's datasets were labelled with: language-conditioned checkpoints know these.
_EASY: Final = {
    "button-press-v3": "Press a button",
    "button-press-topdown-v3": "Press a button from the top",
    "button-press-topdown-wall-v3": "Bypass a wall and press a button from the top",
    "button-press-wall-v3": "Bypass a wall and press a button",
    "coffee-button-v3": "Push a button on the coffee machine",
    "dial-turn-v3": "Rotate a dial 180 degrees",
    "door-close-v3": "Close a door with a revolving joint",
    "door-lock-v3": "Lock the door by rotating the lock clockwise",
    "door-open-v3": "Open a door with a revolving joint",
    "door-unlock-v3": "Unlock the door by rotating the lock counter-clockwise",
    "drawer-close-v3": "Push and close a drawer",
    "drawer-open-v3": "Open a drawer",
    "faucet-close-v3": "Rotate the faucet clockwise",
    "faucet-open-v3": "Rotate the faucet counter-clockwise",
    "handle-press-v3": "Press a handle down",
    "handle-press-side-v3": "Press a handle down sideways",
    "handle-pull-v3": "Pull a handle up",
    "handle-pull-side-v3": "Pull a handle up sideways",
    "lever-pull-v3": "Pull a lever down 90 degrees",
    "plate-slide-v3": "Slide a plate into a cabinet",
    "plate-slide-back-v3": "Get a plate from the cabinet",
    "plate-slide-back-side-v3": "Get a plate from the cabinet sideways",
    "plate-slide-side-v3": "Slide a plate into a cabinet sideways",
    "reach-v3": "Reach a goal position",
    "reach-wall-v3": "Bypass a wall and reach a goal",
    "window-close-v3": "Push and close a window",
    "window-open-v3": "Push and open a window",
    "peg-unplug-side-v3": "Unplug a peg sideways",
}
_MEDIUM: Final = {
    "basketball-v3": "Dunk the basketball into the basket",
    "bin-picking-v3": "Grasp the puck from one bin and place it into another bin",
    "box-close-v3": "Grasp the cover and close the box with it",
    "coffee-pull-v3": "Pull a mug from a coffee machine",
    "coffee-push-v3": "Push a mug under a coffee machine",
    "hammer-v3": "Hammer a screw on the wall",
    "peg-insert-side-v3": "Insert a peg sideways",
    "push-wall-v3": "Bypass a wall and push a puck to a goal",
    "soccer-v3": "Kick a soccer into the goal",
    "sweep-v3": "Sweep a puck off the table",
    "sweep-into-v3": "Sweep a puck into a hole",
}
_HARD: Final = {
    "assembly-v3": "Pick up a nut and place it onto a peg",
    "hand-insert-v3": "Insert the gripper into a hole",
    "pick-out-of-hole-v3": "Pick up a puck from a hole",
    "pick-place-v3": "Pick and place a puck to a goal",
    "push-v3": "Push the puck to a goal",
    "push-back-v3": "Push the puck to a goal",
}
_VERY_HARD: Final = {
    "shelf-place-v3": "Pick and place a puck onto a shelf",
    "disassemble-v3": "Pick a nut out of a peg",
    "stick-pull-v3": "Grasp a stick and pull a box with the stick",
    "stick-push-v3": "Grasp a stick and push a box using the stick",
    "pick-place-wall-v3": "Pick a puck, bypass a wall and place the puck",
}
_ALL: Final = {**_EASY, **_MEDIUM, **_HARD, **_VERY_HARD}

TASKS: Final = TaskTable(
    benchmark="metaworld",
    instructions=_ALL,
    groups={
        "easy": tuple(_EASY),
        "medium": tuple(_MEDIUM),
        "hard": tuple(_HARD),
        "very_hard": tuple(_VERY_HARD),
        "mt10": (
            "reach-v3",
            "push-v3",
            "pick-place-v3",
            "door-open-v3",
            "drawer-open-v3",
            "drawer-close-v3",
            "button-press-topdown-v3",
            "peg-insert-side-v3",
            "window-open-v3",
            "window-close-v3",
        ),
        "mt50": tuple(sorted(_ALL)),
        "all": tuple(sorted(_ALL)),
    },
    prefixes=("metaworld-",),
    max_steps=dict.fromkeys(_ALL, 500),
)


GOALS: Final = 50
"""That Meta-World draws for each task of a benchmark such as MT1."""

PROTOCOLS: Final = (
    Protocol(
        "lerobot-0.6",
        1,
        "lerobot-eval --env.type=metaworld of LeRobot 0.6.1",
        settings={"resolution": 480, "goals": "sampled"},
        differs=(
            "how many actions are played before the policy looks again is the checkpoint's n_action_steps in both",
            "in push-v3 and push-back-v3 the first frame may show the goal's marker some micrometres elsewhere",
        ),
    ),
    Protocol(
        "metaworld-paper",
        1,
        "evaluation() and make_mt_envs() of metaworld 3, for multi-task policies: 50 goals of each task, 500 steps",
        seed=42,
        settings={"goals": "fixed"},
        differs=(
            "it draws one of the 50 goals for each episode; here episode k has number k, so that all are played once",
            "with MT10 and MT50 it adds a one-hot of the task to the observation; here policies get the task's name",
            "the goals of a task of MT10 and MT50 are others there than those of MT1, which are played here",
        ),
    ),
)


@dataclass(frozen=True)
class MetaworldSettings:
    """What --benchmark-arg takes.

    Attributes:
        resolution: Height and width of the image, in pixels, 16 to 4096.
        goals: `sampled`: where objects and goals are follows from the episode's seed; `fixed`: episode k has number k
            of the 50 goals that Meta-World draws for the task by the run's seed.
    """

    resolution: int = image_side(480, "height and width of the image as it is rendered, in pixels")
    goals: str = setting(
        "sampled",
        choices=("sampled", "fixed"),
        what="whether each episode has a goal of its own, or one of the task's 50",
        effect=Effect(other="either way, a little: other goals; higher with `fixed` for policies trained on those 50"),
    )


class Metaworld(Benchmark):
    """All 50 tasks, version 3."""

    name: ClassVar[str] = "metaworld"
    summary: ClassVar[str] = "50 manipulation tasks of a Sawyer arm (metaworld 3, all -v3)"
    requires: ClassVar[Sequence[str]] = ("metaworld", "mujoco", "packaging")
    preload: ClassVar[Sequence[str]] = ("metaworld.env_dict", "gymnasium.envs.mujoco.mujoco_rendering")
    settings: ClassVar[type[Any]] = MetaworldSettings
    smoke: ClassVar[SmokeTest | None] = SmokeTest(
        "reach-v3", {IMAGE: TensorSpec("uint8", (480, 480, 3)), STATE: TensorSpec("float32", (4,))}
    )
    packages: ClassVar[Sequence[str]] = ("metaworld", "mujoco", "gymnasium")
    extra: ClassVar[str] = "metaworld"
    image: ClassVar[WorkerImage | None] = WorkerImage("sparring/metaworld", "docker compose build worker-metaworld")
    expert: ClassVar[str] = "sparring.policy_server.policies.metaworld_expert:MetaworldExpert"
    protocols: ClassVar[Sequence[Protocol]] = PROTOCOLS
    fixed: ClassVar[Mapping[str, str]] = {
        "success": "checked after every step; the first one ends the episode",
        "limit": "500 steps",
        "cameras": "corner2, moved to where LeRobot's data sets were made, turned by 180 degrees: observation.image",
        "state": "the first four numbers; environment_state has all 39, the goal among them",
        "actions": "4 numbers; Meta-World clips those outside [-1, 1]",
        "gripper": "as given: 1 closes",
        "settling steps": "none",
        "sentence": "those of LeRobot's data sets",
    }

    def tasks(self, selection: str) -> Sequence[Task]:
        return TASKS.select(selection)

    def groups(self) -> Mapping[str, Sequence[str]]:
        return TASKS.groups

    def planned(self, tasks: Sequence[Task], settings: MetaworldSettings) -> Sequence[Task]:
        return [replace(task, initial_states=GOALS) for task in tasks] if settings.goals == "fixed" else tasks

    def make(self, task: Task, settings: MetaworldSettings) -> Simulator:
        return MetaworldSimulator(task.name, settings)


class MetaworldSimulator(Simulator):
    """One Meta-World task, set up as LeRobot does, without the detour over MT1.

    MT1 samples 50 goals that are never used once goals are drawn from the seed; making the
    environment directly is seven times faster and gives the same trajectories, bit for bit.
    """

    camera = IMAGE

    _without_gl: ClassVar[str | None] = None
    """Why this process has no GL. MuJoCo aborts a process in which it looks for it a second time."""

    def __init__(self, name: str, settings: MetaworldSettings) -> None:
        from metaworld.env_dict import ALL_V3_ENVIRONMENTS

        side = settings.resolution
        env = ALL_V3_ENVIRONMENTS[name](render_mode="rgb_array", camera_name=_CAMERA, width=side, height=side)
        env.model.cam_pos[2] = [0.75, 0.075, 0.7]  # where the datasets' camera stood
        env._set_task_called = True
        env._partially_observable = False  # the goal is part of the state, as in MT1
        env.__dict__.pop("sawyer_observation_space", None)  # cached with the goal hidden
        env._freeze_rand_vec = False
        env.seeded_rand_vec = True
        take_shortcuts(env, name)
        self._env: Any = env
        self._name = name
        self._fixed = settings.goals == "fixed"
        self._drawn: tuple[int, Sequence[Any]] | None = None
        self.max_steps = int(env.max_path_length)
        self.meter = RenderMeter()
        self.offers = Offer(
            observations={
                IMAGE: TensorSpec("uint8", (side, side, 3)),
                STATE: TensorSpec("float32", (4,)),
                ENVIRONMENT_STATE: TensorSpec("float64", (39,)),
            },
            action_low=(-1.0,) * 4,
            action_high=(1.0,) * 4,
            control_hz=float(env.metadata["render_fps"]),
        )

    def reset(self, *, seed: int, index: int, look: Names) -> Observation:
        import mujoco

        # push and push-back measure where the object came to rest before they draw the goal's marker, so
        # that a first frame would differ, by micrometres, with the episode before. Start from nowhere.
        mujoco.mj_resetData(self._env.model, self._env.data)
        if self._fixed:
            self._env.set_task(self._goal(seed - index, index))
        self._env.seed(seed)  # reset() ignores its seed
        state, _ = self._env.reset()
        return self._observe(state, look)

    def step(self, action: Array, *, look: Names) -> Step:
        state, reward, _, truncated, info = self._env.step(action)
        success = bool(info["success"])
        return Step(
            self._observe(state, look), float(reward), terminated=success, truncated=bool(truncated), success=success
        )

    def _goal(self, seed: int, index: int) -> Any:
        """Returns one of the goals that Meta-World draws by a seed, which takes it as many resets."""
        if self._drawn is None or self._drawn[0] != seed:
            import metaworld

            draw: Any = metaworld.MT1
            self._drawn = seed, draw(self._name, seed=seed % 2**32).train_tasks
        return self._drawn[1][index % GOALS]

    def prepare_images(self) -> None:
        self._render()

    def close(self) -> None:
        free_viewers(self._env)
        self._env.close()

    @property
    def cameras(self) -> Sequence[str]:
        model = self._env.model
        return [model.camera(number).name for number in range(model.ncam)]

    def picture(self, camera: str) -> Array:
        renderer = self._env.mujoco_renderer
        usual, renderer.camera_id = renderer.camera_id, self._env.model.camera(camera).id
        try:
            with self.meter.image():
                image = self._render()
        finally:
            renderer.camera_id = usual
        return np.ascontiguousarray(np.flip(image, (0, 1))) if camera in _UPSIDE_DOWN else image

    def snapshot(self) -> Array:
        return self.picture(_CAMERA)

    def physics_state(self) -> Array:
        return np.concatenate([self._env.data.qpos, self._env.data.qvel])

    def _observe(self, state: Array, look: Names) -> Observation:
        observation: dict[str, Array] = {}
        if ENVIRONMENT_STATE in look:
            observation[ENVIRONMENT_STATE] = state
        if STATE in look:
            observation[STATE] = state[:4].astype(np.float32)
        if IMAGE in look:
            with self.meter.image():
                # This camera hangs upside down; LeRobot turns its images, and its checkpoints expect that.
                observation[IMAGE] = np.ascontiguousarray(np.flip(self._render(), (0, 1)))
        return observation

    def _render(self) -> Array:
        if MetaworldSimulator._without_gl is not None:
            raise SparringError(MetaworldSimulator._without_gl)
        try:
            draw_with_own(self._env)
            image: Array = self._env.render()
        except Exception as error:  # GL stacks raise what they please
            sentence = f"no image can be rendered ({error}); `sparring doctor` finds the GL backends that work here."
            if _is_without_gl(error):
                MetaworldSimulator._without_gl = sentence
            raise SparringError(sentence) from error
        return image


def _is_without_gl(error: Exception) -> bool:
    """Returns whether MuJoCo has looked for GL's functions in vain: in that process it must not look again."""
    import mujoco

    return isinstance(error, mujoco.FatalError) and ("platform library" in str(error) or "gladLoad" in str(error))

"""ALOHA: two arms hand over a cube, or put a peg into a socket (gym-aloha), in LeRobot's observation layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np

from sparring import env_worker
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
)
from sparring.env_worker.benchmark_settings import image_side, step_limit
from sparring.env_worker.benchmarks._gym.one_group import in_one_group
from sparring.env_worker.protocol import Protocol
from sparring.env_worker.task_table import TaskTable
from sparring.protos.errors import SparringError
from sparring.protos.spec import Offer, TensorSpec
from sparring.protos.tensor import Array

IMAGE: Final = "observation.images.top"
STATE: Final = "observation.state"
ENVIRONMENT_STATE: Final = "environment_state"
_CAMERA: Final = "top"
_HEIGHT, _WIDTH = 480, 640
_KINDS: Final = {"AlohaInsertion-v0": "insertion", "AlohaTransferCube-v0": "transfer_cube"}
_JOINTS: Final = 14
"""Six of each arm, and its gripper."""
_FINGERS: Final = (6, 7, 14, 15)
"""Of sixteen positions of the arms, those of the fingers; two of them are one gripper."""

TASKS: Final = TaskTable(
    benchmark="aloha",
    # The sentences of LeRobot's data sets.
    instructions={
        "AlohaInsertion-v0": "Insert the peg into the socket.",
        "AlohaTransferCube-v0": "Pick up the cube with the right arm and transfer it to the left arm.",
    },
    groups={"all": tuple(_KINDS)},
    prefixes=("gym_aloha/",),
)


@dataclass(frozen=True)
class AlohaSettings:
    """What --benchmark-arg takes.

    Attributes:
        height: Of the image, in pixels. LeRobot's evaluations and data sets have 480.
        width: Of the image, in pixels. LeRobot's evaluations and data sets have 640.
        max_steps: After how many steps an episode is truncated.
    """

    height: int = image_side(_HEIGHT, "height of the image as it is rendered, in pixels")
    width: int = image_side(_WIDTH, "width of the image as it is rendered, in pixels")
    max_steps: int = step_limit(400, "steps that an episode has at most, as the environment itself counts them")


class Aloha(Benchmark):
    """Both tasks of gym-aloha."""

    name: ClassVar[str] = "aloha"
    summary: ClassVar[str] = "two arms hand over a cube, or put a peg into a socket (gym-aloha)"
    requires: ClassVar[Sequence[str]] = ("gym_aloha", "dm_control", "mujoco", "gymnasium", "packaging")
    preload: ClassVar[Sequence[str]] = ("gym_aloha.env",)
    settings: ClassVar[type[Any]] = AlohaSettings
    packages: ClassVar[Sequence[str]] = ("gym-aloha", "dm_control", "mujoco", "gymnasium")
    protocols: ClassVar[Sequence[Protocol]] = (
        Protocol(
            "lerobot-0.6",
            1,
            "lerobot-eval --env.type=aloha of LeRobot 0.6.1, with gym-aloha",
            settings={"height": 480, "width": 640, "max_steps": 400},
            differs=("how many actions are played before the policy looks again is the checkpoint's in both",),
        ),
    )
    fixed: ClassVar[Mapping[str, str]] = {
        "success": "a reward of 4, checked after every step; the first one ends the episode",
        "cameras": "top: observation.images.top",
        "state": "14 numbers: six angles and the gripper of the left arm, then of the right",
        "actions": "what the state shall be; MuJoCo clips them to the motors' range",
        "gripper": "0 closed, 1 open",
        "initial states": "drawn by the episode's seed",
        "control rate": "50 Hz",
    }
    extra: ClassVar[str] = "aloha"
    environment: ClassVar[Path | None] = Path(env_worker.__file__).resolve().parent / "environments" / "aloha"
    smoke: ClassVar[SmokeTest | None] = SmokeTest(
        "AlohaTransferCube-v0",
        {IMAGE: TensorSpec("uint8", (_HEIGHT, _WIDTH, 3)), STATE: TensorSpec("float32", (_JOINTS,))},
    )
    image: ClassVar[WorkerImage | None] = WorkerImage("sparring/aloha", "docker compose build worker-aloha")
    expert: ClassVar[str] = "sparring.policy_server.policies.aloha_expert:AlohaExpert"

    def tasks(self, selection: str) -> Sequence[Task]:
        return in_one_group(TASKS.select(selection), self.name)

    def groups(self) -> Mapping[str, Sequence[str]]:
        return TASKS.groups

    def make(self, task: Task, settings: AlohaSettings) -> Simulator:
        return AlohaSimulator(_KINDS[task.name], settings)


class AlohaSimulator(Simulator):
    """gym-aloha's environment, which draws three cameras in every step; here nothing is drawn unless somebody looks."""

    camera = IMAGE
    tells_success = True

    def __init__(self, kind: str, settings: AlohaSettings) -> None:
        from gym_aloha.env import AlohaEnv

        self._env: Any = AlohaEnv(kind, obs_type="pixels_agent_pos")
        self._physics: Any = self._env._env.physics
        self._env._env.task.get_observation = self._without_images
        self._size = settings.height, settings.width
        self.max_steps = settings.max_steps
        self._steps = 0
        self.meter = RenderMeter()
        low, high = self._bounds()
        self.offers = Offer(
            observations={
                IMAGE: TensorSpec("uint8", (*self._size, 3)),
                STATE: TensorSpec("float32", (_JOINTS,)),
                ENVIRONMENT_STATE: TensorSpec("float64", (self._physics.model.nq - 16,)),
            },
            action_low=tuple(low),
            action_high=tuple(high),
            control_hz=float(self._env.metadata["render_fps"]),
            control="absolute",
        )

    def reset(self, *, seed: int, index: int, look: Names) -> Observation:
        seen, _ = self._env.reset(seed=seed % 2**32)  # NumPy takes no more
        self._steps = 0
        return self._observe(seen["agent_pos"], look)

    def step(self, action: Array, *, look: Names) -> Step:
        seen, reward, terminated, _, info = self._env.step(np.asarray(action, np.float32))
        self._steps += 1
        return Step(
            self._observe(seen["agent_pos"], look),
            float(reward),
            terminated=bool(terminated),
            truncated=self._steps >= self.max_steps,
            success=bool(info["is_success"]),
        )

    def prepare_images(self) -> None:
        self._render(_CAMERA)

    def close(self) -> None:
        self._physics.free()

    @property
    def cameras(self) -> Sequence[str]:
        model = self._physics.model
        return [model.id2name(number, "camera") for number in range(model.ncam)]

    def picture(self, camera: str) -> Array:
        with self.meter.image():
            return self._render(camera)

    def snapshot(self) -> Array:
        return self.picture(_CAMERA)

    def physics_state(self) -> Array:
        return np.concatenate([self._physics.data.qpos, self._physics.data.qvel])

    def _bounds(self) -> tuple[list[float], list[float]]:
        """Returns how far actions reach: as the motors do. The environment's own -1 to 1 holds for no data set.

        A gripper's action goes from 0, closed, to 1.
        """
        arms = [number for number in range(16) if number not in _FINGERS]
        rows = [(float(low), float(high)) for low, high in self._physics.model.actuator_ctrlrange[arms]]
        gripper = [(0.0, 1.0)]
        both = [*rows[:6], *gripper, *rows[6:], *gripper]
        return [low for low, _ in both], [high for _, high in both]

    def _without_images(self, physics: Any) -> dict[str, Any]:
        """Stands in for the task's own function, which draws; a step asks for images, and gets one of nothing."""
        return {"qpos": self._env._env.task.get_qpos(physics), "images": {_CAMERA: np.empty(0, np.uint8)}}

    def _observe(self, joints: Array, look: Names) -> Observation:
        observation: dict[str, Array] = {}
        if STATE in look:
            observation[STATE] = joints.astype(np.float32)
        if ENVIRONMENT_STATE in look:
            observation[ENVIRONMENT_STATE] = np.array(self._physics.data.qpos[16:], np.float64)
        if IMAGE in look:
            with self.meter.image():
                observation[IMAGE] = self._render(_CAMERA)
        return observation

    def _render(self, camera: str) -> Array:
        height, width = self._size
        try:
            image = self._physics.render(height=height, width=width, camera_id=camera)
        except Exception as error:  # GL stacks raise what they please
            raise SparringError(
                f"no image can be rendered ({error}); `sparring doctor` finds the GL backends that work here."
            ) from error
        return np.ascontiguousarray(image)

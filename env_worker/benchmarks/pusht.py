"""PushT: a disc pushes a T onto its target in the plane (gym-pusht), in LeRobot's observation layout."""

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
from sparring.protos.spec import Offer, TensorSpec
from sparring.protos.tensor import Array

IMAGE: Final = "observation.image"
STATE: Final = "observation.state"
KEYPOINTS: Final = "observation.environment_state"
VISUALIZATION: Final = "visualization"
"""The camera of LeRobot's films: larger, and with a cross where the last action points."""
_FILM_SIDE: Final = 384
_BOARD: Final = 512.0
"""The side of the square that everything happens in."""

TASKS: Final = TaskTable(
    benchmark="pusht",
    # The sentence of LeRobot's data set.
    instructions={"PushT-v0": "Push the T-shaped block onto the T-shaped target."},
    groups={"all": ("PushT-v0",)},
    prefixes=("gym_pusht/",),
)


@dataclass(frozen=True)
class PushtSettings:
    """What --benchmark-arg takes.

    Attributes:
        resolution: Height and width of the image, in pixels. LeRobot's evaluations and data sets have 96.
        max_steps: After how many steps an episode is truncated.
    """

    resolution: int = image_side(96, "height and width of the image as it is rendered, in pixels")
    max_steps: int = step_limit(300, "steps that an episode has at most, as the environment itself counts them")


class Pusht(Benchmark):
    """One task, as gym-pusht has it."""

    name: ClassVar[str] = "pusht"
    summary: ClassVar[str] = "push a T onto its target in the plane (gym-pusht)"
    requires: ClassVar[Sequence[str]] = ("gym_pusht", "pymunk", "pygame", "cv2", "shapely", "gymnasium", "packaging")
    preload: ClassVar[Sequence[str]] = (
        "sparring.env_worker.benchmarks._gym.quiet_pygame",
        "gym_pusht.envs.pusht",
    )
    settings: ClassVar[type[Any]] = PushtSettings
    packages: ClassVar[Sequence[str]] = (
        "gym-pusht",
        "pymunk",
        "pygame",
        "shapely",
        "opencv-python",
        "opencv-python-headless",
        "gymnasium",
    )
    protocols: ClassVar[Sequence[Protocol]] = (
        Protocol(
            "lerobot-0.6",
            1,
            "lerobot-eval --env.type=pusht of LeRobot 0.6.1, with gym-pusht",
            settings={"resolution": 96, "max_steps": 300},
            differs=("how many actions are played before the policy looks again is the checkpoint's in both",),
        ),
    )
    fixed: ClassVar[Mapping[str, str]] = {
        "success": "more than 95 % of the target covered, checked after every step; the first one ends the episode",
        "cameras": "the board from above: observation.image",
        "state": "where the disc is, in a square of 512",
        "actions": "where the disc shall go, in the same square; passed on as they come",
        "initial states": "drawn by the episode's seed",
        "control rate": "10 Hz",
    }
    extra: ClassVar[str] = "pusht"
    environment: ClassVar[Path | None] = Path(env_worker.__file__).resolve().parent / "environments" / "pusht"
    smoke: ClassVar[SmokeTest | None] = SmokeTest(
        "PushT-v0", {IMAGE: TensorSpec("uint8", (96, 96, 3)), STATE: TensorSpec("float32", (2,))}
    )
    expert: ClassVar[str] = "sparring.policy_server.policies.pusht_expert:PushtExpert"
    image: ClassVar[WorkerImage | None] = WorkerImage("sparring/pusht", "docker compose build worker-pusht")

    def tasks(self, selection: str) -> Sequence[Task]:
        return in_one_group(TASKS.select(selection), self.name)

    def groups(self) -> Mapping[str, Sequence[str]]:
        return TASKS.groups

    def make(self, task: Task, settings: PushtSettings) -> Simulator:
        return PushtSimulator(settings)


class PushtSimulator(Simulator):
    """gym-pusht's environment. It is asked for states, which draws nothing; images are drawn where somebody looks."""

    camera = VISUALIZATION
    tells_success = True

    def __init__(self, settings: PushtSettings) -> None:
        from sparring.env_worker.benchmarks._gym import quiet_pygame  # noqa: F401, I001  # before pygame
        from gym_pusht.envs.pusht import PushTEnv

        side = settings.resolution
        self._env: Any = PushTEnv(
            obs_type="environment_state_agent_pos",
            render_mode="rgb_array",
            observation_width=side,
            observation_height=side,
            visualization_width=_FILM_SIDE,
            visualization_height=_FILM_SIDE,
        )
        self._env._get_coverage = self._coverage
        self.max_steps = settings.max_steps
        self._steps = 0
        self.meter = RenderMeter()
        self.offers = Offer(
            observations={
                IMAGE: TensorSpec("uint8", (side, side, 3)),
                STATE: TensorSpec("float32", (2,)),
                KEYPOINTS: TensorSpec("float32", (16,)),
            },
            action_low=(0.0, 0.0),
            action_high=(_BOARD, _BOARD),
            control_hz=float(self._env.metadata["render_fps"]),
            control="absolute",
        )

    def reset(self, *, seed: int, index: int, look: Names) -> Observation:
        seen, _ = self._env.reset(seed=seed)
        self._env._last_action = None  # it draws a cross there, and would draw that of the episode before
        self._steps = 0
        return self._observe(seen, look)

    def step(self, action: Array, *, look: Names) -> Step:
        # As a float32 of its own: the environment keeps it to draw it.
        seen, reward, terminated, _, info = self._env.step(np.array(action, np.float32))
        self._steps += 1
        return Step(
            self._observe(seen, look),
            float(reward),
            terminated=bool(terminated),
            truncated=self._steps >= self.max_steps,
            success=bool(info["is_success"]),
            metrics={"coverage": float(info["coverage"])},
        )

    def close(self) -> None:
        self._env.close()

    @property
    def cameras(self) -> Sequence[str]:
        return (VISUALIZATION,)

    def picture(self, camera: str) -> Array:
        with self.meter.image():
            return np.ascontiguousarray(self._env.render())

    def physics_state(self) -> Array:
        agent, block = self._env.agent, self._env.block
        moving = [(*body.position, *body.velocity, body.angle, body.angular_velocity) for body in (agent, block)]
        return np.array(moving, np.float64).ravel()

    def _coverage(self) -> float:
        """Returns the share of the target that is covered; stands in for the environment's own function.

        That one takes the T's two bars from a set, whose order is another in every process, and sums of areas differ by
        it in their last bits.
        """
        from gym_pusht.envs.pusht import pymunk_to_shapely

        bars = self._env._block_shapes
        target = pymunk_to_shapely(self._env.get_goal_pose_body(self._env.goal_pose), bars)
        return float(target.intersection(pymunk_to_shapely(self._env.block, bars)).area / target.area)

    def _observe(self, seen: Mapping[str, Array], look: Names) -> Observation:
        observation: dict[str, Array] = {}
        if STATE in look:
            observation[STATE] = seen["agent_pos"].astype(np.float32)
        if KEYPOINTS in look:
            observation[KEYPOINTS] = seen["environment_state"].astype(np.float32)
        if IMAGE in look:
            with self.meter.image():
                observation[IMAGE] = np.ascontiguousarray(self._env._render())
        return observation

"""A scripted policy's view of a LIBERO scene, made from the privileged observations and nothing else.

`World` is decoded once per episode and updated at every step. Shapes are clouds of points that fill the collision
boxes; all questions about clearance and contact are asked of those points.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

_SPACING = 0.006  # of the points that fill an object's boxes, m
_FIXTURE_SPACING = 0.01  # fixtures are large, and nothing is grasped by their bulk
_NEEDED = ("privileged.scene", "privileged.poses", "privileged.joints", "robot0_gripper_qpos")


@dataclass(frozen=True, slots=True)
class Goal:
    """One atom of the task's goal, such as `on bowl_1 plate_1` or `open cabinet_1_top_region`."""

    kind: str
    subject: str
    target: str | None = None


@dataclass(frozen=True, slots=True)
class Region:
    """A named box that goals refer to, where it is now. `joints` are the indices of the joints it hangs on."""

    name: str
    entity: str | None
    center: Array
    rotation: Array
    size: Array
    joints: tuple[int, ...]

    @property
    def extent(self) -> Array:
        """Half-widths of the region along the world's axes."""
        return np.abs(self.rotation) @ self.size


@dataclass(frozen=True, slots=True)
class Joint:
    """A drawer's slide, a door's hinge or a knob's. Axis and anchor are in the world, as they are now."""

    entity: str
    frame: int
    kind: str
    axis: Array
    anchor: Array
    low: float
    high: float
    position: float


class World:
    """The scene as it is at the latest observation."""

    needs = _NEEDED

    def __init__(self, observation: Mapping[str, npt.NDArray[Any]]) -> None:
        text = observation["privileged.scene"].tobytes().rstrip(b"\0")
        scene: dict[str, Any] = json.loads(text)
        self.goals = tuple(Goal(*atom) for atom in scene["goal"])
        self._entities: dict[str, dict[str, Any]] = scene["entities"]
        self._regions: dict[str, dict[str, Any]] = scene["regions"]
        self._joints: list[dict[str, Any]] = scene["joints"]
        self._local = [_fill(frame["boxes"], self._spacing(frame["entity"])) for frame in scene["frames"]]
        self._poses = np.zeros((0, 7))
        self._values = np.zeros(0)
        self.opening = 0.0
        self.update(observation)

    def _spacing(self, entity: str | None) -> float:
        return _FIXTURE_SPACING if entity is not None and self.is_fixture(entity) else _SPACING

    def update(self, observation: Mapping[str, npt.NDArray[Any]]) -> None:
        """Takes the latest poses, joint positions and gripper opening."""
        self._poses = np.asarray(observation["privileged.poses"], np.float64)
        self._values = np.asarray(observation["privileged.joints"], np.float64)
        self.opening = float(np.abs(observation["robot0_gripper_qpos"]).sum())

    @property
    def hand(self) -> Array:
        """The point between the fingertips."""
        return self._poses[0, :3]

    @property
    def hand_rotation(self) -> Array:
        """Columns: the direction in which the fingers open, the hand's side, the direction it points to."""
        return rotation_of(self._poses[0, 3:])

    def is_region(self, name: str) -> bool:
        """Returns whether a goal's target is a region rather than an object."""
        return name in self._regions

    def is_fixture(self, entity: str) -> bool:
        """Returns whether the thing cannot be carried."""
        return bool(self._entities[entity]["fixture"])

    def position(self, entity: str) -> Array:
        """Returns the origin of an object: the point that the simulator's success checks look at."""
        return self._poses[self._entities[entity]["frames"][0], :3]

    def rotation(self, entity: str) -> Array:
        """Returns the orientation of an object."""
        return rotation_of(self._poses[self._entities[entity]["frames"][0], 3:])

    def points(self, entity: str) -> Array:
        """Points that fill an object or fixture."""
        return np.concatenate([self.frame_points(row) for row in self._entities[entity]["frames"]])

    def body_points(self, entity: str) -> Array:
        """Points that fill a thing's main body, without its drawers or doors."""
        return self.frame_points(self._entities[entity]["frames"][0])

    def frame_points(self, row: int) -> Array:
        """Points that fill one moving part."""
        return self._local[row] @ rotation_of(self._poses[row, 3:]).T + self._poses[row, :3]

    def obstacles(self, *without: str) -> Array:
        """Points that fill everything except the named things."""
        clouds = [self.points(entity) for entity in self._entities if entity not in without]
        return np.concatenate([np.zeros((0, 3)), *clouds])

    def threshold(self, entity: str, kind: str) -> tuple[float, float]:
        """Returns the joint range in which a thing counts as `open`, `close`, `turnon` or `turnoff`."""
        low, high = self._entities[entity]["thresholds"][kind]
        return float(low), float(high)

    def region(self, name: str) -> Region:
        """Returns a region where it is now."""
        data = self._regions[name]
        center, rotation = np.array(data["pose"][:3]), rotation_of(np.array(data["pose"][3:]))
        if data["frame"] is not None:
            frame = rotation_of(self._poses[data["frame"], 3:])
            center, rotation = frame @ center + self._poses[data["frame"], :3], frame @ rotation
        return Region(name, data["entity"], center, rotation, np.array(data["size"]), tuple(data["joints"]))

    def joint(self, index: int) -> Joint:
        """Returns a joint where it is now."""
        data = self._joints[index]
        rotation = self.rotation(data["entity"])
        return Joint(
            entity=data["entity"],
            frame=data["frame"],
            kind=data["kind"],
            axis=rotation @ np.array(data["axis"]),
            anchor=rotation @ np.array(data["anchor"]) + self.position(data["entity"]),
            low=data["range"][0],
            high=data["range"][1],
            position=float(self._values[index]),
        )

    def joints_of(self, name: str) -> tuple[int, ...]:
        """Returns the joints that an `open`, `close` or `turn` goal about a region or an entity speaks of."""
        if name in self._regions:
            return tuple(self._regions[name]["joints"])
        return tuple(index for index, joint in enumerate(self._joints) if joint["entity"] == name)

    def holds(self, goal: Goal) -> bool:
        """Returns whether a goal is met, as far as positions tell. The simulator also asks for contact."""
        if goal.target is None:
            return self._joint_holds(goal)
        position = self.position(goal.subject)
        if not self.is_region(goal.target):
            offset = position - self.position(goal.target)
            return bool(offset[2] >= 0 and np.linalg.norm(offset[:2]) < 0.03)
        region = self.region(goal.target)
        offset = position - region.center
        if goal.kind == "in":
            reach = np.abs(region.rotation @ region.size)
            return bool(np.all(offset < reach) and np.all(offset > -reach - [0, 0, 0.01]))
        # The simulator multiplies by the rotation here, not by its inverse; the check has to agree with it.
        local = region.rotation @ offset
        inside = bool(np.all(np.abs(local[:2]) < region.size[:2]))
        return inside and bool(region.size[2] - 0.005 < local[2] < region.size[2] + 0.10)

    def _joint_holds(self, goal: Goal) -> bool:
        joints = [self.joint(index) for index in self.joints_of(goal.subject)]
        met = [self.joint_meets(joint, goal.kind) for joint in joints]
        return any(met) if goal.kind in ("open", "turnon") else all(met)

    def joint_meets(self, joint: Joint, kind: str) -> bool:
        """Returns whether a joint is past the threshold of `open`, `close`, `turnon` or `turnoff`."""
        low, high = self.threshold(joint.entity, kind)
        upward = self.goes_up(joint, kind)
        return joint.position > low if upward else joint.position < high

    def goes_up(self, joint: Joint, kind: str) -> bool:
        """Returns whether meeting `kind` means a larger joint position."""
        low, high = self.threshold(joint.entity, kind)
        return (low + high) / 2 > (joint.low + joint.high) / 2


def rotation_of(quaternion: Array) -> Array:
    """Returns the rotation matrix of a wxyz quaternion."""
    w, x, y, z = quaternion
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


def rotation_vector(rotation: Array) -> Array:
    """Returns the axis times the angle (0 to pi) of a rotation matrix."""
    angle = np.arccos(np.clip((np.trace(rotation) - 1) / 2, -1.0, 1.0))
    axis = np.array([rotation[2, 1] - rotation[1, 2], rotation[0, 2] - rotation[2, 0], rotation[1, 0] - rotation[0, 1]])
    norm = float(np.linalg.norm(axis))
    if norm < 1e-6:
        # Half a turn has no sense of direction; no turn has no axis.
        return np.zeros(3) if angle < 1 else np.pi * _half_turn_axis(rotation)
    vector: Array = axis / norm * angle
    return vector


def _half_turn_axis(rotation: Array) -> Array:
    column = int(np.argmax(np.diag(rotation)))
    axis: Array = rotation[:, column] + np.eye(3)[column]
    return axis / np.linalg.norm(axis)


def _fill(boxes: list[list[float]], spacing: float) -> Array:
    clouds = [np.zeros((0, 3))]
    for box in boxes:
        values = np.array(box)
        steps = [np.linspace(-half, half, max(2, int(np.ceil(2 * half / spacing)) + 1)) for half in values[7:]]
        grid = np.stack(np.meshgrid(*steps, indexing="ij"), axis=-1).reshape(-1, 3)
        clouds.append(grid @ rotation_of(values[3:7]).T + values[:3])
    points = np.concatenate(clouds)
    # Overlapping boxes would count the same matter twice.
    _, first = np.unique(np.round(points / (spacing / 2)).astype(np.int64), axis=0, return_index=True)
    return points[np.sort(first)]

"""What LIBERO's simulator lets a privileged policy know: goals, geometry, poses and joints, as plain tensors.

A scripted policy runs in another interpreter, without LIBERO, so everything it needs has to cross the wire:

- `privileged.scene`: JSON in UTF-8, zero-padded to a fixed length. It does not change while a simulator lives.
- `privileged.poses`: one row per frame of the scene, position (m) and wxyz quaternion, in the world. Row 0 is the
  point between the fingertips; rows past the last frame are zero.
- `privileged.joints`: positions (m or rad) of the scene's joints, zero past the last.

The shapes are the same for every task, so that one stream can serve any of them.

The scene's JSON:

    {"goal": [["on", "bowl_1", "plate_1"], ...],
     "entities": {name: {"fixture": bool, "frames": [row, ...], "thresholds": {"open": [low, high], ...}}},
     "frames": [{"entity": name, "boxes": [[x, y, z, qw, qx, qy, qz, hx, hy, hz], ...]}, ...],
     "regions": {name: {"entity": name | null, "frame": row | null, "pose": [7], "size": [3], "joints": [index, ...]}},
     "joints": [{"entity": name, "frame": row, "kind": "slide" | "hinge", "axis": [3], "anchor": [3], "range": [2]}]}

Boxes are the collision shapes in their frame's coordinates. A region without a frame is fixed in the world. A joint's
axis and anchor are in the coordinates of its entity's first frame.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sparring.protos.errors import SparringError

Array = npt.NDArray[np.float64]

SCENE_BYTES = 65_536
MAX_FRAMES = 32
MAX_JOINTS = 16

_BOX, _CAPSULE, _CYLINDER, _SPHERE = 6, 3, 5, 2  # mjtGeom
_SLIDE, _HINGE = 2, 3  # mjtJoint
_COLLISION_GROUP = 0


class SceneTooLarge(SparringError):
    """A task's scene does not fit the fixed shapes of the privileged observations."""


class PrivilegedScene:
    """Reads the privileged observations of one LIBERO environment.

    Args:
        environment: LIBERO's robosuite environment, forwarded at least once. It is read, never changed.
    """

    def __init__(self, environment: Any) -> None:
        self._sim = environment.sim
        self._model = environment.sim.model._model
        self._gripper_site = int(environment.robots[0].eef_site_id)
        self._bodies: list[int] = []  # body of frame row i + 1
        self._frame_of_body: dict[int, int] = {}
        self._frames: list[dict[str, Any]] = [{"entity": None, "boxes": []}]
        self._joint_addresses: list[int] = []
        self._joint_names: list[str] = []
        self._joints: list[dict[str, Any]] = []
        self._entities: dict[str, dict[str, Any]] = {}
        for name in environment.objects_dict:
            self._add_entity(name, environment.get_object(name), fixture=False)
        for name in environment.fixtures_dict:
            self._add_entity(name, environment.get_object(name), fixture=True)
        regions = {name: self._region(name, site) for name, site in environment.object_sites_dict.items()}
        if len(self._frames) > MAX_FRAMES or len(self._joints) > MAX_JOINTS:
            raise SceneTooLarge(f"scene has {len(self._frames)} frames and {len(self._joints)} joints")
        self.scene = _encode(
            {
                "goal": [list(atom) for atom in environment.parsed_problem["goal_state"]],
                "entities": self._entities,
                "frames": self._frames,
                "regions": regions,
                "joints": self._joints,
            }
        )

    def poses(self) -> Array:
        """Returns the world poses of all frames as they are now."""
        data = self._sim.data._data
        rows = np.zeros((MAX_FRAMES, 7))
        rows[0, :3] = data.site_xpos[self._gripper_site]
        rows[0, 3:] = _quaternion(data.site_xmat[self._gripper_site].reshape(3, 3))
        used = slice(1, len(self._bodies) + 1)
        rows[used, :3] = data.xpos[self._bodies]
        rows[used, 3:] = data.xquat[self._bodies]
        return rows

    def joints(self) -> Array:
        """Positions of all joints as they are now."""
        values = np.zeros(MAX_JOINTS)
        values[: len(self._joint_addresses)] = self._sim.data._data.qpos[self._joint_addresses]
        return values

    def _add_entity(self, name: str, thing: Any, *, fixture: bool) -> None:
        root = self._model.body(thing.root_body).id
        bodies = [body for body in range(root, self._model.nbody) if root in self._ancestry(body)]
        rows = []
        for body in bodies:
            # A child without a joint moves with its parent; only what can move by itself is a frame.
            if body == root or self._model.body_jntnum[body]:
                self._bodies.append(body)
                self._frames.append({"entity": name, "boxes": []})
                rows.append(len(self._frames) - 1)
                self._frame_of_body[body] = rows[-1]
            else:
                self._frame_of_body[body] = self._frame_of_body[int(self._model.body_parentid[body])]
        for geom in range(self._model.ngeom):
            body = int(self._model.geom_bodyid[geom])
            if body in bodies and self._model.geom_group[geom] == _COLLISION_GROUP:
                row = self._frame_of_body[body]
                self._frames[row]["boxes"].append(self._box(geom, row))
        for joint in range(self._model.njnt):
            body = int(self._model.jnt_bodyid[joint])
            if body in bodies and self._model.jnt_type[joint] in (_SLIDE, _HINGE):
                self._add_joint(name, joint, self._frame_of_body[body], root)
        articulation = thing.object_properties.get("articulation", {})
        thresholds = {
            key.removeprefix("default_").removesuffix("_ranges"): _rounded(value)
            for key, value in articulation.items()
            if len(value) == 2
        }
        self._entities[name] = {"fixture": fixture, "frames": rows, "thresholds": thresholds}

    def _add_joint(self, entity: str, joint: int, row: int, root: int) -> None:
        data = self._sim.data._data
        rotation = data.xmat[root].reshape(3, 3)
        self._joint_names.append(self._model.joint(joint).name)
        self._joint_addresses.append(int(self._model.jnt_qposadr[joint]))
        self._joints.append(
            {
                "entity": entity,
                "frame": row,
                "kind": "slide" if self._model.jnt_type[joint] == _SLIDE else "hinge",
                "axis": _rounded(rotation.T @ data.xaxis[joint]),
                "anchor": _rounded(rotation.T @ (data.xanchor[joint] - data.xpos[root])),
                "range": _rounded(self._model.jnt_range[joint]),
            }
        )

    def _region(self, name: str, site: Any) -> dict[str, Any]:
        data = self._sim.data._data
        identity = self._model.site(name).id
        row = self._frame_of_body.get(int(self._model.site_bodyid[identity]))
        pose = self._local(row, data.site_xpos[identity], data.site_xmat[identity].reshape(3, 3))
        return {
            "entity": getattr(site, "parent_name", None),
            "frame": row,
            "pose": pose,
            "size": _rounded(np.asarray(site.size, np.float64)),
            "joints": [self._joint_names.index(joint) for joint in site.joints or () if joint in self._joint_names],
        }

    def _box(self, geom: int, row: int) -> list[float]:
        data = self._sim.data._data
        kind, size = int(self._model.geom_type[geom]), np.array(self._model.geom_size[geom])
        if kind == _CAPSULE:
            size = np.array([size[0], size[0], size[0] + size[1]])
        elif kind == _CYLINDER:
            size = np.array([size[0], size[0], size[1]])
        elif kind == _SPHERE:
            size = np.repeat(size[0], 3)
        elif kind != _BOX:
            # A mesh: its bounding box in its own frame.
            size = np.array(self._model.geom_aabb[geom][3:])
        return self._local(row, data.geom_xpos[geom], data.geom_xmat[geom].reshape(3, 3)) + _rounded(size)

    def _local(self, row: int | None, position: Array, rotation: Array) -> list[float]:
        if row is not None:
            data = self._sim.data._data
            body = self._bodies[row - 1]
            frame = data.xmat[body].reshape(3, 3)
            position, rotation = frame.T @ (position - data.xpos[body]), frame.T @ rotation
        return _rounded(position) + _rounded(_quaternion(rotation))

    def _ancestry(self, body: int) -> Iterable[int]:
        while body:
            yield body
            body = int(self._model.body_parentid[body])


def _encode(scene: dict[str, Any]) -> npt.NDArray[np.uint8]:
    text = json.dumps(scene, separators=(",", ":")).encode()
    if len(text) > SCENE_BYTES:
        raise SceneTooLarge(f"scene takes {len(text)} bytes; {SCENE_BYTES} are offered")
    padded = np.zeros(SCENE_BYTES, np.uint8)
    padded[: len(text)] = np.frombuffer(text, np.uint8)
    return padded


def _rounded(values: Array | Sequence[float]) -> list[float]:
    # A tenth of a millimetre or of a milliradian is finer than any contact that a plan depends on.
    return [round(float(value), 4) + 0.0 for value in values]


def _quaternion(rotation: Array) -> Array:
    """Returns the wxyz quaternion of a rotation matrix, with w >= 0."""
    # The largest eigenvector of this symmetric matrix is the quaternion; it has no singular case.
    (xx, xy, xz), (yx, yy, yz), (zx, zy, zz) = rotation
    symmetric = np.array(
        [
            [xx + yy + zz, zy - yz, xz - zx, yx - xy],
            [zy - yz, xx - yy - zz, yx + xy, zx + xz],
            [xz - zx, yx + xy, yy - xx - zz, zy + yz],
            [yx - xy, zx + xz, zy + yz, zz - xx - yy],
        ]
    )
    quaternion: Array = np.linalg.eigh(symmetric)[1][:, -1]
    return quaternion if quaternion[0] >= 0 else -quaternion

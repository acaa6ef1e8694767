"""Where to grasp a thing from above, and how high to carry it: geometry over clouds of points.

A grasp is judged in the hand's own coordinates: u along the direction in which the fingers open, v across it, and the
height above the point between the fingertips. The measures of the hand are those of the Panda gripper.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sparring.policy_server.policies._libero.motion import pointing_down
from sparring.policy_server.policies._libero.world import Array

Mask = npt.NDArray[np.bool_]

_YAWS = 12
_STEP = 0.006
_INNER = 0.037  # half of the space between the open fingers
_OUTER = 0.057  # their outer sides
_FINGER_SIDE = 0.0105
_TIP = 0.0095  # the fingertips reach this far below the point between them
_PALM = 0.031  # and the palm begins this far above it
_PALM_LENGTH, _PALM_SIDE = 0.104, 0.032
_DEPTHS = (0.012, 0.019, 0.026)
_WIDEST = 0.070
_BODY = (
    # Half-widths of the closed fingers, the palm and the wrist, and where their middles are along the hand's direction.
    ((0.028, _FINGER_SIDE, 0.027), -0.018),
    ((_PALM_LENGTH, _PALM_SIDE, 0.046), -0.077),
    ((0.06, 0.06, 0.05), -0.17),
)


@dataclass(frozen=True, slots=True)
class Grasp:
    """Says where the point between the fingertips goes, the direction the fingers open in, and how bad it is."""

    position: Array
    yaw: float
    cost: float

    @property
    def rotation(self) -> Array:
        """The hand's orientation: pointing straight down."""
        return pointing_down(self.yaw)


def plan_grasps(thing: Array, obstacles: Array, yaw: float, count: int = 4) -> list[Grasp]:
    """Returns the best grasps from above, well apart from each other, best first.

    Args:
        thing: Points that fill what is to be grasped.
        obstacles: Points that fill everything else near it.
        yaw: The direction in which the fingers open now; turning costs time.
        count: How many to give at most.
    """
    middle, low = (thing.max(0) + thing.min(0)) / 2, float(thing[:, 2].min())
    near = obstacles[np.linalg.norm(obstacles[:, :2] - middle[:2], axis=1) < np.ptp(thing, axis=0)[:2].max() + 0.15]
    found: list[Grasp] = []
    # In crowded surroundings, first without the margins that make a grasp safe, then without regard to the palm.
    for margin, palm in ((0.006, True), (0.0, True), (0.0, False)):
        for turn in (np.arange(_YAWS) - _YAWS // 2) * np.pi / _YAWS:
            found += _View(thing, near, middle, yaw + turn).grasps(abs(turn), low, margin, palm)
        if found:
            break
    chosen: list[Grasp] = []
    for grasp in sorted(found, key=lambda grasp: grasp.cost):
        if all(_apart(grasp, other) for other in chosen):
            chosen.append(grasp)
        if len(chosen) == count:
            break
    return chosen


class _View:
    """Thing and obstacles in the coordinates of a hand that points down with its fingers opening along a yaw."""

    def __init__(self, thing: Array, obstacles: Array, middle: Array, yaw: float) -> None:
        self._yaw, self._middle = yaw, middle
        self._axes = np.array([[np.cos(yaw), np.sin(yaw)], [-np.sin(yaw), np.cos(yaw)]])
        self._u, self._v = self._axes @ (thing[:, :2] - middle[:2]).T
        self._z = thing[:, 2]
        self._far_u, self._far_v = self._axes @ (obstacles[:, :2] - middle[:2]).T
        self._far_z = obstacles[:, 2]

    def grasps(self, turn: float, low: float, margin: float, palm: bool) -> Iterator[Grasp]:
        """Returns all grasps that hold something and hit nothing.

        Args:
            turn: How far the hand has to turn for this view.
            low: Height of the thing's lowest point.
            margin: Distance to keep from obstacles.
            palm: Whether the palm has to keep it too.
        """
        for v in np.arange(self._v.min() + 0.004, self._v.max() - 0.003, _STEP):
            strip = np.abs(self._v - v) < 0.009
            if not strip.any():
                continue
            for u in np.arange(self._u[strip].min(), self._u[strip].max() + _STEP / 2, _STEP):
                covered = (np.abs(self._v - v) < _PALM_SIDE) & (np.abs(self._u - u) < _PALM_LENGTH)
                top = float(self._z[covered].max())
                for tip in sorted({max(top - depth, low + _TIP + 0.004) for depth in _DEPTHS}):
                    cost = self._hold(strip, u, v, tip, top)
                    if cost is not None and not self._hits(u, v, tip, margin, palm):
                        place = self._middle[:2] + np.array([u, v]) @ self._axes
                        yield Grasp(np.array([*place, tip]), float(self._yaw), cost + 0.008 * turn)

    def _hold(self, strip: Mask, u: float, v: float, tip: float, top: float) -> float | None:
        """Returns how badly the thing would be held, or nothing if the fingers miss or hit it."""
        along, across, height = self._u[strip], self._v[strip], self._z[strip]
        gap = np.abs(along - u)
        pad = (height > tip - 0.005) & (height < tip + 0.011) & (gap < _INNER + 0.002)
        if pad.sum() < 4 or top > tip + _PALM - 0.002:
            return None
        left, right = float(along[pad].min()), float(along[pad].max())
        if abs((left + right) / 2 - u) > _STEP / 2 or right - left > _WIDEST:
            return None
        if ((height > tip - _TIP) & (gap > _INNER) & (gap < _OUTER)).any():
            return None
        skew = _skew(along[pad], across[pad] - v) + _skew(along[pad], height[pad] - tip - 0.003)
        return 0.3 * float(np.hypot(u, v)) + 2.0 * skew + 0.1 * (right - left) + 0.6 * abs(top - tip - 0.015)

    def _hits(self, u: float, v: float, tip: float, margin: float, palm: bool) -> bool:
        """Returns whether fingers or palm meet an obstacle, there or on the way down."""
        along, across = np.abs(self._far_u - u), np.abs(self._far_v - v)
        beside = (across < _FINGER_SIDE + margin) & (along > _INNER - margin) & (along < _OUTER + margin)
        if (beside & (self._far_z > tip - _TIP - margin)).any():
            return True
        under = (across < _PALM_SIDE + margin) & (along < _PALM_LENGTH + margin)
        return palm and bool((under & (self._far_z > tip + _PALM - margin)).any())


def _skew(u: Array, along: Array) -> float:
    """Returns how much the grasped surfaces lean along a direction of the pads: what leans slips."""
    ahead, behind = u[along > 0.002], u[along < -0.002]
    if not len(ahead) or not len(behind):
        return 0.02
    return float(abs(ahead.max() - behind.max()) + abs(ahead.min() - behind.min())) / 2


def _apart(one: Grasp, other: Grasp) -> bool:
    turned = abs((one.yaw - other.yaw + np.pi / 2) % np.pi - np.pi / 2)
    return bool(np.linalg.norm(one.position - other.position) > 0.02 or turned > 0.5)


def ceiling(points: Array, start: Array, end: Array, radius: float) -> float:
    """Returns the height of the highest point within a radius of the way from start to end, seen from above."""
    way = end[:2] - start[:2]
    share = np.clip(((points[:, :2] - start[:2]) @ way) / max(float(way @ way), 1e-9), 0.0, 1.0)
    apart = np.linalg.norm(points[:, :2] - start[:2] - share[:, None] * way, axis=1)
    close = points[apart < radius, 2]
    return float(close.max()) if len(close) else -np.inf


def support_height(footprint: Array, others: Array) -> float:
    """Returns the height of what a thing would rest on, were it lowered where it is.

    Args:
        footprint: Points of the thing, seen from above, where it is to go.
        others: Points of everything else.
    """
    low, high = footprint[:, :2].min(0), footprint[:, :2].max(0)
    shrink = np.minimum(0.006, (high - low) / 4)
    inside = np.all((others[:, :2] > low + shrink) & (others[:, :2] < high - shrink), axis=1)
    return float(others[inside, 2].max()) if inside.any() else -np.inf


def palm_floor(points: Array, position: Array, yaw: float) -> float:
    """Returns the lowest that the fingertips can go at a place before the palm meets something."""
    along, across = np.array([np.cos(yaw), np.sin(yaw)]), np.array([-np.sin(yaw), np.cos(yaw)])
    offset = points[:, :2] - position[:2]
    inside = (np.abs(offset @ along) < _PALM_LENGTH + 0.005) & (np.abs(offset @ across) < _PALM_SIDE + 0.005)
    return float(points[inside, 2].max()) - _PALM if inside.any() else -np.inf


def clearance(points: Array, position: Array, rotation: Array) -> float:
    """Returns how far the closed hand and the wrist above it stay from all points in a pose; negative if they meet."""
    local = (points - position) @ rotation
    room = np.inf
    for half, middle in _BODY:
        beyond = np.abs(local - np.array([0.0, 0.0, middle])) - half
        room = min(room, float(beyond.max(axis=1).min(initial=np.inf)))
    return room

"""Drawers, doors and knobs: goals about a joint."""

from __future__ import annotations

import numpy as np

from sparring.policy_server.policies._libero.grasp import ceiling, plan_grasps
from sparring.policy_server.policies._libero.motion import (
    CLOSED,
    OPEN,
    Hand,
    Motion,
    half_turn_nearest,
    pointing_down,
    yaw_of,
)
from sparring.policy_server.policies._libero.world import Array, Goal, Joint, World

_UP = np.array([0.0, 0.0, 1.0])
_STILL = 0.0  # a gripper command that keeps the fingers where they are
_HAND_RADIUS = 0.11
_PULL_DIP = 15.0  # degrees below the horizon at which a handle is grasped


class Articulate:
    """The skill behind `open`, `close`, `turnon` and `turnoff` goals."""

    def __init__(self, hand: Hand) -> None:
        self._hand = hand

    @property
    def _world(self) -> World:
        return self._hand.world

    def run(self, goal: Goal) -> Motion:
        """Moves the joint of a goal until the goal is met, or tries to."""
        for index in self._world.joints_of(goal.subject):
            if self._world.joint_meets(self._world.joint(index), goal.kind):
                continue
            yield from self._move_joint(index, goal.kind)
            if goal.kind in ("open", "turnon"):
                return

    def shut(self, region: str) -> tuple[int, ...]:
        """Returns the joints of a region that keep it shut."""
        world = self._world
        return tuple(index for index in world.joints_of(region) if not world.joint_meets(world.joint(index), "open"))

    def opened(self, index: int) -> Array:
        """Points that a drawer will fill once it is open."""
        joint = self._world.joint(index)
        travel = joint.high - joint.low
        return self._world.frame_points(joint.frame) + _outward(self._world, joint, "open") * travel

    def open(self, index: int) -> Motion:
        """Opens the drawer of a joint."""
        yield from self._move_joint(index, "open")

    def _move_joint(self, index: int, kind: str) -> Motion:
        joint = self._world.joint(index)
        if kind in ("turnon", "turnoff"):
            yield from self._turn(index, kind)
        elif joint.kind == "slide" and kind == "open":
            yield from self.pull(index)
        elif joint.kind == "slide":
            yield from self._push(index)
        elif kind == "close":
            yield from self._swing(index)

    def pull(self, index: int) -> Motion:
        """Opens a drawer by its handle, with the hand tilted so that it passes the handles above."""
        world, hand = self._world, self._hand
        joint = world.joint(index)
        outward = _outward(world, joint, "open")
        handle = _handle(world.frame_points(joint.frame), outward)
        rotation = half_turn_nearest(_facing(-outward, np.radians(_PULL_DIP), upright=True), world.hand_rotation)
        approach = rotation[:, 2]
        yield from self._go_before(handle - 0.10 * approach, rotation)
        # Half open: a fully open finger would meet the drawer's front behind the handle.
        yield from hand.hold(CLOSED, 4)
        yield from hand.move(handle - 0.05 * approach, rotation, grip=_STILL, tolerance=0.006)
        yield from hand.move(handle, rotation, grip=_STILL, tolerance=0.004, limit=40)
        yield from hand.squeeze()
        drawn = world.hand + outward * (abs(joint.low) + 0.05)
        low, high = world.threshold(joint.entity, "open")
        enough = min(abs(low), abs(high)) + 0.008

        def far() -> bool:
            return abs(world.joint(index).position) > enough

        yield from hand.move(drawn, rotation, grip=CLOSED, limit=80, until=far)
        yield from hand.release()
        yield from hand.move(world.hand - 0.08 * approach, rotation, grip=OPEN, tolerance=0.02, limit=30)
        yield from hand.rise(world.hand[2] + 0.10, grip=OPEN)

    def _push(self, index: int) -> Motion:
        """Shuts a drawer by pushing its front with closed fingers."""
        world, hand = self._world, self._hand
        outward = _outward(world, world.joint(index), "open")
        handle = _handle(world.frame_points(world.joint(index).frame), outward)
        rotation = half_turn_nearest(_facing(-outward, np.radians(50.0), upright=False), world.hand_rotation)
        yield from self._go_before(handle + 0.08 * outward, rotation, grip=CLOSED)
        shut = handle - outward * (abs(world.joint(index).position) + 0.03)
        yield from hand.move(
            shut, rotation, grip=CLOSED, limit=90, until=lambda: world.joint_meets(world.joint(index), "close")
        )
        yield from hand.move(world.hand + 0.08 * outward, rotation, grip=CLOSED, tolerance=0.02, limit=30)
        yield from hand.rise(world.hand[2] + 0.10, grip=OPEN)

    def _swing(self, index: int) -> Motion:
        """Shuts a door by pushing its far edge along its arc with closed fingers."""
        world, hand = self._world, self._hand
        rotation = pointing_down(yaw_of(world.hand_rotation))
        yield from self._go_before(_door_contact(world, world.joint(index), 0.02), rotation, grip=CLOSED)
        yield from hand.move(
            lambda: _door_contact(world, world.joint(index), -0.06),
            rotation,
            grip=CLOSED,
            tolerance=0.0,
            limit=150,
            give_up_after=60,
            gain=1.0,
            until=lambda: world.joint_meets(world.joint(index), "close"),
        )
        yield from hand.rise(world.hand[2] + 0.10, grip=OPEN)

    def _turn(self, index: int, kind: str) -> Motion:
        """Grasps a knob from above and twists it."""
        world, hand = self._world, self._hand
        joint = world.joint(index)
        sign = 1.0 if world.goes_up(joint, kind) == (joint.axis[2] > 0) else -1.0
        knob = world.frame_points(joint.frame)
        others = world.obstacles(joint.entity)
        grasps = plan_grasps(knob, others, yaw_of(world.hand_rotation) - sign * 0.4)
        if not grasps:
            return
        grasp = grasps[0]
        rotation = half_turn_nearest(grasp.rotation, world.hand_rotation)
        yield from self._go_before(grasp.position + 0.06 * _UP, rotation)
        yield from hand.move(grasp.position, rotation, grip=OPEN, tolerance=0.005, limit=40)
        yield from hand.squeeze()
        start = yaw_of(world.hand_rotation)
        twisted = pointing_down(start + sign * 1.3)
        at = world.hand.copy()
        yield from hand.move(
            at, twisted, grip=CLOSED, limit=50, until=lambda: world.joint_meets(world.joint(index), kind)
        )
        yield from hand.release()
        yield from hand.rise(at[2] + 0.10, grip=OPEN)

    def _go_before(self, place: Array, rotation: Array, grip: float = OPEN) -> Motion:
        """Goes to where a contact begins: up, over, turned, and down."""
        world, hand = self._world, self._hand
        height = max(ceiling(world.obstacles(), world.hand, place, _HAND_RADIUS) + 0.03, place[2])
        yield from hand.rise(height, grip=grip)
        yield from hand.move(np.array([*place[:2], height]), rotation, grip=grip, tolerance=0.02, limit=90)
        yield from hand.move(place, rotation, grip=grip, tolerance=0.01, limit=60)


def _outward(world: World, joint: Joint, kind: str) -> Array:
    """Returns the direction in which a slide goes to meet `kind`."""
    return joint.axis if world.goes_up(joint, kind) else -joint.axis


def _door_contact(world: World, joint: Joint, gap: float) -> Array:
    """Returns where to push a door shut: behind its far edge, near its top so that the palm stays above it.

    Args:
        world: The scene.
        joint: The door's hinge, upright.
        gap: Between the fingers and the door; negative presses against it.
    """
    panel = world.frame_points(joint.frame)
    level = (panel - joint.anchor) * [1.0, 1.0, 0.0]
    along = level.mean(0) / np.linalg.norm(level.mean(0))
    sense = joint.axis if world.goes_up(joint, "close") else -joint.axis
    push = np.cross(sense, along)
    radius = 0.65 * float((level @ along).max())  # short of the handle
    edge = level[np.abs(level @ along - radius) < 0.03]
    behind = float((edge @ -push).max())
    place: Array = joint.anchor + radius * along - (behind + 0.02 + gap) * push
    place[2] = panel[:, 2].max() - 0.02
    return place


def _handle(part: Array, outward: Array) -> Array:
    """Returns the middle of what sticks out most from a drawer."""
    ahead = part @ outward
    bar = part[ahead > ahead.max() - 0.012]
    middle: Array = (bar.max(0) + bar.min(0)) / 2
    return middle


def _facing(direction: Array, dip: float, *, upright: bool) -> Array:
    """Returns the hand's orientation when it points along a level direction, dipped by an angle.

    Args:
        direction: Level unit vector.
        dip: Radians below the horizon.
        upright: Whether the fingers open up and down, else sideways.
    """
    approach = np.cos(dip) * direction - np.sin(dip) * _UP
    sideways = np.cross(_UP, direction)
    fingers = np.cross(sideways, approach) if upright else sideways
    return np.stack([fingers, np.cross(approach, fingers), approach], axis=1)

"""Put a thing into something that is open to one side and covered above, such as a microwave.

The hand cannot follow the thing inside, so it holds it by what sticks out of it (a handle), turns that outwards, and
sets the thing down just behind the front.
"""

from __future__ import annotations

import numpy as np

from sparring.policy_server.policies._libero.grasp import Grasp, ceiling, plan_grasps
from sparring.policy_server.policies._libero.motion import (
    CLOSED,
    OPEN,
    Hand,
    Motion,
    half_turn_nearest,
    pointing_down,
    upward,
    yaw_of,
)
from sparring.policy_server.policies._libero.world import Array, Goal, Region

_PALM_SIDE = 0.032
_BEFORE = 0.12
_REACH = 0.03  # a grasp this far from the thing's middle holds something that sticks out


class Insert:
    """The skill behind `in` goals about a covered region."""

    def __init__(self, hand: Hand) -> None:
        self._hand = hand
        self._tried = 0

    def suits(self, goal: Goal) -> bool:
        """Returns whether the goal's region is covered, so that nothing can be lowered into it."""
        world = self._hand.world
        if goal.kind != "in" or goal.target is None or not world.is_region(goal.target):
            return False
        region = world.region(goal.target)
        if region.entity is None or region.joints:
            return False
        offset = world.body_points(region.entity) - region.center
        half = 0.5 * region.extent[:2]
        above = offset[(offset[:, 2] > 0.02) & np.all(np.abs(offset[:, :2]) < half, axis=1)]
        # A wall that reaches over the middle is not a roof: that spreads both ways.
        return len(above) > 0 and bool(np.all(np.ptp(above[:, :2], axis=0) > 1.5 * half))

    def run(self, goal: Goal) -> Motion:
        """Grasps the thing by its outermost part and sets it down behind the region's front."""
        world, hand, thing = self._hand.world, self._hand, goal.subject
        assert goal.target is not None
        region = world.region(goal.target)
        outward = self._opening(region)
        grasp = self._grasp(thing)
        if grasp is None:
            yield from hand.hold(OPEN, 5)
            return
        rotation = half_turn_nearest(grasp.rotation, world.hand_rotation)
        over = np.array([*grasp.position[:2], ceiling(world.obstacles(), world.hand, grasp.position, 0.11) + 0.02])
        yield from hand.rise(over[2], grip=OPEN)
        yield from hand.move(over, rotation, grip=OPEN, tolerance=0.01)
        yield from hand.move(grasp.position, rotation, grip=OPEN, tolerance=0.005, limit=45)
        yield from hand.squeeze()
        yield from hand.move(world.hand + upward(0.06), rotation, grip=CLOSED, tolerance=0.015, limit=25)
        held = (world.hand - world.position(thing))[:2]
        turn = float(np.arctan2(outward[1], outward[0]) - np.arctan2(held[1], held[0]))
        turn = (turn + np.pi) % (2 * np.pi) - np.pi
        rotation = pointing_down(yaw_of(world.hand_rotation) + turn)
        below = float(world.hand[2] - world.points(thing)[:, 2].min())
        inside = self._place(region, outward, below)
        before = inside + _BEFORE * outward + upward(0.015)
        yield from hand.rise(before[2], grip=CLOSED)
        yield from hand.move(before, rotation, grip=CLOSED, tolerance=0.012, limit=120)
        yield from hand.move(inside + upward(0.015), rotation, grip=CLOSED, tolerance=0.008, limit=60)
        yield from hand.move(inside, rotation, grip=CLOSED, tolerance=0.008, limit=25)
        yield from hand.release()
        yield from hand.move(world.hand + 0.10 * outward, rotation, grip=OPEN, tolerance=0.02, limit=40)
        yield from hand.rise(world.hand[2] + 0.15, grip=OPEN)

    def _grasp(self, thing: str) -> Grasp | None:
        """Returns the best grasp of what sticks out, with the fingers across it."""
        world = self._hand.world
        options = plan_grasps(world.points(thing), world.obstacles(thing), yaw_of(world.hand_rotation), count=60)
        fitting = []
        for grasp in options:
            offset = (grasp.position - world.position(thing))[:2]
            distance = float(np.linalg.norm(offset))
            along = abs(float(offset @ [np.cos(grasp.yaw), np.sin(grasp.yaw)])) / max(distance, 1e-6)
            if distance > _REACH and along < 0.4:
                fitting.append((grasp.cost - distance, grasp))
        if not fitting:
            return None
        fitting.sort(key=lambda option: option[0])
        self._tried += 1
        return fitting[(self._tried - 1) % len(fitting)][1]

    def _opening(self, region: Region) -> Array:
        """Returns the level direction in which the region's surroundings are open."""
        world = self._hand.world
        assert region.entity is not None
        body = world.body_points(region.entity) - region.center
        body = body[np.abs(body[:, 2]) < 0.03]
        free = {}
        for axis in (0, 1):
            for sign in (1.0, -1.0):
                direction = sign * region.rotation[:, axis]
                side = np.linalg.norm(body - np.outer(body @ direction, direction), axis=1)
                ahead = body[(side < 0.05)] @ direction
                free[float(ahead.max(initial=0.0))] = direction
        return free[min(free)]

    def _place(self, region: Region, outward: Array, below: float) -> Array:
        """Returns where the hand lets go: in the middle of the opening, as close to it as the palm allows."""
        world = self._hand.world
        assert region.entity is not None
        body = world.body_points(region.entity)
        sideways = np.cross(outward, upward(1.0))
        offset = body - region.center
        level = np.abs(offset[:, 2]) < 0.03
        walls = offset[level & (np.abs(offset @ outward) < 0.05)] @ sideways
        left, right = walls[walls < 0].max(initial=-0.1), walls[walls > 0].min(initial=0.1)
        middle = (left + right) / 2
        front = float((offset[np.abs(offset @ sideways - middle) < 0.09] @ outward).max())
        inner = (np.abs(offset @ sideways - middle) < 0.03) & (offset[:, 2] < 0) & (np.abs(offset @ outward) < 0.05)
        floor = float(body[inner, 2].max(initial=region.center[2] - region.extent[2]))
        place: Array = region.center + middle * sideways + (front + _PALM_SIDE + 0.008) * outward
        place[2] = floor + below + 0.004
        return place

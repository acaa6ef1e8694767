"""Drag a flat thing over the table to a region: what is too wide and too low to be grasped.

The closed fingers press onto its middle, within what it stands on (outside of that it would tip), and take it along by
friction. A thing that is dragged cannot slip off sideways as one that is pushed does, and the hand stays away from
whatever stands behind it.
"""

from __future__ import annotations

import numpy as np

from sparring.policy_server.policies._libero.grasp import ceiling, clearance
from sparring.policy_server.policies._libero.motion import (
    CLOSED,
    OPEN,
    Hand,
    Motion,
    half_turn_nearest,
    pointing_down,
    upward,
)
from sparring.policy_server.policies._libero.world import Array, Goal

_FLAT = 0.03
_INSIDE = 0.012  # from the thing's middle, where the fingers press
_TIP = 0.0095
_PALM = 0.027  # the palm is a little more than this above the fingertips
_PRESS = 0.008
_LEAD = 0.03
_THERE = 0.015
_SLIPPED = 0.05


class Drag:
    """The skill behind `on` goals about a place on the table and a thing that only slides."""

    def __init__(self, hand: Hand) -> None:
        self._hand = hand

    def suits(self, goal: Goal) -> bool:
        """Returns whether a goal is to be met by dragging."""
        world = self._hand.world
        if goal.kind != "on" or goal.target is None or not world.is_region(goal.target):
            return False
        height = float(np.ptp(world.points(goal.subject)[:, 2]))
        return world.region(goal.target).entity is None and height < _FLAT

    def run(self, goal: Goal) -> Motion:
        """Drags the goal's subject to its target."""
        assert goal.target is not None
        yield from self.to(goal.subject, self._hand.world.region(goal.target).center.copy())

    def to(self, thing: str, target: Array) -> Motion:
        """Drags a thing; ends when it is there or the fingers have slipped too far.

        What is too deep for the fingers to reach its floor without the palm meeting its rim is taken along by its wall.
        """
        world, hand = self._hand.world, self._hand
        points, position = world.points(thing), world.position(thing)
        contact = position - _towards(position, target) * _INSIDE
        floor = points[np.linalg.norm((points - contact)[:, :2], axis=1) < 0.01]
        on_floor, under_palm = float(floor[:, 2].max()) + _TIP, float(points[:, 2].max()) - _PALM
        contact[2] = max(on_floor, under_palm)
        press = _PRESS if on_floor > under_palm else 0.0
        rotation = self._rotation(thing, contact)
        height = max(ceiling(world.obstacles(), world.hand, contact, 0.11) + 0.02, contact[2])
        yield from hand.rise(height, grip=CLOSED)
        yield from hand.move(np.array([*contact[:2], height]), rotation, grip=CLOSED, tolerance=0.01)
        yield from hand.move(contact, rotation, grip=CLOSED, tolerance=0.006, limit=50)
        yield from hand.move(contact - upward(press), rotation, grip=CLOSED, limit=4)

        def ahead() -> Array:
            spot = world.hand + _towards(world.position(thing), target) * _LEAD
            return np.array([*spot[:2], contact[2] - press])

        def over() -> bool:
            offset = (world.position(thing) - target)[:2]
            slipped = np.linalg.norm((world.hand - world.position(thing))[:2]) > _SLIPPED
            return bool(np.abs(offset).max() < _THERE or slipped)

        yield from hand.move(
            ahead, rotation, grip=CLOSED, tolerance=0.0, limit=200, give_up_after=200, gain=1.0, until=over
        )
        yield from hand.move(world.hand + upward(0.05), rotation, grip=OPEN, tolerance=0.02, limit=15)

    def _rotation(self, thing: str, contact: Array) -> Array:
        """Returns an orientation that points down, with the palm as clear as it can be of what stands around."""
        world = self._hand.world
        others = world.obstacles(thing)
        current = world.hand_rotation
        options = [half_turn_nearest(pointing_down(yaw), current) for yaw in np.arange(8) * np.pi / 8]
        return max(options, key=lambda rotation: min(0.02, clearance(others, contact, rotation)))


def _towards(start: Array, end: Array) -> Array:
    way = np.array([*(end - start)[:2], 0.0])
    return way / max(float(np.linalg.norm(way)), 1e-6)

"""Pick a thing up and put it on or into something."""

from __future__ import annotations

import numpy as np

from sparring.policy_server.policies._libero.grasp import ceiling, palm_floor, plan_grasps, support_height
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
from sparring.policy_server.policies._libero.world import Array, Goal, World

_HAND_RADIUS = 0.11
_ABOVE = 0.02
_ATTEMPTS = 4
_APART = 1.45
_EASY = 0.04  # cost of a grasp that will do


class Carry:
    """The skill behind `on` and `in` goals."""

    def __init__(self, hand: Hand) -> None:
        self._hand = hand
        self._tried: dict[str, int] = {}

    @property
    def _world(self) -> World:
        return self._hand.world

    def run(self, goal: Goal, sharing: tuple[int, int] = (0, 1)) -> Motion:
        """Carries the goal's subject to its target.

        Args:
            goal: An `on` or `in` goal.
            sharing: Which of how many things that go to the same region this one is.
        """
        assert goal.target is not None
        yield from self.pick(goal.subject)
        if self._holding(goal.subject):
            yield from self.place(goal, sharing)

    def pick(self, thing: str) -> Motion:
        """Grasps a thing and lifts it a little; gives up after a few attempts, each with another grasp."""
        world, hand = self._world, self._hand
        for _ in range(_ATTEMPTS):
            turn = self._tried.get(thing, 0)
            self._tried[thing] = turn + 1
            grasps = plan_grasps(world.points(thing), world.obstacles(thing), yaw_of(world.hand_rotation))
            if not grasps:
                yield from hand.rise(world.hand[2] + 0.05, grip=OPEN)
                continue
            grasp = grasps[turn % len(grasps)]
            rotation = half_turn_nearest(grasp.rotation, world.hand_rotation)
            start = world.position(thing).copy()
            safe = ceiling(world.obstacles(), world.hand, grasp.position, _HAND_RADIUS) + _ABOVE
            over = np.array([*grasp.position[:2], max(safe, grasp.position[2] + 0.06)])
            yield from hand.rise(over[2], grip=OPEN)
            yield from hand.move(over, rotation, grip=OPEN, tolerance=0.01)
            yield from hand.move(grasp.position, rotation, grip=OPEN, tolerance=0.005, limit=45)
            yield from hand.squeeze()
            lifted = world.hand + upward(0.05)
            yield from hand.move(lifted, rotation, grip=CLOSED, tolerance=0.015, limit=25)
            if world.position(thing)[2] > start[2] + 0.02:
                return
            yield from hand.release()

    def place(self, goal: Goal, sharing: tuple[int, int]) -> Motion:
        """Carries what the hand holds to the goal's target and lets go of it there."""
        yield from self._put(goal, self._spot(goal, sharing), self._aligned(goal))

    def spot_aside(self, thing: str, coming: Array) -> Array | None:
        """Returns where to move a thing that could not be grasped well any more once something else has come near it.

        Args:
            thing: What is to be grasped later.
            coming: Points that will be filled then.

        Returns:
            The place, or nothing if the thing can stay.
        """
        world = self._world
        others = np.concatenate([world.obstacles(thing), coming])
        later = plan_grasps(world.points(thing), others, yaw_of(world.hand_rotation), count=1)
        if later and later[0].cost < _EASY:
            return None
        return _free_spot(world.points(thing), world.position(thing), others)

    def _put(self, goal: Goal, target: Array, rotation: Array) -> Motion:
        world, hand, thing = self._world, self._hand, goal.subject
        below = world.hand[2] - world.points(thing)[:, 2].min()
        reach = np.linalg.norm((world.points(thing) - world.hand)[:, :2], axis=1).max()
        others = world.obstacles(thing)
        radius = max(_HAND_RADIUS, float(reach) + 0.01)
        height = max(ceiling(others, world.hand, target, radius) + below + _ABOVE, world.hand[2] - 0.02)

        def lost() -> bool:
            return not self._holding(thing)

        def over(level: float) -> Array:
            return np.array([*(target[:2] + (world.hand - self._anchor(goal))[:2]), level])

        yield from hand.rise(height, grip=CLOSED)
        yield from hand.move(lambda: over(height), rotation, grip=CLOSED, limit=110, until=lost)
        if lost():
            yield from hand.release()
            return
        level = self._release_level(goal, target, height)
        yield from hand.move(lambda: over(level), rotation, grip=CLOSED, tolerance=0.007, limit=45)
        yield from hand.release()
        yield from hand.rise(world.hand[2] + 0.08, grip=OPEN)

    def _release_level(self, goal: Goal, target: Array, height: float) -> float:
        world, thing = self._world, goal.subject
        others = world.obstacles(thing)
        points = world.points(thing)
        way = np.array([*(target - self._anchor(goal))[:2], 0.0])
        support = support_height(points + way, others)
        if not np.isfinite(support):
            # Nothing but the table is there, which is not among the things; its regions lie on it.
            region = world.region(goal.target) if goal.target and world.is_region(goal.target) else None
            support = float(target[2]) if region is None else float(region.center[2] - region.extent[2])
        below = world.hand[2] - points[:, 2].min()
        lowest = palm_floor(others, world.hand + way, yaw_of(world.hand_rotation))
        return min(height, max(float(support + below) + 0.004, lowest + 0.008))

    def _anchor(self, goal: Goal) -> Array:
        """Returns the point of the thing that is brought over the target."""
        world = self._world
        if goal.kind == "on":
            return world.position(goal.subject)
        points = world.points(goal.subject)
        middle: Array = (points.max(0) + points.min(0)) / 2
        return middle

    def _spot(self, goal: Goal, sharing: tuple[int, int]) -> Array:
        world = self._world
        assert goal.target is not None
        if not world.is_region(goal.target):
            return world.position(goal.target).copy()
        region = world.region(goal.target)
        spot = region.center.copy()
        which, of = sharing
        if of > 1:
            extent = region.extent[:2]
            axis = int(np.argmax(extent))
            # Wider apart than even shares: only the origins have to be inside, and the things must not touch.
            spot[axis] += _APART * extent[axis] * ((2 * which + 1) / of - 1)
        return spot

    def _aligned(self, goal: Goal) -> Array:
        """Returns the hand's orientation at the target: a long thing goes into a long region lengthwise."""
        world = self._world
        current = pointing_down(yaw_of(world.hand_rotation))
        assert goal.target is not None
        if goal.kind != "in" or not world.is_region(goal.target):
            return current
        region = world.region(goal.target)
        room = region.rotation @ np.diag(region.size**2) @ region.rotation.T
        long_room, long_thing = _direction(room[:2, :2]), _direction(np.cov(world.points(goal.subject)[:, :2].T))
        if long_room is None or long_thing is None:
            return current
        turn = (long_room - long_thing + np.pi / 2) % np.pi - np.pi / 2
        return pointing_down(yaw_of(current) + turn)

    def _holding(self, thing: str) -> bool:
        world = self._world
        near = np.linalg.norm(world.points(thing) - world.hand, axis=1).min() < 0.025
        return bool(near and world.opening > 0.001)


def _free_spot(points: Array, position: Array, others: Array) -> Array:
    """Returns the nearest place beside a thing that has room for it and for the hand around it."""
    radius = float(np.linalg.norm((points - position)[:, :2], axis=1).max())
    best, best_room = position, -np.inf
    for distance in (0.08, 0.11, 0.14, 0.17):
        for angle in np.arange(12) * np.pi / 6:
            spot = position + distance * np.array([np.cos(angle), np.sin(angle), 0.0])
            room = float(np.linalg.norm((others - spot)[:, :2], axis=1).min()) - radius
            if room > best_room:
                best, best_room = spot, room
        if best_room > 0.06:
            break
    return best


def _direction(covariance: Array) -> float | None:
    """Returns the direction in which a footprint is long, if it is."""
    values, vectors = np.linalg.eigh(covariance)
    if values[1] < 2.0 * values[0]:
        return None
    return float(np.arctan2(vectors[1, 1], vectors[0, 1]))

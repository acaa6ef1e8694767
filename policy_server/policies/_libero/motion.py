"""Motions of the hand as generators: each yields one action per control step and reads the world in between.

Actions are LIBERO's ordinary relative ones: a position delta (±1 is 5 cm), a rotation delta about the world's axes
(±1 is 0.5 rad) and the gripper's direction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from sparring.policy_server.policies._libero.world import Array, World, rotation_vector

Motion = Iterator[Array]

OPEN, CLOSED = -1.0, 1.0

_REACH = 0.05  # metres that an action of 1 asks for
_TURN = 0.5  # radians that an action of 1 asks for


def upward(height: float) -> Array:
    """Returns a vector straight up."""
    return np.array([0.0, 0.0, height])


def pointing_down(yaw: float) -> Array:
    """Returns the hand's orientation when it points straight down and its fingers open along `yaw`."""
    fingers = np.array([np.cos(yaw), np.sin(yaw), 0.0])
    down = np.array([0.0, 0.0, -1.0])
    return np.stack([fingers, np.cross(down, fingers), down], axis=1)


def yaw_of(rotation: Array) -> float:
    """Returns the direction in which the fingers open, seen from above."""
    return float(np.arctan2(rotation[1, 0], rotation[0, 0]))


def half_turn_nearest(rotation: Array, current: Array) -> Array:
    """Returns the closer one of the two orientations that are the same to a two-fingered hand."""
    flipped = rotation * np.array([-1.0, -1.0, 1.0])
    return max((rotation, flipped), key=lambda option: float(np.trace(option @ current.T)))


class Hand:
    """Motion primitives over a world that is updated between the steps."""

    def __init__(self, world: World) -> None:
        self.world = world

    def move(
        self,
        position: Array | Callable[[], Array],
        rotation: Array | None = None,
        *,
        grip: float,
        tolerance: float = 0.008,
        turn_tolerance: float = 0.1,
        limit: int = 80,
        give_up_after: int = 12,
        gain: float = 1.5,
        until: Callable[[], bool] | None = None,
    ) -> Motion:
        """Moves towards a position, given or recomputed at every step, and an orientation.

        Ends when it is there, when `until` says so, when it gets no closer, or after `limit` steps; the caller checks
        what it needs.

        Args:
            position: Where the point between the fingertips shall be.
            rotation: The hand's orientation; by default straight down with the fingers as they are.
            grip: `OPEN` or `CLOSED`.
            tolerance: How close is there, in metres.
            turn_tolerance: How close is there, in radians.
            limit: Most steps to spend.
            give_up_after: Steps without coming closer after which it ends.
            gain: Share of the remaining way that each step asks for; above 2 it overshoots.
            until: An extra reason to stop, asked before every step.
        """
        goal = pointing_down(yaw_of(self.world.hand_rotation)) if rotation is None else rotation
        bias, best, waited = np.zeros(3), np.inf, 0
        for _ in range(limit):
            target = position() if callable(position) else position
            error = target - self.world.hand
            turn = rotation_vector(goal @ self.world.hand_rotation.T)
            distance, angle = float(np.linalg.norm(error)), float(np.linalg.norm(turn))
            if (distance < tolerance and angle < turn_tolerance) or (until is not None and until()):
                return
            waited = 0 if distance + 0.1 * angle < best - 0.001 else waited + 1
            best = min(best, distance + 0.1 * angle)
            if waited >= give_up_after:
                return
            # Near the arm's limits the controller rests a centimetre off; what stays gets pushed harder.
            bias = np.clip(bias + 0.15 * error, -0.03, 0.03) if distance < 0.03 else np.zeros(3)
            yield _action(error * gain + bias, turn, grip)

    def hold(self, grip: float, steps: int) -> Motion:
        """Stays where it is."""
        for _ in range(steps):
            yield _action(np.zeros(3), np.zeros(3), grip)

    def squeeze(self, limit: int = 16) -> Motion:
        """Closes the fingers until they have stopped moving."""
        still, last = 0, self.world.opening
        for step in range(limit):
            yield _action(np.zeros(3), np.zeros(3), CLOSED)
            still = still + 1 if abs(self.world.opening - last) < 4e-4 else 0
            last = self.world.opening
            # The command ramps up before the fingers start to move.
            if step > 5 and still >= 3:
                return

    def release(self, steps: int = 8) -> Motion:
        """Opens the fingers."""
        yield from self.hold(OPEN, steps)

    def rise(self, height: float, *, grip: float) -> Motion:
        """Lifts the hand straight up to a height, if it is below it."""
        if self.world.hand[2] < height - 0.01:
            yield from self.move(np.array([*self.world.hand[:2], height]), grip=grip, tolerance=0.02, limit=50)


def _action(error: Array, turn: Array, grip: float) -> Array:
    # Scaled as a whole, so that a long way is a straight one.
    reach = error / max(_REACH, float(np.abs(error).max()))
    twist = turn / max(_TURN, float(np.abs(turn).max()))
    return np.array([*reach, *twist, grip])

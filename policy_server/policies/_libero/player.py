"""A scripted expert for LIBERO: reads the goal and the privileged state, acts through ordinary relative actions.

It needs no simulator and no LIBERO: only the observations named in `LiberoPlayer.needs`. One instance plays one
episode and is deterministic.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sparring.policy_server.policies._libero.drag import Drag
from sparring.policy_server.policies._libero.fixtures import Articulate
from sparring.policy_server.policies._libero.insert import Insert
from sparring.policy_server.policies._libero.motion import OPEN, Hand, Motion
from sparring.policy_server.policies._libero.place import Carry
from sparring.policy_server.policies._libero.world import Goal, World

_VERDICT_STEPS = 15  # steps to wait for the simulator's verdict once all goals look met


class LiberoPlayer:
    """Plays one episode."""

    needs: Sequence[str] = World.needs
    """Names of the observations that `act` reads."""

    def __init__(self) -> None:
        self._world: World | None = None
        self._motion: Iterator[npt.NDArray[np.float64]] = iter(())

    def act(self, observation: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.float64]:
        """Returns the action for the latest observation: position delta, rotation delta, gripper, each in [-1, 1]."""
        if self._world is None:
            self._world = World(observation)
            self._motion = _play(Hand(self._world))
        else:
            self._world.update(observation)
        return next(self._motion)


def _play(hand: Hand) -> Motion:
    """Works on the first goal that is not met, in an order that never undoes what was done; never ends."""
    world = hand.world
    carry, drag, insert, articulate = Carry(hand), Drag(hand), Insert(hand), Articulate(hand)
    goals = in_order(world.goals)
    while True:
        pending = [goal for goal in goals if not world.holds(goal)]
        if not pending:
            yield from hand.hold(OPEN, _VERDICT_STEPS)
            # Still running, so the simulator disagrees: something is in place but does not touch. Do it again.
            pending = [goal for goal in goals if goal.kind in ("on", "in")] or list(goals)
        goal = pending[0]
        yield from hand.hold(OPEN, 1)
        if goal.kind not in ("on", "in"):
            yield from articulate.run(goal)
        elif drag.suits(goal):
            yield from drag.run(goal)
        elif insert.suits(goal):
            yield from insert.run(goal)
        else:
            # A drawer that a thing goes into has to be open, whether the goal says so or not.
            for joint in articulate.shut(goal.target) if goal.kind == "in" and goal.target else ():
                aside = carry.spot_aside(goal.subject, articulate.opened(joint))
                if aside is not None:
                    yield from drag.to(goal.subject, aside)
                yield from articulate.open(joint)
            yield from carry.run(goal, sharing(goal, goals))


def in_order(goals: Sequence[Goal]) -> list[Goal]:
    """Returns goals in the order to work on them: make room, place what carries before what is carried, then shut."""
    filled = {goal.target for goal in goals if goal.kind == "in"}

    def rank(goal: Goal) -> int:
        if goal.kind in ("on", "in"):
            return 2
        if goal.kind == "close":
            return 3 if any(target and target.startswith(goal.subject) for target in filled) else 0
        return 1

    ordered = sorted(goals, key=rank)
    # A thing that others are put on has to be in its own place first.
    return sorted(ordered, key=lambda goal: (rank(goal), _depth(goal, goals)))


def _depth(goal: Goal, goals: Sequence[Goal]) -> int:
    below = [other for other in goals if other.subject == goal.target and other.kind in ("on", "in")]
    return 1 + _depth(below[0], goals) if below else 0


def sharing(goal: Goal, goals: Sequence[Goal]) -> tuple[int, int]:
    """Returns which of how many things that go onto the same region a goal's subject is."""
    same = [other for other in goals if other.kind == goal.kind == "on" and other.target == goal.target]
    return (same.index(goal), len(same)) if goal in same else (0, 1)

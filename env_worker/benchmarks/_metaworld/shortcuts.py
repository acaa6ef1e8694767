"""Where Meta-World does the same thing for less: contacts, observations, and resets that play their physics once.

Bits stay those of Meta-World. With a version that these were not compared with, everything is done in its own way.
"""

from __future__ import annotations

import importlib.metadata
import logging
import math
from functools import lru_cache
from types import FunctionType
from typing import Any, Final

import numpy as np

_LOG = logging.getLogger(__name__)

KNOWN_VERSIONS: Final = frozenset({"3.1.1"})
"""Of Meta-World, with which all tasks were compared."""

KNOWN_SCIPY: Final = frozenset({"1.17.1"})
"""Whose quaternions were compared: the same ones for a matrix that was checked here and for one that scipy checks."""

_REMEMBERED: Final = frozenset({"lever-pull-v3", "push-v3", "push-back-v3", "stick-push-v3"})
"""Tasks that set their scene by what they measured when they set it before, so that all of that is played."""


def take_shortcuts(env: Any, task: str) -> None:
    """Replaces what costs more than it has to in Meta-World's environment of a task."""
    version = importlib.metadata.version("metaworld")
    if version not in KNOWN_VERSIONS:
        _say_once(version)
        return
    methods: dict[str, Any] = {
        "touching_object": _touching_object,
        "_get_curr_obs_combined_no_goal": _observe,
        "_get_obs": _observe_twice,
    }
    if task not in _REMEMBERED:
        methods["reset"] = _reset
    rotations = type(env)._get_quat_objects
    if "Rotation" in rotations.__code__.co_names and importlib.metadata.version("scipy") in KNOWN_SCIPY:
        methods["_get_quat_objects"] = _with_quick_rotations(rotations)
    # As a class of its own: methods that the environment itself held would keep it, and its GL context, until the
    # garbage collector comes, in the middle of somebody else's drawing.
    original = type(env)
    env.__class__ = type(original.__name__, (original,), methods)


@lru_cache
def _say_once(version: str) -> None:
    _LOG.warning("steps and resets of Meta-World %s are its own: faster ones are not known to be the same", version)


def _touching_object(env: Any, object_geom_id: int) -> bool:
    """Does what the method of this name does, which makes an object of each contact, twice."""
    data = env.data
    left = right = 0.0
    if data.ncon:
        left_pad, right_pad = data.geom("leftpad_geom").id, data.geom("rightpad_geom").id
        contacts, forces = data.contact, data.efc_force
        for geoms, address in zip(contacts.geom.tolist(), contacts.efc_address.tolist(), strict=True):
            if object_geom_id in geoms:
                if left_pad in geoms:
                    left += forces[address]
                if right_pad in geoms:
                    right += forces[address]
    return bool(left > 0 and right > 0)


def _observe(env: Any) -> Any:
    """Does what the method of this name does, which makes a dozen arrays on the way to one."""
    positions, rotations = env._get_pos_objects(), env._get_quat_objects()
    objects = len(positions) // 3
    assert len(positions) == 3 * objects
    assert len(rotations) == 4 * objects
    seen = np.zeros(4 + env._obs_obj_max_len)
    seen[:3] = env.get_endeff_pos()
    apart = env.data.body("rightclaw").xpos - env.data.body("leftclaw").xpos
    seen[3] = min(max(math.sqrt(apart.dot(apart)) / 0.1, 0.0), 1.0)
    of_objects = seen[4 : 4 + 7 * objects].reshape(objects, 7)
    of_objects[:, :3] = positions.reshape(objects, 3)
    of_objects[:, 3:] = rotations.reshape(objects, 4)
    return seen


def _observe_twice(env: Any) -> Any:
    """Does what the method of this name does: what is seen now and what was seen before, and the goal."""
    goal = env._get_pos_goal()
    if env._partially_observable:
        goal = np.zeros_like(goal)
    now = env._get_curr_obs_combined_no_goal()
    both = np.concatenate((now, env._prev_obs, goal))
    env._prev_obs = now
    return both


@lru_cache
def _with_quick_rotations(method: Any) -> Any:
    """Returns a method of Meta-World's that makes rotations of matrices as `_Rotation` does."""
    return FunctionType(method.__code__, {**method.__globals__, "Rotation": _Rotation}, method.__name__)


class _Rotation:
    """Stands for scipy's class, whose check of a matrix takes most of the time that it needs for a quaternion."""

    _MOST_OFF: Final = 1e-13
    """A tenth of what scipy forgives before it makes another matrix of the one that it was given."""

    @classmethod
    def from_matrix(cls, matrix: Any) -> Any:
        from scipy.spatial.transform import Rotation

        (a, b, c), (d, e, f), (g, h, i) = matrix.tolist()
        # A sum, so that what is not a number is not lost in it.
        off = (
            abs(a * a + b * b + c * c - 1)
            + abs(d * d + e * e + f * f - 1)
            + abs(g * g + h * h + i * i - 1)
            + abs(a * d + b * e + c * f)
            + abs(a * g + b * h + c * i)
            + abs(d * g + e * h + f * i)
        )
        mirrored = a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g) < 0
        if not off < cls._MOST_OFF or mirrored:
            return Rotation.from_matrix(matrix)
        return Rotation.from_matrix(matrix, assume_valid=True)


def _reset(env: Any) -> Any:
    """Resets as Meta-World does, which sets the scene twice and keeps the second: the first time is without physics.

    What the first time leaves behind is the numbers that it has drawn, and those do not depend on the physics.
    """

    def set_scene() -> Any:
        del env.reset_model  # the second time is Meta-World's own
        env.do_simulation = _nothing
        try:
            return env.reset_model()
        finally:
            del env.do_simulation

    env.reset_model = set_scene
    try:
        return super(type(env), env).reset()
    finally:
        env.__dict__.pop("reset_model", None)


def _nothing(ctrl: Any, n_frames: Any) -> None:
    """Plays no physics."""

"""robosuite's operational-space control loop, compiled: the same calls on the same numbers, with no Python in between.

Per substep, robosuite computes position and velocity stages three times, and reads them through copies. Here they are
computed once: `mj_step1`, the controller, `mj_step2`. What decides about bits is left as it is: robosuite's own
compiled functions (which call scipy's LAPACK and BLAS) are called from here on matrices of the same layout, and
products that robosuite leaves to numpy are calls of the very function that numpy would call, with its arguments.

Importing this module needs numba, robosuite and MuJoCo; `bind` has to be called before anything compiled is.
"""

from __future__ import annotations

import ctypes
import importlib
from pathlib import Path
from typing import Any, Final, NamedTuple

import llvmlite.binding
import mujoco
import numba
import numpy as np
import numpy.typing as npt
from numba import types
from robosuite.utils.control_utils import nullspace_torques, opspace_matrices, orientation_error

Vector = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

# Pointers are passed as integers of their size.
_P, _I, _L, _D = types.intp, types.int32, types.int64, types.float64
_mj_step1 = types.ExternalFunction("mj_step1", types.void(_P, _P))
_mj_step2 = types.ExternalFunction("mj_step2", types.void(_P, _P))
_mj_jac_site = types.ExternalFunction("mj_jacSite", types.void(_P, _P, _P, _P, _I))
_mj_full_m = types.ExternalFunction("mj_fullM", types.void(_P, _P, _P))
_dgemv = types.ExternalFunction("sparring_numpy_dgemv", types.void(_I, _I, _L, _L, _D, _P, _L, _P, _L, _D, _P, _L))

# numpy's wheels bring a BLAS with 64-bit integers and names of its own; other builds have one of the plain names.
_DGEMV_NAMES: Final = ("scipy_cblas_dgemv64_", "cblas_dgemv64_", "scipy_cblas_dgemv", "cblas_dgemv")
_BY_ROWS, _BY_COLUMNS, _NO_TRANSPOSE = 101, 102, 111
_BAD = 1e10  # mjMAXVAL: MuJoCo starts over from its default state where a number is larger


class Physics(NamedTuple):
    """Knows where MuJoCo keeps what the controller reads and writes: addresses, and views that stay valid.

    Attributes:
        model: Address of the model.
        data: Address of its data.
        site: Which site the controller moves.
        qpos: Positions of all joints.
        qvel: Velocities of all joints.
        ctrl: What the actuators are told.
        bias: Gravity, centrifugal and Coriolis forces, one for each velocity.
        inertia: The inertia matrix, as MuJoCo packs it.
        position: Of the site, in the world.
        rotation: Of the site, nine numbers row by row.
    """

    model: int
    data: int
    site: int
    qpos: Vector
    qvel: Vector
    ctrl: Vector
    bias: Vector
    inertia: Vector
    position: Vector
    rotation: Vector


class Arm(NamedTuple):
    """What the controller knows of the arm: it does not change in an episode.

    Attributes:
        qpos: Where its joints are among all positions.
        qvel: Where they are among all velocities.
        actuators: Which actuators move them.
        low: The least torques that may be asked of those.
        high: The most.
        stiffness: Gains of the six errors, position and rotation.
        damping: Gains of the six velocities.
        rest: The joints' positions to which the arm returns where the hand does not mind.
    """

    qpos: Indices
    qvel: Indices
    actuators: Indices
    low: Vector
    high: Vector
    stiffness: Vector
    damping: Vector
    rest: Vector


class Fingers(NamedTuple):
    """The gripper.

    Attributes:
        actuators: Which actuators move it.
        bias: The middle of their ranges.
        weight: Half the width of their ranges.
        command: What they were told last, in [-1, 1]; `advance` changes it.
        change: What is added to that in each substep.
    """

    actuators: Indices
    bias: Vector
    weight: Vector
    command: Vector
    change: Vector


class HandPose(NamedTuple):
    """The pose that the controller saw last; `advance` writes it.

    Attributes:
        position: In the world.
        rotation: A matrix.
    """

    position: Vector
    rotation: Vector


class Scratch(NamedTuple):
    """Memory to compute in, in the layouts that robosuite's arrays have.

    Attributes:
        linear: Jacobian of the site's position, by rows.
        angular: Jacobian of its rotation, by rows.
        dense: The whole inertia matrix.
        mass: The arm's part of it, by columns.
        jacobian: Of position and rotation, the arm's part, by columns.
        jacobian_linear: Its upper half, by columns.
        jacobian_angular: Its lower half, by columns.
    """

    linear: Vector
    angular: Vector
    dense: Vector
    mass: Vector
    jacobian: Vector
    jacobian_linear: Vector
    jacobian_angular: Vector

    @classmethod
    def make(cls, velocities: int, joints: int) -> Scratch:
        """Allocates for a model with so many velocities and an arm of so many joints."""
        return cls(
            np.zeros((3, velocities)),
            np.zeros((3, velocities)),
            np.zeros((velocities, velocities)),
            np.zeros((joints, joints), order="F"),
            np.zeros((6, joints), order="F"),
            np.zeros((3, joints), order="F"),
            np.zeros((3, joints), order="F"),
        )


def bind() -> bool:
    """Makes MuJoCo's functions and numpy's BLAS known to compiled code; False if numpy's BLAS is not to be found."""
    address = _numpy_dgemv()
    if address is None:
        return False
    llvmlite.binding.add_symbol("sparring_numpy_dgemv", address)
    library = next(Path(mujoco.__file__).parent.glob("libmujoco.so*"))
    llvmlite.binding.load_library_permanently(str(library))  # it is there already: this makes its names known
    return True


def warm_up() -> None:
    """Compiles everything, or gets it from numba's cache: done before slots are forked, it is done once for all."""
    some, indices = np.zeros(9), np.zeros(7, np.int64)
    physics = Physics(0, 0, 0, some, some, some, some, some, some, some)
    arm = Arm(indices, indices, indices, some, some, some, some, some)
    fingers = Fingers(indices, some, some, some, some)
    hand = HandPose(np.zeros(3), np.zeros((3, 3)))
    advance(physics, arm, fingers, hand, (some, hand.rotation), Scratch.make(9, 7), 0, begun=True)
    sane(some, some)


def _numpy_dgemv() -> int | None:
    # The extension module is asked, and not a file by its name: it finds what it is linked with, whatever that is.
    extension = importlib.import_module("numpy._core._multiarray_umath")
    linked = ctypes.CDLL(extension.__file__)
    for name in _DGEMV_NAMES:
        if hasattr(linked, name):
            return ctypes.cast(getattr(linked, name), ctypes.c_void_p).value
    return None


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def sane(qpos: Any, qvel: Any) -> Any:
    """Returns whether MuJoCo goes on from these positions and velocities, or starts over from its default state."""
    for values in (qpos, qvel):
        for value in values:
            if not -_BAD <= value <= _BAD:
                return False
    return True


@numba.njit  # type: ignore[untyped-decorator]
def _times(matrix: Any, vector: Any, order: Any) -> Any:
    """Multiplies a matrix with a vector, as numpy's `dot` has it computed for a matrix that lies in this order."""
    rows, columns = matrix.shape
    product = np.empty(rows)
    _dgemv(
        np.int32(order), np.int32(_NO_TRANSPOSE), rows, columns, 1.0,
        matrix.ctypes.data, columns if order == _BY_ROWS else rows,
        vector.ctypes.data, 1, 0.0, product.ctypes.data, 1,
    )  # fmt: skip
    return product


@numba.njit  # type: ignore[untyped-decorator]
def _limited(value: Any, low: Any, high: Any) -> Any:
    if value < low:
        return low
    return high if value > high else value


@numba.njit  # type: ignore[untyped-decorator]
def _torques(physics: Any, arm: Any, hand: Any, goal_position: Any, goal_rotation: Any, scratch: Any) -> Any:
    joints = len(arm.qvel)
    _mj_jac_site(
        physics.model, physics.data, scratch.linear.ctypes.data, scratch.angular.ctypes.data, np.int32(physics.site)
    )
    _mj_full_m(physics.model, scratch.dense.ctypes.data, physics.inertia.ctypes.data)
    for j in range(joints):
        column = arm.qvel[j]
        for i in range(3):
            scratch.jacobian_linear[i, j] = scratch.jacobian[i, j] = scratch.linear[i, column]
            scratch.jacobian_angular[i, j] = scratch.jacobian[i + 3, j] = scratch.angular[i, column]
        for i in range(joints):
            scratch.mass[i, j] = scratch.dense[arm.qvel[i], column]
    velocity = _times(scratch.linear, physics.qvel, _BY_ROWS)
    spin = _times(scratch.angular, physics.qvel, _BY_ROWS)
    turn = orientation_error(goal_rotation, hand.rotation)
    force, torque = np.empty(3), np.empty(3)
    for i in range(3):
        force[i] = (goal_position[i] - hand.position[i]) * arm.stiffness[i] + -velocity[i] * arm.damping[i]
        torque[i] = turn[i] * arm.stiffness[i + 3] + -spin[i] * arm.damping[i + 3]
    _, lambda_linear, lambda_angular, nullspace = opspace_matrices(
        scratch.mass, scratch.jacobian, scratch.jacobian_linear, scratch.jacobian_angular
    )
    wrench = np.empty(6)
    wrench[:3] = _times(lambda_linear, force, _BY_COLUMNS)
    wrench[3:] = _times(lambda_angular, torque, _BY_COLUMNS)
    position, velocities = np.empty(joints), np.empty(joints)
    for i in range(joints):
        position[i], velocities[i] = physics.qpos[arm.qpos[i]], physics.qvel[arm.qvel[i]]
    asked = _times(scratch.jacobian.T, wrench, _BY_ROWS)
    rest = nullspace_torques(scratch.mass, nullspace, arm.rest, position, velocities)
    for i in range(joints):
        asked[i] = asked[i] + physics.bias[arm.qvel[i]] + rest[i]
    return asked


@numba.njit  # type: ignore[untyped-decorator]
def _play(
    physics: Any, arm: Any, fingers: Any, hand: Any, goal_position: Any, goal_rotation: Any, scratch: Any,
    substeps: Any, begun: Any,
) -> Any:  # fmt: skip
    for substep in range(substeps):
        if not (begun and substep == 0):
            if not sane(physics.qpos, physics.qvel):
                return substep
            _mj_step1(physics.model, physics.data)
        for i in range(3):
            hand.position[i] = physics.position[i]
            for j in range(3):
                hand.rotation[i, j] = physics.rotation[3 * i + j]
        torques = _torques(physics, arm, hand, goal_position, goal_rotation, scratch)
        for i in range(len(fingers.actuators)):
            fingers.command[i] = _limited(fingers.command[i] + fingers.change[i], -1.0, 1.0)
            physics.ctrl[fingers.actuators[i]] = fingers.bias[i] + fingers.weight[i] * fingers.command[i]
        for i in range(len(arm.actuators)):
            physics.ctrl[arm.actuators[i]] = _limited(torques[i], arm.low[i], arm.high[i])
        _mj_step2(physics.model, physics.data)
    return substeps


# This one alone is kept in numba's cache, and it takes arrays and numbers alone: a cache that knows classes of ours by
# name cannot be read by a Sparring that has others.
@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def _advance(
    model: Any, data: Any, site: Any, qpos: Any, qvel: Any, ctrl: Any, bias: Any, inertia: Any, position: Any,
    rotation: Any, arm_qpos: Any, arm_qvel: Any, arm_actuators: Any, low: Any, high: Any, stiffness: Any, damping: Any,
    rest: Any, finger_actuators: Any, finger_bias: Any, finger_weight: Any, command: Any, change: Any,
    hand_position: Any, hand_rotation: Any, goal_position: Any, goal_rotation: Any, linear: Any, angular: Any,
    dense: Any, mass: Any, jacobian: Any, jacobian_linear: Any, jacobian_angular: Any, substeps: Any, begun: Any,
) -> Any:  # fmt: skip
    physics = Physics(model, data, site, qpos, qvel, ctrl, bias, inertia, position, rotation)
    arm = Arm(arm_qpos, arm_qvel, arm_actuators, low, high, stiffness, damping, rest)
    fingers = Fingers(finger_actuators, finger_bias, finger_weight, command, change)
    hand = HandPose(hand_position, hand_rotation)
    scratch = Scratch(linear, angular, dense, mass, jacobian, jacobian_linear, jacobian_angular)
    return _play(physics, arm, fingers, hand, goal_position, goal_rotation, scratch, substeps, begun)


def advance(
    physics: Physics,
    arm: Arm,
    fingers: Fingers,
    hand: HandPose,
    goal: tuple[Vector, Vector],
    scratch: Scratch,
    substeps: int,
    *,
    begun: bool,
) -> int:
    """Plays substeps: both stages of MuJoCo's step with the controller in between.

    Args:
        physics: What MuJoCo holds.
        arm: The arm.
        fingers: The gripper.
        hand: Gets the pose that the controller saw last.
        goal: Where the hand is to go, and the matrix of how it is to be turned there.
        scratch: Memory.
        substeps: How many.
        begun: Whether the first one's `mj_step1` was called already.

    Returns:
        How many were played: fewer if MuJoCo would have started over from its default state in the next one.
    """
    played: int = _advance(*physics, *arm, *fingers, *hand, *goal, *scratch, substeps, begun)
    return played

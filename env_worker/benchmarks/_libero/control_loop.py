"""A step of LIBERO: 25 substeps of control and physics, with the sensors read in one of them.

`RobosuiteLoop` is the original. `FastLoop` gives the same bits in a quarter of the time, for the versions that it is
known for and for what LIBERO uses of robosuite; for anything else, `control_loop` gives the original one, and says why.
"""

from __future__ import annotations

import importlib.metadata
import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np

from sparring.env_worker.benchmark import Names
from sparring.env_worker.benchmarks._libero.sampling import common_clock, sampled_substep, set_clocks
from sparring.protos.tensor import Array

_LOG = logging.getLogger(__name__)

KNOWN_VERSIONS: Final[Mapping[str, frozenset[str]]] = {
    "robosuite": frozenset({"1.4.0"}),
    "mujoco": frozenset({"3.8.1"}),
}
"""With which the fast loop was compared with the original, bit by bit, on all tasks."""

_ALONE: Final = frozenset(
    {"robot0_joint_pos", "robot0_joint_vel", "robot0_eef_pos", "robot0_eef_quat", "robot0_gripper_qpos"}
    | {"robot0_gripper_qvel", "agentview_image", "robot0_eye_in_hand_image"}
)
"""Sensors that can be read alone. Others look at what sensors before them have read, so for them all are read."""


@dataclass(frozen=True)
class Played:
    """What a step came to.

    Attributes:
        readings: What the sensors that were asked for showed, by their names.
        reward: LIBERO's reward.
        success: Whether the goal is reached.
    """

    readings: Mapping[str, Array]
    reward: float
    success: bool


class ControlLoop(ABC):
    """Plays actions in one LIBERO environment."""

    @abstractmethod
    def begin(self) -> None:
        """Has to be called when an episode was set up, before its first step."""

    @abstractmethod
    def step(self, action: Array, sensors: Names) -> Played:
        """Plays one action, and reads these of the environment's observables."""


class RobosuiteLoop(ControlLoop):
    """The environment's own step.

    Args:
        environment: LIBERO's robosuite environment.
    """

    def __init__(self, environment: Any) -> None:
        self._environment = environment

    def begin(self) -> None:
        """Does nothing."""

    def step(self, action: Array, sensors: Names) -> Played:
        raw, reward, success, _ = self._environment.step(action)
        return Played({name: raw[name] for name in sensors}, float(reward), bool(success))


class FastLoop(ControlLoop):
    """The same, without computing anything twice and without looking at sensors that nobody asked for.

    Args:
        environment: LIBERO's robosuite environment.
        steps: How many steps an episode has at most.
    """

    def __init__(self, environment: Any, steps: int) -> None:
        from sparring.env_worker.benchmarks._libero import compiled_control

        self._compiled = compiled_control
        self._environment = environment
        self._original = RobosuiteLoop(environment)
        self._steps = steps
        self._substeps = int(environment.control_timestep / environment.model_timestep)
        self._slow = False

    def begin(self) -> None:
        environment, compiled = self._environment, self._compiled
        clock = common_clock(environment._observables.values())
        sampled = None
        if clock is not None:
            sampled = sampled_substep(clock, environment.model_timestep, self._substeps, self._steps)
        self._slow = clock is None or sampled is None
        if clock is None or sampled is None:
            _say_once("its sensors are not read once per step")
            return
        robot, sim = environment.robots[0], environment.sim
        model, data = sim.model._model, sim.data._data
        self._clock, self._sampled, self._played = clock, sampled, 0
        self._robot, self._controller = robot, robot.controller  # there is another controller after each reset
        self._model, self._data = model, data
        site = int(robot.eef_site_id)
        self._physics = compiled.Physics(
            model=model._address,
            data=data._address,
            site=site,
            qpos=data.qpos,
            qvel=data.qvel,
            ctrl=data.ctrl,
            bias=data.qfrc_bias,
            inertia=data.qM,
            position=data.site_xpos[site],
            rotation=data.site_xmat[site],
        )
        low, high = robot.torque_limits
        controller = robot.controller
        self._arm = compiled.Arm(
            qpos=np.array(controller.qpos_index, np.int64),
            qvel=np.array(controller.qvel_index, np.int64),
            actuators=np.array(robot._ref_joint_actuator_indexes, np.int64),
            low=low,
            high=high,
            stiffness=controller.kp,
            damping=controller.kd,
            rest=np.array(controller.initial_joint, np.float64),
        )
        actuators = [sim.model.actuator_name2id(actuator) for actuator in robot.gripper.actuators]
        ranges = model.actuator_ctrlrange[actuators]
        self._fingers = compiled.Fingers(
            actuators=np.array(actuators, np.int64),
            bias=0.5 * (ranges[:, 1] + ranges[:, 0]),
            weight=0.5 * (ranges[:, 1] - ranges[:, 0]),
            command=np.zeros(len(actuators)) + robot.gripper.current_action,
            change=np.zeros(len(actuators)),
        )
        self._hand = compiled.HandPose(np.zeros(3), np.zeros((3, 3)))
        self._scratch = compiled.Scratch.make(model.nv, len(controller.qvel_index))

    def step(self, action: Array, sensors: Names) -> Played:
        if self._slow:
            return self._original.step(action, sensors)
        environment, physics = self._environment, self._physics
        if not self._compiled.sane(physics.qpos, physics.qvel):
            self._give_up(substeps=0)
            return self._original.step(action, sensors)
        environment.timestep += 1
        readings: dict[str, Array] = {}
        done = self._begin_step(action)
        done += self._advance(self._sampled - done, begun=done == 0)
        if done == self._sampled:
            readings = self._read(sensors)
            done += self._advance(self._substeps - done, begun=False)
        self._robot.gripper.current_action = self._fingers.command.copy()
        self._controller.ee_pos = self._hand.position.copy()
        self._controller.ee_ori_mat = self._hand.rotation.copy()
        self._controller.new_update = True
        if done < self._substeps:
            self._finish(action, done)
            readings = readings or {name: environment._observables[name].obs for name in sensors}
        self._played += self._substeps
        environment.cur_time += environment.control_timestep
        reward, _, _ = environment._post_action(action)
        return Played(readings, float(reward), bool(environment._check_success()))

    def _begin_step(self, action: Array) -> int:
        """Tells the controller its goal, and returns how many substeps that has taken."""
        import mujoco

        physics, controller, gripper = self._physics, self._controller, self._robot.gripper
        if controller.new_update:
            mujoco.mj_step1(self._model, self._data)
            controller.ee_pos = physics.position.copy()
            controller.ee_ori_mat = physics.rotation.reshape(3, 3).copy()
            controller.new_update = False  # it would compute what is there already
            controller.set_goal(action[: controller.control_dim])
            done = 0
        else:
            # The first substep of an episode: the controller still holds what it saw when it was made, before the arm
            # was put where the episode begins, and acts on that once.
            self._original_substep(action, policy_step=True)
            self._fingers.command[:] = gripper.current_action
            done = 1
        self._goal = np.array(controller.goal_pos), np.array(controller.goal_ori, order="C")
        self._fingers.change[:] = np.array([-1.0, 1.0]) * gripper.speed * np.sign(action[controller.control_dim :])
        return done

    def _advance(self, substeps: int, *, begun: bool) -> int:
        return self._compiled.advance(
            self._physics, self._arm, self._fingers, self._hand, self._goal, self._scratch, substeps, begun=begun
        )

    def _read(self, sensors: Names) -> dict[str, Array]:
        environment = self._environment
        for name, observable in environment._observables.items():
            if name in sensors or not sensors <= _ALONE:
                observable.update(timestep=0.0, obs_cache=environment._obs_cache, force=True)
        return {name: environment._observables[name].obs for name in sensors}

    def _finish(self, action: Array, done: int) -> None:
        """Plays the rest of a step as robosuite does, whose order of things matters once MuJoCo starts over."""
        self._give_up(substeps=done)
        for _ in range(done, self._substeps):
            self._original_substep(action, policy_step=False)
            self._environment._update_observables()

    def _original_substep(self, action: Array, *, policy_step: bool) -> None:
        self._environment.sim.forward()
        self._environment._pre_action(action, policy_step=policy_step)
        self._environment.sim.step()

    def _give_up(self, *, substeps: int) -> None:
        """Leaves the rest of the episode, from a substep of this step on, to robosuite."""
        _LOG.warning("the simulation has become unstable: MuJoCo starts over from its default state")
        self._slow = True
        observables = self._environment._observables.values()
        set_clocks(observables, self._clock, self._environment.model_timestep, self._played + substeps)


def control_loop(environment: Any, *, steps: int, original: bool = False) -> ControlLoop:
    """Returns the fastest loop that is known to give the environment's own bits.

    Args:
        environment: LIBERO's robosuite environment.
        steps: How many steps an episode has at most.
        original: Whether it is to be the environment's own, whatever is known.
    """
    if original:
        return RobosuiteLoop(environment)
    if reason := _why_not(environment):
        _say_once(reason)
        return RobosuiteLoop(environment)
    return FastLoop(environment, steps)


def warm_up() -> None:
    """Compiles the fast loop, if it is one that will be used, or gets it from numba's cache."""
    if _unknown() is None:
        from sparring.env_worker.benchmarks._libero import compiled_control

        compiled_control.warm_up()


def _why_not(environment: Any) -> str | None:
    if reason := _unknown():
        return reason
    return None if _as_libero_has_it(environment) else "the environment is not made as LIBERO's are"


def _unknown() -> str | None:
    for package, known in KNOWN_VERSIONS.items():
        version = importlib.metadata.version(package)
        if version not in known:
            return f"the faster ones are not known to be the same with {package} {version}"
    from sparring.env_worker.benchmarks._libero import compiled_control

    return None if compiled_control.bind() else "numpy's BLAS was not found"


def _as_libero_has_it(environment: Any) -> bool:
    """Returns whether everything that a step goes through is what the compiled loop was written after."""
    import mujoco
    from libero.libero.envs.bddl_base_domain import BDDLBaseDomain
    from robosuite.controllers.osc import OperationalSpaceController
    from robosuite.models.grippers.panda_gripper import PandaGripper
    from robosuite.robots.single_arm import SingleArm

    if len(environment.robots) != 1:
        return False
    robot, kind = environment.robots[0], type(environment)
    controller = robot.controller
    return bool(
        (kind.step, kind._pre_action) == (BDDLBaseDomain.step, BDDLBaseDomain._pre_action)
        and environment.viewer is None
        and (type(robot).control, type(robot).grip_action) == (SingleArm.control, SingleArm.grip_action)
        and type(robot.gripper).format_action is PandaGripper.format_action
        and type(controller) is OperationalSpaceController
        and controller.impedance_mode == "fixed"
        and controller.interpolator_pos is None
        and controller.interpolator_ori is None
        and controller.use_ori
        and controller.uncoupling
        and environment.sim.model._model.opt.integrator == mujoco.mjtIntegrator.mjINT_EULER
        and mujoco.get_mjcb_control() is None
    )


@lru_cache
def _say_once(reason: str) -> None:
    _LOG.warning("LIBERO's steps are robosuite's own, which take about four times as long: %s", reason)

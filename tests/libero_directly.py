"""LIBERO's own environment without Sparring: rebuilt at every reset, its cameras, if any, rendered at every step."""

from __future__ import annotations

from typing import Any

from sparring.env_worker.benchmarks._libero.installation import load_init_states, prepare_libero
from sparring.env_worker.benchmarks._libero.tasks import find
from sparring.env_worker.benchmarks.libero import LiberoSettings, _assets


class Official:
    """One task, made and reset the slow way.

    Args:
        name: Of the task.
        side: Height and width of the images; None is without cameras.
    """

    def __init__(self, name: str, side: int | None) -> None:
        task = find(name)
        package = prepare_libero(_assets(LiberoSettings()))
        from libero.libero.envs.env_wrapper import ControlEnv

        problem = package / "bddl_files" / task.suite / f"{task.name}.bddl"
        self.env = ControlEnv(
            bddl_file_name=str(problem),
            use_camera_obs=side is not None,
            has_offscreen_renderer=side is not None,
            camera_heights=side,
            camera_widths=side,
        )
        self._draws = side is not None
        self.states = load_init_states(package / "init_files" / task.suite / f"{task.name}.pruned_init")

    def reset(self, *, seed: int, index: int) -> Any:
        """Starts an episode as LeRobot and openpi do."""
        if self._draws:
            # A hard reset frees what it draws with, in whatever context is current: it must not be another simulator's.
            self.env.sim._render_context_offscreen.gl_ctx.make_current()
        self.env.seed(seed)
        self.env.reset()
        observation = self.env.set_init_state(self.states[index])
        for _ in range(10):
            observation, *_ = self.env.step([0, 0, 0, 0, 0, 0, -1])
        return observation

    @property
    def turn(self) -> Any:
        """Where LeRobot's environment reads the rotation of the point between the fingers."""
        return self.env.robots[0].controller.ee_ori_mat

"""Compiles what robosuite compiles in its first steps, half a minute per container otherwise.

Lift is the plainest world with LIBERO's robot and controller, and needs none of LIBERO's assets. The result lies in
NUMBA_CACHE_DIR. Numba looks at the sources' time and at the CPU: the image fixes the first, NUMBA_CPU_NAME the second.
"""

import numpy as np
import robosuite
from robosuite.utils.transform_utils import mat2quat, quat2mat


def main() -> None:
    """Plays a few steps."""
    controller = robosuite.load_controller_config(default_controller="OSC_POSE")
    world = robosuite.make(
        "Lift",
        robots="Panda",
        controller_configs=controller,
        has_renderer=False,
        has_offscreen_renderer=False,
        use_camera_obs=False,
    )
    world.reset()
    for _ in range(3):
        world.step(np.zeros(world.action_dim))
    world.close()
    # What LIBERO's own objects and observations ask for beside that: a matrix that is a view of a larger one, too.
    quat2mat(np.array([0.0, 0.0, 0.0, 1.0]))
    mat2quat(np.eye(4)[:3, :3])


if __name__ == "__main__":
    main()

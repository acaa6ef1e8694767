"""What Gymnasium's MuJoCo environments draw with, where another simulator of the same process draws, too."""

from __future__ import annotations

from typing import Any


def draw_with_own(env: Any) -> None:
    """Has an environment draw in its own GL context: another simulator may have made its own current, or none.

    Args:
        env: Without wrappers; if it has drawn nothing yet, or not with MuJoCo, nothing is done.
    """
    viewer = getattr(getattr(env, "mujoco_renderer", None), "viewer", None)
    if viewer is not None:
        viewer.make_context_current()


def free_viewers(env: Any) -> None:
    """Frees what an environment has drawn with, before the environment itself is closed; does nothing a second time.

    Gymnasium destroys a viewer's GL context, and leaves what was made in it to whoever collects the viewer: it is freed
    then in the context that is current, which may be another simulator's of this process.

    Args:
        env: Without wrappers.
    """
    viewers = getattr(getattr(env, "mujoco_renderer", None), "_viewers", {})
    for viewer in viewers.values():
        if getattr(viewer, "opengl_context", None) is not None:
            viewer.make_context_current()
            viewer.con.free()
            viewer.close()
    viewers.clear()

"""Workers as actors of a Ray cluster."""

from sparring.orchestrator.launchers.ray.launcher import RayLauncher

__all__ = ["RayLauncher"]

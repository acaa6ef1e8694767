"""Workers as containers."""

from sparring.orchestrator.launchers.docker.launcher import DockerLauncher

__all__ = ["DockerLauncher"]

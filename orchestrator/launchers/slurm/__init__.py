"""Workers as jobs of a Slurm cluster."""

from sparring.orchestrator.launchers.slurm.launcher import SlurmLauncher

__all__ = ["SlurmLauncher"]

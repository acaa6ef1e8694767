"""What every launcher does: start workers, keep them alive, end them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

from protos.errors import SparringError


class LaunchFailed(SparringError):
    """Workers cannot be kept alive; the message says what they said last."""


@dataclass(frozen=True)
class WorkerOrder:
    """Which workers to start.

    Attributes:
        benchmark: What they are for.
        slots: Episodes at once, over all of them.
        orchestrator: The address they dial.
        logs: Folder for their logs.
    """

    benchmark: str
    slots: int
    orchestrator: str
    logs: Path


class Launcher(ABC):
    """Starts workers and keeps them alive until told to stop."""

    @abstractmethod
    async def run(self, order: WorkerOrder) -> None:
        """Starts the workers and replaces those that die; cancelled to end them all.

        Raises:
            LaunchFailed: If replacing them is of no use.
        """


class NoLauncher(Launcher):
    """Workers come by themselves: `sparring worker --orchestrator ...`."""

    async def run(self, order: WorkerOrder) -> None:
        """Does nothing."""

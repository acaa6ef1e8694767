"""What every launcher does: start workers, keep them alive, end them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sparring.orchestrator.run.retry import RetryRules
from sparring.protos.errors import SparringError
from sparring.protos.net.address import Address


class LaunchFailed(SparringError):
    """Workers cannot be kept alive; the message says what they said last."""


@dataclass(frozen=True)
class WorkerOrder:
    """Which workers to start.

    Attributes:
        slots: Episodes at once, for each benchmark.
        orchestrator: The address that they dial on this machine, a unix socket.
        public: The address that they dial from elsewhere.
        sockets: Folder of the unix sockets, the policy's and ours.
        logs: Folder for their logs.
        rules: When one that died is replaced.
    """

    slots: Mapping[str, int]
    orchestrator: Address
    public: Address
    sockets: Path
    logs: Path
    rules: RetryRules

    def arguments(self, benchmark: str, name: str, *, orchestrator: Address | None = None) -> list[str]:
        """The flags of `sparring worker` for one of them; it dials another address if one is given."""
        return [
            f"--orchestrator={orchestrator or self.orchestrator}",
            f"--benchmark={benchmark}",
            f"--slots={self.slots[benchmark]}",
            f"--name={name}",
        ]


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


def share_slots(slots: int, waiting: Mapping[str, int]) -> dict[str, int]:
    """Divides slots among benchmarks by the episodes that wait; each gets at least one, however few there are.

    Args:
        slots: How many there are to divide.
        waiting: Episodes per benchmark.
    """
    shares = dict.fromkeys(waiting, 1)
    for _ in range(slots - len(shares)):
        neediest = max(shares, key=lambda name: waiting[name] / shares[name])
        shares[neediest] += 1
    return shares

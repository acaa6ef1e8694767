"""A worker that is a command on this machine: the worker itself, or what starts it elsewhere (ssh, srun)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sparring.orchestrator.launchers.keep_alive import Death
from sparring.orchestrator.machine.child import Child


class CommandWorker:
    """A command, as the keeper sees it: it runs in a group of its own, and the group ends with it."""

    def __init__(self, child: Child) -> None:
        self._child = child
        self.log: Path = child.log
        """What it says is written there."""

    @classmethod
    async def start(
        cls, command: Sequence[str], *, log: Path, secret: str = "", temporary: Path | None = None
    ) -> CommandWorker:
        """Starts it; arguments as for `Child.start_command`."""
        return cls(await Child.start_command(command, log=log, secret=secret, temporary=temporary))

    async def wait(self) -> Death:
        """Waits for its end, and returns how it ended."""
        return Death(await self._child.wait())

    async def end(self) -> None:
        """Ends it, and all that it has started."""
        await self._child.end()

    def last_words(self) -> str:
        """Returns the end of its log."""
        return self._child.last_words()

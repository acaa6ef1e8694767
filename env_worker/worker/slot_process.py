"""A slot's process as its worker sees it: messages to it and from it, and its end. The loop never waits for it."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Final

from sparring.protos import evaluation_pb2 as pb
from sparring.protos.process import is_stopped

_EXIT_CODE_SECONDS: Final = 10.0
"""How long to wait for the exit code of a process that has closed its pipe: its fork server tells it, if it can."""


class SlotProcess:
    """A process and its pipe. A thread reads: a process that is stopped in the middle of a message holds up nobody.

    Args:
        process: That runs.
        pipe: Our end of it.
        on_message: Called in the loop with each message.
        on_end: Called in the loop, once, with the exit code when it has ended; None if nobody can tell it.
    """

    def __init__(
        self,
        process: ForkServerProcess,
        pipe: Connection,
        on_message: Callable[[pb.WorkerMessage], None],
        on_end: Callable[[int | None], None],
    ) -> None:
        self._process = process
        self._pipe = pipe
        self._on_message = on_message
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._alive = True
        self._heeded = True
        self._ended = asyncio.Event()
        assert process.pid is not None
        self.pid = process.pid
        threading.Thread(target=self._read, name=f"{process.name}-reader", daemon=True).start()

    def send(self, message: pb.OrchestratorMessage) -> None:
        """Sends a message. If the process has just died, it goes nowhere, and `on_end` is called."""
        with suppress(OSError):
            self._pipe.send_bytes(message.SerializeToString())

    def kill(self) -> None:
        """Kills it. Not by way of multiprocessing, which takes a process for dead when its fork server is."""
        if self._alive:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    @property
    def stopped(self) -> bool:
        """Whether somebody has stopped it with a signal or a debugger; False where that cannot be told."""
        return is_stopped(self.pid)

    @property
    def memory(self) -> int:
        """The bytes that it holds; 0 where that cannot be told."""
        try:
            pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        except (OSError, ValueError, IndexError):
            return 0
        return pages * os.sysconf("SC_PAGE_SIZE")

    async def end(self, *, grace: float, politely: bool = True) -> None:
        """Ends it; nobody hears of what it still says, nor of its end.

        Args:
            grace: Seconds that it has to end in, and again after it was killed.
            politely: Whether it is asked first.
        """
        self._heeded = False
        if politely:
            self.send(pb.OrchestratorMessage(stop=pb.Stop()))
            if await self._ends_within(grace):
                return
        self.kill()
        await self._ends_within(grace)

    async def _ends_within(self, seconds: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._ended.wait()
        return self._ended.is_set()

    def _read(self) -> None:
        try:
            while True:
                message = self._pipe.recv_bytes()
                self._loop.call_soon_threadsafe(self._received, message)
        except (EOFError, OSError):
            self._alive = False
            self._process.join(_EXIT_CODE_SECONDS)
            with suppress(RuntimeError):  # the loop is closed: the worker has ended
                self._loop.call_soon_threadsafe(self._end, self._process.exitcode)
        except RuntimeError:
            return  # the same

    def _received(self, message: bytes) -> None:
        if self._heeded:
            self._on_message(pb.WorkerMessage.FromString(message))

    def _end(self, exit_code: int | None) -> None:
        self._pipe.close()
        self._ended.set()
        if self._heeded:
            self._on_end(exit_code)

"""The process that slots are forked from: it has imported the simulator. One that does not answer is replaced."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import multiprocessing
import os
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, ForkServerProcess
from typing import Any, Final

from sparring.env_worker.benchmark import Benchmark
from sparring.protos.errors import SparringError

log = logging.getLogger(__name__)

IMPORT_SECONDS: Final = 300.0
"""For the first fork: the simulator is imported before it, maybe from a slow disk."""
FORK_SECONDS: Final = 30.0
"""For every other: a fork takes milliseconds."""
_ATTEMPTS: Final = 3
_KILLED_SECONDS: Final = 10.0
_DYING_SECONDS: Final = 1.0


class ForkServer:
    """Forks slots, each within a time limit: a fork server that was stopped, or hangs, is killed and another started.

    Args:
        context: Whose fork server it is; a process has one.
        import_seconds: Time limit of a fork that the simulator must be imported for.
        fork_seconds: Time limit of a fork after that.
    """

    def __init__(
        self, context: ForkServerContext, *, import_seconds: float = IMPORT_SECONDS, fork_seconds: float = FORK_SECONDS
    ) -> None:
        self._context = context
        self._import_seconds = import_seconds
        self._fork_seconds = fork_seconds
        self._generation = 0
        self._imported = -1
        """The last generation that has forked, and so has imported everything."""

    @classmethod
    def of(cls, benchmark: Benchmark) -> ForkServer:
        """Returns one that imports the benchmark's simulator once."""
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(
            ["sparring.env_worker.worker.slot", f"{type(benchmark).__module__}", *benchmark.preload]
        )
        return cls(context)

    async def use(self, variables: Mapping[str, str]) -> None:
        """Has slots forked from a process with these variables from now on: from another, where this one has others.

        Slots that were forked before go on.
        """
        if all(os.environ.get(name) == value for name, value in variables.items()):
            return
        os.environ.update(variables)  # which the fork server has from this process when it is started
        if self._imported == self._generation:
            self._generation += 1
            _kill_server()
            await _server_gone(_KILLED_SECONDS)

    def shared_number(self) -> Any:
        """Returns a number that a process which is forked here shares with this one, if it is given to it."""
        return self._context.RawValue(ctypes.c_byte, 0)

    async def fork(
        self, target: Callable[..., None], arguments: tuple[Any, ...], *, name: str
    ) -> tuple[ForkServerProcess, Connection]:
        """Forks a process; returns it, and our end of its pipe. The other end is the first argument of its target.

        Raises:
            SparringError: If that does not come about, however often it is tried.
        """
        deaths = 0
        for _ in range(_ATTEMPTS):
            ours, theirs = self._context.Pipe(duplex=True)
            process = self._context.Process(target=target, args=(theirs, *arguments), name=name, daemon=True)
            try:
                await self._start(process, theirs)
            except TimeoutError as error:
                ours.close()
                sentence = str(error)
            except (EOFError, OSError):  # it died, or was killed because it did not answer
                ours.close()
                sentence = (
                    "the process that slots are forked from died while it imported the simulator; its log says why."
                )
                deaths += 1
                if deaths > 1:
                    break  # one that dies of its imports dies of them again
                await _server_gone(_DYING_SECONDS)
            else:
                return process, ours
        raise SparringError(sentence)

    async def _start(self, process: ForkServerProcess, theirs: Connection) -> None:
        generation = self._generation
        limit = self._fork_seconds if self._imported == generation else self._import_seconds
        # Waits for the fork server, which may have imports to do, so not in the loop.
        starting = asyncio.ensure_future(asyncio.to_thread(_start_and_close, process, theirs))
        starting.add_done_callback(_heard)
        done, _ = await asyncio.wait({starting}, timeout=limit)
        if done:
            starting.result()
            self._imported = generation
            return
        sentence = f"the process that slots are forked from did not fork one within {limit:g} s."
        log.warning("%s It is killed, and another is started", sentence)
        if self._generation == generation:  # else another slot has seen to it
            self._generation += 1
            _kill_server()
        await _server_gone(_KILLED_SECONDS)
        await asyncio.wait({starting}, timeout=_KILLED_SECONDS)
        raise TimeoutError(sentence)


def _start_and_close(process: ForkServerProcess, theirs: Connection) -> None:
    """Starts a process, and then closes its end of the pipe here.

    Not before, also when nobody waits any more: on its way to the fork server, which would die of it.
    """
    try:
        process.start()
    finally:
        theirs.close()


def _heard(starting: asyncio.Future[None]) -> None:
    """Takes note of what became of a start that nobody may wait for any more: that it failed is no news then."""
    if not starting.cancelled():
        starting.exception()


def _server_pid() -> int | None:
    """Returns the number of this process's fork server, which multiprocessing has no call for."""
    number: int | None = getattr(forkserver._forkserver, "_forkserver_pid", None)
    return number


async def _server_gone(seconds: float) -> None:
    """Waits until the fork server, which is dying, has died: before that, multiprocessing would fork from it again."""
    number, loop = _server_pid(), asyncio.get_running_loop()
    deadline = loop.time() + seconds
    with suppress(ChildProcessError):  # somebody has noticed already
        while number is not None and loop.time() < deadline:
            if os.waitid(os.P_PID, number, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                return
            await asyncio.sleep(0.01)


def _kill_server() -> None:
    """Kills this process's fork server; multiprocessing starts another for the next fork."""
    number = _server_pid()
    if number is not None:
        with suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)

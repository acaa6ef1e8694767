"""One worker on a Ray cluster, as the keeper sees it."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sparring.orchestrator.launchers.base import LaunchFailed
from sparring.orchestrator.launchers.keep_alive import Death
from sparring.orchestrator.launchers.ray.cluster import answer, coming, is_gone, ray_package, said
from sparring.orchestrator.machine.logs import is_long, last_words, shorten

_logger: Final = logging.getLogger(__name__)

_START_SECONDS: Final = 60.0
_END_SECONDS: Final = 10.0
_TELL_SECONDS: Final = 10.0
_SILENT_SECONDS: Final = 60.0
"""Without an answer of an actor that answers every few seconds."""


@dataclass(frozen=True)
class WorkerProgram:
    """What an actor is to start.

    Attributes:
        python: On its node; empty: to be found there.
        benchmark: That the Python must have.
        arguments: Of the Python.
        secret: The run's join token.
        ca: What it trusts.
    """

    python: str
    benchmark: str
    arguments: Sequence[str]
    secret: str = field(repr=False)
    ca: bytes = field(repr=False)


class RayWorker:
    """An actor with a worker's process."""

    def __init__(self, actor: Any, log: Path, dead: Death | None = None) -> None:
        self._actor = actor
        self.log = log
        self._dead = dead
        self._heard = 0

    @classmethod
    async def start(cls, actor: Any, name: str, program: WorkerProgram, log: Path) -> RayWorker:
        """Waits until Ray has a place for an actor, for as long as that takes, and has it start its process.

        Raises:
            LaunchFailed: If trying again is of no use.
        """
        log.parent.mkdir(parents=True, exist_ok=True)
        log.touch()
        worker = cls(actor, log)
        exceptions = ray_package().exceptions
        try:
            node = await _placed(actor, name)
            asked = actor.start.remote(
                program.python, program.benchmark, list(program.arguments), program.secret, program.ca
            )
            why = await answer(asked, _START_SECONDS)
        except (exceptions.RuntimeEnvSetupError, exceptions.ActorUnschedulableError) as error:
            worker.kill()
            raise LaunchFailed(f"Ray cannot start worker {name}: {said(error)}") from error
        except (exceptions.RayError, TimeoutError) as error:
            worker._dead = Death(-signal.SIGKILL, f"did not start: {said(error)}")
        except BaseException:
            worker.kill()  # what it has started, if it has, notices
            raise
        else:
            if why:
                worker.kill()
                raise LaunchFailed(f"worker {name} cannot be started on {node}: {why}")
            _logger.info("worker %s is an actor on %s", name, node)
        return worker

    def kill(self) -> None:
        """Has Ray end the actor, or not begin with it."""
        if not is_gone():
            ray_package().kill(self._actor)

    async def wait(self) -> Death:
        if self._dead is not None:
            return self._dead
        try:
            while True:
                code = await self._follow(_SILENT_SECONDS)
                if code is not None:
                    return Death(code)
        except ray_package().exceptions.RayError as error:
            return Death(-signal.SIGKILL, f"was lost: {said(error)}")
        except TimeoutError:
            return Death(-signal.SIGKILL, f"was lost: its actor has not answered for {_SILENT_SECONDS:g} s")

    async def end(self) -> None:
        try:
            if self._dead is None and not is_gone():
                await answer(self._actor.end.remote(), _END_SECONDS)
                await self._follow(_END_SECONDS)
        except (ray_package().exceptions.RayError, TimeoutError):
            pass  # it, or its node, is gone; what is left of the process notices
        finally:
            self.kill()

    def last_words(self) -> str:
        return last_words(self.log)

    async def _follow(self, seconds: float) -> int | None:
        """Writes down what is new of its log; returns its exit code, if it has ended."""
        code, self._heard, new = await answer(self._actor.follow.remote(self._heard), seconds)
        if new:
            await asyncio.to_thread(self._write, new)
        return None if code is None else int(code)

    def _write(self, new: bytes) -> None:
        with self.log.open("ab") as file:
            file.write(new)
        if is_long(self.log):
            shorten(self.log)


async def _placed(actor: Any, name: str) -> str:
    """Waits until an actor has its place, and says so if that takes long; returns the machine that it is on."""
    asked = coming(actor.where.remote())
    while not (await asyncio.wait([asked], timeout=_TELL_SECONDS))[0]:
        _logger.info("worker %s waits until Ray has a place for it; `ray status` says what is missing", name)
    return str(asked.result())

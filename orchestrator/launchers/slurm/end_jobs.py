"""Ends all jobs of an execution, and sees that they have ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from sparring.orchestrator.launchers.slurm import commands
from sparring.orchestrator.launchers.slurm.commands import SlurmFailed, SlurmUnreachable
from sparring.orchestrator.launchers.slurm.script import read_comment
from sparring.orchestrator.launchers.to_the_end import to_the_end
from sparring.orchestrator.machine.owner import owner_state
from sparring.protos.errors import SparringError

log = logging.getLogger(__name__)

_END_SECONDS: Final = 30.0
_END_LOOK: Final = 0.5


async def end_jobs(names: Sequence[str]) -> bool:
    """Cancels all jobs of these names, again for a while if Slurm does not answer; returns whether they have ended."""
    deadline = asyncio.get_running_loop().time() + _END_SECONDS
    is_cancelled = False
    try:
        while True:
            try:
                if not is_cancelled:
                    await to_the_end(commands.cancel_names, names)
                    is_cancelled = True
                left = [job for job in await to_the_end(commands.jobs, names) if not job.has_ended]
                if not left:
                    return True
                numbers = ", ".join(job.number for job in left)
                why = SlurmFailed(f"jobs have not ended in {_END_SECONDS:g} s: {numbers}.")
            except SlurmUnreachable as error:
                why = error
            if asyncio.get_running_loop().time() > deadline:
                raise why
            await asyncio.sleep(_END_LOOK)
    except SparringError as error:
        log.warning("jobs of this run may be left: %s Cancel them with: sparring clean", error.sentence)
        return False


async def cancel_earlier(folder: Path, ended: Collection[str]) -> None:
    """Cancels what an earlier execution of the same run has left, which was killed.

    Args:
        folder: Of the run.
        ended: Owners that are known to have ended, also on other machines.
    """
    try:
        for job in await to_the_end(commands.own_jobs):
            whose, where = read_comment(job.comment) or ("", "")
            if where == str(folder.absolute()) and (whose in ended or owner_state(whose) == "dead"):
                log.info("cancelling job %s, left by an earlier execution of this run", job.number)
                await to_the_end(commands.cancel, [job.number])
    except SparringError as error:
        log.warning("what an earlier execution of this run has left could not be looked for: %s", error.sentence)

"""Cancels the jobs of a run that was killed: a process of its own, which outlives ours by seconds."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final

_DONE: Final = b"done\n"
_END_SECONDS: Final = 5.0
# Several times, because a job may have been on its way to Slurm when we were killed, or Slurm does not answer now. In
# the background, so that it outlives the shell that we wait for.
_SCRIPT: Final = """\
IFS= read -r word
[ "$word" = done ] && exit 0
user=$1
shift
for pause in 0 2 10 30; do
    sleep "$pause"
    for name in "$@"; do scancel --quiet --user="$user" --name="$name"; done
done &
"""


@dataclass
class JobsGuard:
    """Cancels jobs after us.

    Attributes:
        is_needed: Whether it does so although this process goes on: it could not see that the jobs have ended.
    """

    is_needed: bool = False


@asynccontextmanager
async def guarded(names: Sequence[str]) -> AsyncIterator[JobsGuard]:
    """Has jobs of these names cancelled if this process ends before it leaves here, however that is."""
    told = JobsGuard()
    guard = await asyncio.create_subprocess_exec(
        *("/bin/sh", "-c", _SCRIPT, "sparring-slurm-guard", str(os.getuid()), *names),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C in the terminal is ours to deal with
        cwd="/",
    )
    try:
        yield told
    finally:
        assert guard.stdin is not None
        with suppress(OSError):
            if not told.is_needed:
                guard.stdin.write(_DONE)
            guard.stdin.close()
        try:
            async with asyncio.timeout(_END_SECONDS):
                await guard.wait()
        except TimeoutError:
            guard.kill()
            await guard.wait()

"""A persistent worker: one process that waits for runs, and for each of them a worker of its own that ends with it.

A process per run, so that nothing of a run can be left for the next: no slot, no fork server with its imports, no
memory, no connection that has learnt to be slow. What waits between runs imports neither gRPC nor numpy.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal

from sparring.env_worker.worker.addresses import knock
from sparring.protos.net.address import Address

log = logging.getLogger(__name__)

FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 10.0
_STOP_SECONDS: Final = 20.0
_USAGE: Final = 2

Ending = Literal["run ended", "refused", "lost", "broken", "usage"]


class Reporter:
    """A worker's end of the pipe on which it tells the process that waits what has become of it."""

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)  # slots have no business with it
        self._descriptor = descriptor

    def joined(self, benchmark: str, slots: int) -> None:
        """Reports that a run has taken this worker in."""
        self._tell(kind="joined", text=f"{slots} {'slot' if slots == 1 else 'slots'} for {benchmark}")

    def refused(self, reason: str) -> None:
        """Reports that the run does not want this worker."""
        self._tell(kind="refused", text=reason)

    def lost(self, reason: str) -> None:
        """Reports that the run cannot be reached, or went away."""
        self._tell(kind="lost", text=reason)

    def _tell(self, **message: str) -> None:
        os.write(self._descriptor, json.dumps(message).encode() + b"\n")


class PersistentWorker:
    """Waits for runs at an address and serves one after the other.

    Args:
        address: Where runs listen.
        arguments: Of `python -m sparring.env_worker`, for the worker of each run.
        secret: That each of them waits for on its standard input; empty: none does.
        token_file: That each of them reads; where there is none, none is started. A run's own file comes and goes with
            the run.
    """

    def __init__(
        self, address: Address, arguments: Sequence[str], *, secret: str = "", token_file: Path | None = None
    ) -> None:
        self._address = address
        self._token_file = token_file
        self._secret = secret
        self._arguments = list(arguments)
        self._said = ""

    async def run(self, stop: asyncio.Event) -> int:
        """Works until `stop` is set; returns the exit code: 0, or 2 if a worker cannot be what the arguments say."""
        pause = FIRST_PAUSE
        self._say("waiting for a run at %s", self._address)
        while not stop.is_set():
            # To start a worker for nothing costs a second of work each time.
            if self._has_no_token():
                self._say("there is no join token at %s; waiting for a run that writes one", self._token_file)
            elif await knock(self._address) == "answers":
                attempt = _Attempt(self._address, self._secret)
                ending = await attempt.run(self._arguments, stop)
                if ending == "usage" and not self._has_no_token():  # which may have gone a moment ago
                    return _USAGE
                if attempt.joined:
                    self._said = ""
                    if ending != "broken":  # one that breaks each time it has joined must not do so in a hurry
                        pause = FIRST_PAUSE
                if not stop.is_set() and ending != "usage":
                    self._report(ending, attempt.reason)
            await _sleep(pause, stop)
            pause = min(2 * pause, LONGEST_PAUSE)
        log.info("told to stop")
        return 0

    def _has_no_token(self) -> bool:
        return self._token_file is not None and not self._token_file.exists()

    def _report(self, ending: Ending, reason: str) -> None:
        if ending == "run ended":
            self._say("the run at %s has ended; waiting for the next", self._address)
        elif ending == "refused":
            self._say("not wanted at %s, and will ask again: %s", self._address, reason)
        else:
            self._say("%s Waiting for a run at %s", reason, self._address)

    def _say(self, sentence: str, *values: object) -> None:
        """Logs what is new: a machine that waits all night must not fill its disk with that."""
        if (said := sentence % values) != self._said:
            self._said = said
            log.info("%s", said)


class _Attempt:
    """One worker process, from its start to its end."""

    def __init__(self, address: Address, secret: str) -> None:
        self._address = address
        self._secret = secret
        self._kind = ""
        self.joined = False
        self.reason = ""

    async def run(self, arguments: Sequence[str], stop: asyncio.Event) -> Ending:
        reading, writing = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *(
                    sys.executable,
                    "-P",
                    "-m",
                    "sparring.env_worker",
                    *arguments,
                    "--exit-with-parent",
                    f"--report-to={writing}",
                ),
                stdin=asyncio.subprocess.PIPE,
                pass_fds=(writing,),
                process_group=0,  # Ctrl-C reaches this process alone, which then ends the other in good order
            )
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        if self._secret:
            assert process.stdin is not None
            process.stdin.write(f"{self._secret}\n".encode())  # nobody waits for it to be read
        listening = asyncio.create_task(self._listen(reading))
        stopping = asyncio.create_task(stop.wait())
        ended = asyncio.create_task(process.wait())
        try:
            await asyncio.wait({stopping, ended}, return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                with suppress(ProcessLookupError):  # it has just ended by itself, and nobody has been told yet
                    process.terminate()
                done, _ = await asyncio.wait({ended}, timeout=_STOP_SECONDS)
                if not done:
                    log.warning("the worker did not stop within %g s and is killed", _STOP_SECONDS)
                    with suppress(ProcessLookupError):
                        process.kill()
            code = await ended
            await listening
        finally:
            if process.returncode is None:  # only if this task was cancelled
                with suppress(ProcessLookupError):
                    process.kill()
            for task in (listening, stopping, ended):
                task.cancel()
        return self._ending(code)

    async def _listen(self, descriptor: int) -> None:
        loop = asyncio.get_running_loop()
        lines = asyncio.StreamReader()
        pipe = os.fdopen(descriptor, "rb", buffering=0)
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), pipe)
        try:
            while line := await lines.readline():
                message = json.loads(line)
                self._kind = message["kind"]
                if self._kind == "joined":
                    self.joined = True
                    log.info("joined the run at %s with %s", self._address, message["text"])
                else:
                    self.reason = message["text"]
        finally:
            transport.close()

    def _ending(self, code: int) -> Ending:
        if code == 0:
            return "run ended"
        if self._kind == "refused":
            return "refused"
        if self._kind == "lost":
            return "lost"
        if code == _USAGE and not self.joined:
            return "usage"
        self.reason = f"the worker ended with exit code {code}; its last words are above."
        return "broken"


async def _sleep(seconds: float, stop: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        return

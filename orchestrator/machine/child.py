"""Child processes: started in a group of their own, tied to this process, logged, and ended for certain."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from sparring.orchestrator.machine.logs import is_long, last_words, shorten
from sparring.protos.net.address import Address
from sparring.protos.net.frames import frames_path

_END_GRACE: Final = 5.0
_LOG_SECONDS: Final = 1.0


class Child:
    """A process that is told by its standard input when we are gone, and whose whole group ends with it."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self.log = log
        self._shortening = asyncio.get_running_loop().create_task(self._keep_log_short())

    @classmethod
    async def start(
        cls,
        module: str,
        arguments: Sequence[str],
        *,
        python: Path,
        log: Path,
        capture_stdout: bool = False,
        temporary: Path | None = None,
        pass_fds: Sequence[int] = (),
    ) -> Child:
        """Starts one of our programs, `python -m module`; arguments as for `start_command`."""
        # -P: nothing is imported from the current folder, which may be anybody's; a program may look there by itself.
        command = [str(python), "-P", "-m", module, *arguments, "--exit-with-parent"]
        return await cls.start_command(
            command, log=log, capture_stdout=capture_stdout, temporary=temporary, pass_fds=pass_fds
        )

    @classmethod
    async def start_command(
        cls,
        command: Sequence[str],
        *,
        log: Path,
        secret: str = "",
        capture_stdout: bool = False,
        temporary: Path | None = None,
        pass_fds: Sequence[int] = (),
    ) -> Child:
        """Starts any command.

        Args:
            command: Program and arguments; it should end when its standard input closes.
            log: What it says is appended to this file.
            secret: Said to it first, as a line on its standard input: arguments and environments others can read.
            capture_stdout: Whether its standard output is read here instead.
            temporary: A folder of its own for temporary files.
            pass_fds: Open files of ours that it has under the same numbers.
        """
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as sink:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE if capture_stdout else sink,
                stderr=sink,
                env=None if temporary is None else {**os.environ, "TMPDIR": str(temporary)},
                pass_fds=pass_fds,
                start_new_session=True,  # Ctrl-C in the terminal is ours to deal with, not theirs
            )
        if secret:
            assert process.stdin is not None
            process.stdin.write(f"{secret}\n".encode())  # fits into any pipe: nobody waits for it to be read
        return cls(process, log)

    @property
    def pid(self) -> int:
        """The number of the process, and of its group."""
        return self._process.pid

    async def first_line(self) -> bytes:
        """Reads the first line on its standard output; empty if it ends without one."""
        assert self._process.stdout is not None
        return await self._process.stdout.readline()

    async def wait(self) -> int:
        """Waits until it has ended and returns its exit code; what is left of its group is ended, too."""
        code = await self._process.wait()
        self._signal(signal.SIGKILL)
        await asyncio.wait([self._shortening])
        return code

    def kill(self) -> None:
        """Kills the process and its group; `wait` tells when it has ended."""
        self._signal(signal.SIGKILL)

    async def end(self) -> None:
        """Ends the process and its group: politely, then not."""
        self._signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(_END_GRACE):
                await self._process.wait()
        except TimeoutError:
            pass
        finally:
            self._signal(signal.SIGKILL)
        await self._process.wait()
        await asyncio.wait([self._shortening])

    def last_words(self, lines: int = 12) -> str:
        """Returns the end of its log; only the sentence, if it ended with one that is meant for people."""
        return last_words(self.log, lines)

    async def _keep_log_short(self) -> None:
        """Looks at the log now and then, until the process has ended."""
        ended = asyncio.ensure_future(self._process.wait())
        try:
            while True:
                await asyncio.wait([ended], timeout=_LOG_SECONDS)
                if is_long(self.log):
                    await asyncio.to_thread(shorten, self.log)
                if ended.done():
                    return
        finally:
            ended.cancel()

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


def open_socket(address: Address) -> None:
    """Lets every user connect to a unix socket who can get to its folder, and to the one for frames beside it."""
    Path(address.path).chmod(0o666)
    if (frames := frames_path(address)) is not None and frames.exists():
        frames.chmod(0o666)

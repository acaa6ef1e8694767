"""`python -m sparring.orchestrator.launchers.slurm.server_program`: a policy server on a node, for as long as its run.

It is the job's own program. It finds out by which number the node is reached, makes a certificate for that, whose key
never leaves it, says in a file where the policy is, and starts a server that died again, in the same place.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
from pathlib import Path
from typing import Final

from sparring.orchestrator.launchers.cluster import address_towards
from sparring.orchestrator.launchers.slurm.server_news import RESTART, ServerNews
from sparring.orchestrator.machine.child import Child
from sparring.orchestrator.machine.self_signed import self_signed
from sparring.orchestrator.serving.policy_host import START_SECONDS, served_at, tls_files
from sparring.protos.advice import FLAGS
from sparring.protos.errors import SparringError
from sparring.protos.net.access import Identity
from sparring.protos.net.address import Address

log = logging.getLogger("sparring.server_program")

ALONE_SECONDS: Final = 300.0
"""A run that has not been heard of for so long is gone: killed with the machine that it was on."""
_LOOK_SECONDS: Final = 5.0
_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 30.0


class ServedRun:
    """The run that a server is for, as its file shows it: written anew every few seconds, and gone at its end.

    Args:
        path: The file.
        alone: Seconds after which a run is gone that has not been heard of.
        look: Seconds between two looks.
    """

    def __init__(self, path: Path, alone: float = ALONE_SECONDS, look: float = _LOOK_SECONDS) -> None:
        self._path = path
        self._alone = alone
        self._look = min(look, alone / 8)
        self._last = b""

    async def until_gone(self) -> None:
        """Waits until the run has ended, or has not been heard of for too long."""
        loop = asyncio.get_running_loop()
        heard, misses = loop.time(), 0
        while loop.time() - heard < self._alone and misses < 3:
            try:
                content = await asyncio.to_thread(self._path.read_bytes)
                misses = 0
                if content != self._last:
                    self._last, heard = content, loop.time()
            except FileNotFoundError:
                misses += 1
            except OSError:  # storage that is away for a while
                pass
            await asyncio.sleep(self._look)
        log.info("the run that this is for has ended, or is gone")


class ServerKeeper:
    """Has a policy server, until it is told to stop.

    Args:
        arguments: Of the server, but where it listens and how it encrypts.
        host: The number of this machine that it listens at.
        identity: Encrypts.
        news: File that says where the policy is.
        server_log: Of the server.
    """

    def __init__(self, arguments: list[str], host: str, identity: Identity, news: Path, server_log: Path) -> None:
        self._arguments = arguments
        self._address = Address("tcp", host)
        self._identity = identity
        self._news = news
        self._log = server_log
        self._child: Child | None = None

    def kill(self) -> None:
        """Kills the server; another is started."""
        if self._child is not None:
            log.warning("the policy server is killed, as its run wants it, and started again")
            self._child.kill()

    async def run(self) -> int:
        """Serves until cancelled; returns the exit code of a server that never served."""
        pause = _FIRST_PAUSE
        while True:
            with tls_files(self._identity) as (tls, numbers):
                files = [f"--{name.replace('_', '-')}={path}" for name, path in tls.items()]
                child = await Child.start(
                    "sparring.policy_server",
                    [*self._arguments, *files, f"--listen={self._address}"],
                    python=Path(sys.executable),
                    log=self._log,
                    capture_stdout=True,
                    pass_fds=numbers,
                )
            began = asyncio.get_running_loop().time()
            try:
                async with asyncio.timeout(START_SECONDS):
                    line = await child.first_line()
                if line:
                    self._address = self._address.with_port(served_at(line)[0].port)  # a successor has the same
                    self._child = child
                    self._tell(ServerNews(str(self._address.with_tls()), self._identity.cert.decode()))
                code = await child.wait()
            except TimeoutError:
                code, line = 1, b""
                sys.stderr.write(f"error: the policy did not load within {START_SECONDS:g} s.\n")
            finally:
                self._child = None
                await child.end()
            self._tell(ServerNews(code=code))
            if not line and not self._address.port:
                return code  # it was wrongly started, and so would be the next
            lived = asyncio.get_running_loop().time() - began
            pause = _pause_after(pause, lived)
            log.warning("the policy server ended with %d; another is started in %g s", code, pause)
            await asyncio.sleep(pause)

    def _tell(self, news: ServerNews) -> None:
        try:
            news.append_to(self._news)
        except OSError as error:  # the run notices otherwise, and has it replaced
            log.warning("%s cannot be written: %s", self._news, error.strerror)


def _pause_after(pause: float, lived: float) -> float:
    """Returns how long it takes until another server is started: longer each time, unless one has lived for long."""
    return _FIRST_PAUSE if lived > _LONGEST_PAUSE else min(2 * pause, _LONGEST_PAUSE)


async def _serve(given: argparse.Namespace) -> int:
    host = await asyncio.to_thread(address_towards, given.towards, "the run that this policy server is for")
    identity = await asyncio.to_thread(self_signed, host)
    keeper = ServerKeeper(given.arguments, host, identity, given.news, given.log)
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    loop.add_signal_handler(RESTART, keeper.kill)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    serving = asyncio.ensure_future(keeper.run())
    run = ServedRun(given.alive, given.alone)
    others = [asyncio.ensure_future(stopped.wait()), asyncio.ensure_future(run.until_gone())]
    await asyncio.wait([serving, *others], return_when=asyncio.FIRST_COMPLETED)
    for task in (serving, *others):
        task.cancel()
    (code, *_) = await asyncio.gather(serving, *others, return_exceptions=True)
    if isinstance(code, Exception):
        raise code
    return code if isinstance(code, int) else 0


def main(argv: list[str] | None = None) -> None:
    """Parses the command line, and serves."""
    parser = argparse.ArgumentParser(prog="python -m sparring.orchestrator.launchers.slurm.server_program")
    parser.add_argument("--towards", required=True, help="name or number of the machine that the run is on")
    parser.add_argument("--news", type=Path, required=True, help="file for what there is to say")
    parser.add_argument(
        "--alive", type=Path, required=True, help="file that is written anew for as long as the run lives"
    )
    parser.add_argument(
        "--alone", type=float, default=ALONE_SECONDS, help="seconds after which a run is gone that writes nothing"
    )
    parser.add_argument("--log", type=Path, required=True, help="file for the policy server's log")
    parser.add_argument("arguments", nargs="*", help="of the policy server, after --")
    given = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    try:
        code = asyncio.run(_serve(given))
    except SparringError as error:
        sys.stderr.write(f"error: {error.told(FLAGS)}\n")
        ServerNews(code=2).append_to(given.news)
        code = 2
    raise SystemExit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()

"""`python -m sparring.env_worker`: a worker that dials an orchestrator."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from sparring.protos.net.connection import Connection

T = TypeVar("T")

_STANDARD_INPUT: Final = "-"
_LOOK_SECONDS: Final = 0.2
_OF_A_WORKER: Final = (
    "orchestrator",
    "slots",
    "benchmark",
    "evaluation",
    "name",
    "connect_timeout",
    "ca",
    "tls_cert",
    "tls_key",
)

# Before numpy is imported: a slot is one process per core, and a BLAS with threads of its own only gets in the way.
for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")
# The fork server is started by exec, and slots use gRPC only after their fork: no handlers are needed.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")


def main() -> None:
    """Parses the command line and works until told to stop."""
    from sparring.protos.advice import FLAGS, RenderedFormatter

    options = _parser().parse_args()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(RenderedFormatter(FLAGS, "%(asctime)s %(name)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    raise SystemExit(_stay(options) if options.stay else _work(options))


def _work(options: argparse.Namespace) -> int:
    """Works for one run; returns the exit code."""
    from sparring.env_worker.gl import choose_backend
    from sparring.env_worker.worker.persistent import Reporter
    from sparring.env_worker.worker.worker import OrchestratorGone, Worker, WorkerRefused
    from sparring.protos.advice import FLAGS
    from sparring.protos.errors import SparringError, UsageError

    reporter = Reporter(options.report_to) if options.report_to is not None else None

    async def work(stop: asyncio.Event) -> None:
        leave = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, leave.set)
        await _token_written(options, stop)
        if stop.is_set():
            return
        connection = _connection(options)
        worker = Worker(
            connection,
            name=options.name,
            slots=options.slots,
            benchmark=options.benchmark,
            evaluation=options.evaluation,
            connect_timeout=options.connect_timeout,
            on_joined=lambda assignment: reporter.joined(assignment.benchmark, assignment.slots) if reporter else None,
            leave=leave,
        )
        await worker.run(stop)

    try:
        choose_backend()
        asyncio.run(_until_told(work, options))
    except SparringError as error:
        if reporter is not None and isinstance(error, WorkerRefused):
            reporter.refused(error.sentence)
        elif reporter is not None and isinstance(error, OrchestratorGone):
            reporter.lost(error.sentence)
        else:
            # A program that has started this one, and reads this, knows whom to tell it; else people do.
            read_by_a_program = options.exit_with_parent and reporter is None
            sys.stderr.write(f"error: {error.sentence if read_by_a_program else error.told(FLAGS)}\n")
        return 2 if isinstance(error, UsageError) else 1
    return 0


def _stay(options: argparse.Namespace) -> int:
    """Works for one run after the other; returns the exit code."""
    from sparring.env_worker.worker.persistent import PersistentWorker
    from sparring.protos.advice import FLAGS
    from sparring.protos.errors import UsageError
    from sparring.protos.net.address import Address

    try:
        address = Address.parse(options.orchestrator)
        file = None if options.join_token_file in ("", _STANDARD_INPUT) else Path(options.join_token_file)
        # A run's own file comes with the run; whatever else is wrong with it is told now.
        secret = "" if file is not None and not file.exists() else _join_token(options)
    except UsageError as error:
        sys.stderr.write(f"error: {error.told(FLAGS)}\n")
        return 2
    given = {name: getattr(options, name) for name in _OF_A_WORKER}
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
    if options.join_token_file == _STANDARD_INPUT:
        worker = PersistentWorker(address, [*flags, f"--join-token-file={_STANDARD_INPUT}"], secret=secret)
    else:  # read anew for each run: the next one may have another
        worker = PersistentWorker(address, [*flags, f"--join-token-file={options.join_token_file}"], token_file=file)
    return asyncio.run(_until_told(worker.run, options))


async def _token_written(options: argparse.Namespace, stop: asyncio.Event) -> None:
    """Waits until there is a file with the join token: a run writes it when it begins, maybe a moment from now.

    Raises:
        UsageError: If there is none in time.
    """
    from sparring.protos.errors import UsageError

    file = Path(options.join_token_file)
    if options.join_token_file in ("", _STANDARD_INPUT) or file.exists():
        return
    if options.report_to is not None:  # whoever has started this one waits for the file itself
        return
    seconds = options.connect_timeout
    logging.getLogger(__name__).info(
        "there is no join token at %r; waiting %g s for the run that writes it (--connect-timeout)", str(file), seconds
    )
    deadline = time.monotonic() + seconds
    while not file.exists() and not stop.is_set():
        if time.monotonic() >= deadline:
            raise UsageError(
                f"there is no join token at {str(file)!r} (--join-token-file), and no run has written one there in "
                f"{seconds:g} s. Start the run, name the file that it says, or wait for runs with --stay."
            )
        with suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_SECONDS):
                await stop.wait()


def _connection(options: argparse.Namespace) -> Connection:
    """Returns the way to the run, with what it takes to be let in there.

    Raises:
        UsageError: If there is none, or a file that was named cannot be used.
    """
    from sparring.protos.errors import UsageError
    from sparring.protos.net.access import Identity, read_ca
    from sparring.protos.net.address import Address
    from sparring.protos.net.connection import ORCHESTRATOR, Connection

    cert, key = (Path(given) if given else None for given in (options.tls_cert, options.tls_key))
    identity = Identity.read(cert, key, flags=("--tls-cert", "--tls-key"))
    connection = Connection(
        Address.parse(options.orchestrator),
        token=_join_token(options),
        ca=read_ca(Path(options.ca), flag="--ca") if options.ca else b"",
        identity=identity,
        kind=ORCHESTRATOR,
    )
    if identity is not None and not connection.encrypted:
        raise UsageError("--tls-cert and --tls-key are shown over TLS only: give tls://HOST:PORT, or --ca.")
    if connection.token and connection.address.leaves_the_machine and not connection.encrypted:
        logging.getLogger(__name__).warning(
            "the join token travels unencrypted to %s; a run with TLS is at tls://HOST:PORT", connection.address
        )
    return connection


def _join_token(options: argparse.Namespace) -> str:
    """Returns the secret of the run that is to be joined; empty if none was given.

    Raises:
        UsageError: If the file that was named holds none.
    """
    from sparring.protos.net.access import hear_token, read_token

    flag = "--join-token-file"
    if options.join_token_file == _STANDARD_INPUT:
        return hear_token(flag=flag)
    return read_token(Path(options.join_token_file), flag=flag) if options.join_token_file else ""


async def _until_told(run: Callable[[asyncio.Event], Coroutine[Any, Any, T]], options: argparse.Namespace) -> T:
    """Runs something that ends when its event is set: by a signal, or by the end of the parent."""
    from sparring.env_worker.worker.heartbeat import beat
    from sparring.protos.process import stop_with_parent

    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    if options.exit_with_parent:
        stop_with_parent(stop)
    beating = asyncio.create_task(beat())
    try:
        return await run(stop)
    finally:
        beating.cancel()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m sparring.env_worker", description="Runs episodes for an orchestrator."
    )
    parser.add_argument("--orchestrator", required=True, help="address of the orchestrator's Work service")
    parser.add_argument("--slots", type=int, default=0, help="episodes at once; 0: the orchestrator decides")
    parser.add_argument("--benchmark", default="", help="work for this benchmark only")
    parser.add_argument("--evaluation", default="", help="work for this part of the run only, by its name")
    parser.add_argument("--name", default="", help="name of the worker in logs and displays")
    parser.add_argument("--connect-timeout", type=float, default=30.0, help="seconds to wait for the orchestrator")
    parser.add_argument(
        "--join-token-file", default="", help="file with the run's join token; -: it comes first on standard input"
    )
    parser.add_argument("--ca", default="", help="PEM file with the CA of the orchestrator's certificate; turns TLS on")
    parser.add_argument("--tls-cert", default="", help="PEM certificate to show to the orchestrator")
    parser.add_argument("--tls-key", default="", help="PEM private key of --tls-cert")
    parser.add_argument("--stay", action="store_true", help="wait for the next run when one has ended, until SIGTERM")
    parser.add_argument("--exit-with-parent", action="store_true", help="stop when standard input closes")
    # How a persistent worker hears from the worker of a run: a file descriptor.
    parser.add_argument("--report-to", type=int, help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    main()

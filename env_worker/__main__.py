"""`python -m env_worker`: a worker that dials an orchestrator."""

from __future__ import annotations

import os

# Before numpy is imported: a slot is one process per core, and a BLAS with threads of its own only gets in the way.
for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")
# The fork server is started by exec, and slots use gRPC only after their fork: no handlers are needed.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")


def main() -> None:
    """Parses the command line and works until told to stop."""
    import argparse
    import asyncio
    import logging
    import signal
    import sys

    from env_worker.gl import choose_backend
    from env_worker.heartbeat import beat
    from env_worker.worker import Worker
    from protos.errors import SparringError, UsageError
    from protos.process import stop_with_parent

    parser = argparse.ArgumentParser(prog="python -m env_worker", description="Runs episodes for an orchestrator.")
    parser.add_argument("--orchestrator", required=True, help="address of the orchestrator's Work service")
    parser.add_argument("--slots", type=int, default=0, help="episodes at once; 0: the orchestrator decides")
    parser.add_argument("--benchmark", default="", help="work for this benchmark only")
    parser.add_argument("--name", default="", help="name of the worker in logs and displays")
    parser.add_argument("--patience", type=float, default=30.0, help="seconds to wait for the orchestrator")
    parser.add_argument("--exit-with-parent", action="store_true", help="stop when standard input closes")
    options = parser.parse_args()

    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(name)s %(message)s", datefmt="%H:%M:%S"
    )

    async def work() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        if options.exit_with_parent:
            stop_with_parent(stop)
        worker = Worker(
            options.orchestrator,
            name=options.name,
            slots=options.slots,
            benchmark=options.benchmark,
            patience=options.patience,
        )
        beating = asyncio.create_task(beat())
        try:
            await worker.run(stop)
        finally:
            beating.cancel()

    try:
        choose_backend()
        asyncio.run(work())
    except SparringError as error:
        sys.stderr.write(f"error: {error}\n")
        raise SystemExit(2 if isinstance(error, UsageError) else 1) from error


if __name__ == "__main__":
    main()

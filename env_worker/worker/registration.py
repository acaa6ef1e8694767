"""What a worker says of itself when it dials the orchestrator."""

from __future__ import annotations

import socket

from sparring.env_worker.registry import all_benchmarks, get_benchmark, installed_versions, source_files
from sparring.protos import WORK_PROTOCOL_VERSION
from sparring.protos import evaluation_pb2 as pb
from sparring.protos.errors import UsageError
from sparring.protos.limits import MAX_FACT
from sparring.protos.machine import machine


def registration(worker: str, *, slots: int, benchmark: str, evaluation: str) -> pb.Register:
    """Returns what a worker is and can do.

    Args:
        worker: Its name.
        slots: How many it wants; 0 lets the orchestrator decide.
        benchmark: The only one to work for; empty for any that is installed.
        evaluation: The only one to work for; empty for any.

    Raises:
        UsageError: If what the benchmark needs is not installed.
    """
    able = _able(benchmark)
    return pb.Register(
        protocol=WORK_PROTOCOL_VERSION,
        worker=worker,
        slots=slots,
        benchmarks=able,
        versions=installed_versions(able),
        evaluation=evaluation,
        host=socket.gethostname(),
        files={name: sha256 for name, sha256 in source_files(able).items() if _is_sayable(name)},
        machine={name: _sayable(value) for name, value in machine().items()},
    )


def _able(name: str) -> list[str]:
    """Returns the benchmarks that are offered."""
    if not name:
        return [name for name, benchmark in all_benchmarks().items() if not benchmark.missing()]
    benchmark = get_benchmark(name)
    if missing := benchmark.missing():
        raise UsageError(
            f"the benchmark {benchmark.name!r} needs {', '.join(missing)}, not installed in this Python. "
            f"Start the worker with `sparring worker --benchmark {benchmark.name}`, which finds the right one."
        )
    return [name]


def _is_sayable(name: str) -> bool:
    """Returns whether an orchestrator takes a name: a file's, of whatever users have."""
    return len(name) <= MAX_FACT and name.isprintable()


def _sayable(text: str) -> str:
    """Returns as much of a text as an orchestrator takes."""
    return "".join(filter(str.isprintable, text))[:MAX_FACT]

"""The actor that a worker is on a Ray cluster: it holds the worker's process, and all that is heard of it.

Ray is given this class as it stands, so that the Python of its nodes needs nothing of ours: hence nothing but the
standard library up here.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress

_FOLLOW_SECONDS = 5.0
_GRACE_SECONDS = 5.0
_BLOCK = 64 * 1024
_MOST_HELD = 8 * 1024 * 1024
"""Bytes of a log that nobody has fetched yet; beyond that, the oldest are dropped."""


class SparringWorker:
    """A worker's process. It ends when its standard input closes, and so with this actor, however that ends."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._news = threading.Condition()
        self._held = b""
        self._passed = 0
        self._code: int | None = None

    def where(self) -> str:
        """Returns the machine that it is on; that there is an answer means that Ray has found a place."""
        return socket.gethostname()

    def start(self, python: str, benchmark: str, arguments: Sequence[str], secret: str, ca: bytes) -> str:
        """Starts the process; returns why it cannot be, or nothing.

        Args:
            python: That has sparring and the benchmark; empty: to be found here.
            benchmark: By the name that it is found by.
            arguments: Of that Python.
            secret: Said first on its standard input: arguments and environments others can read.
            ca: What it trusts.
        """
        try:
            program = python or _python_for(benchmark)
            with os.fdopen(os.memfd_create("ca"), "wb") as file:  # on no disk: nothing is left, however this ends
                file.write(ca)
                file.flush()
                trusted = [f"--ca=/dev/fd/{file.fileno()}"] if ca else []
                self._process = subprocess.Popen(
                    [program, *arguments, *trusted],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    pass_fds=[file.fileno()],
                    start_new_session=True,
                )
                self._hear_of(self._process)
                assert self._process.stdin is not None
                self._process.stdin.write(f"{secret}\n".encode())
                self._process.stdin.flush()
        except (OSError, RuntimeError) as error:
            return str(error)
        return ""

    def follow(self, after: int) -> tuple[int | None, int, bytes]:
        """Waits for news, but not for long; returns the exit code if it has ended, and its log from there on.

        Args:
            after: So many bytes of the log are known.
        """
        with self._news:
            self._news.wait_for(lambda: self._code is not None or self._end > after, _FOLLOW_SECONDS)
            new = self._held[max(0, after - self._passed) :]
            self._held, self._passed = new, self._end - len(new)
            return self._code, self._end, new

    def end(self) -> None:
        """Ends the process and all that it has started: politely, then not."""
        if self._process is None:
            return
        self._signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_GRACE_SECONDS)
        self._signal(signal.SIGKILL)
        self._process.wait()

    @property
    def _end(self) -> int:
        return self._passed + len(self._held)

    def _hear_of(self, process: subprocess.Popen[bytes]) -> None:
        def read() -> None:
            assert process.stdout is not None
            while block := process.stdout.read1(_BLOCK):  # type: ignore[attr-defined]
                with self._news:
                    kept = (self._held + block)[-_MOST_HELD:]
                    self._passed += len(self._held) + len(block) - len(kept)
                    self._held = kept
                    self._news.notify_all()

        def wait() -> None:
            code = process.wait()
            self._signal(signal.SIGKILL)  # its slots
            reading.join(_GRACE_SECONDS)
            with self._news:
                self._code = code
                self._news.notify_all()

        reading = threading.Thread(target=read, daemon=True)
        reading.start()
        threading.Thread(target=wait, daemon=True).start()

    def _signal(self, number: int) -> None:
        assert self._process is not None
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


def _python_for(benchmark: str) -> str:
    """Returns the Python of this node that has a benchmark: this one, or one of the benchmark's own."""
    try:
        from sparring.env_worker.registry import get_benchmark
        from sparring.orchestrator.machine.environments import interpreter
    except ImportError as error:
        raise RuntimeError(
            f"{sys.executable} on {socket.gethostname()} has no sparring ({error}): install it there, or name a Python "
            "that has it"
        ) from error
    return str(interpreter(get_benchmark(benchmark)))  # a SparringError is a RuntimeError

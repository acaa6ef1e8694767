"""Which Python a benchmark's workers run with."""

from __future__ import annotations

import sys
from pathlib import Path

from env_worker.benchmark import Benchmark


def interpreter(benchmark: Benchmark) -> Path:
    """The Python that has the benchmark installed."""
    return Path(sys.executable)

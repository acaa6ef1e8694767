"""Fetches a benchmark's assets with the Python that can: that of the benchmark's own environment.

python -m sparring.env_worker.fetch NAME SETTINGS

What goes wrong is written to standard output as a sentence; how far it is, to standard error.
"""

from __future__ import annotations

import json
import sys

from sparring.env_worker.registry import get_benchmark
from sparring.protos.errors import SparringError


def main() -> None:
    """Reads the benchmark's name and its settings, a JSON object, and fetches."""
    try:
        benchmark = get_benchmark(sys.argv[1])
        benchmark.fetch(benchmark.read_settings(json.loads(sys.argv[2])))
    except SparringError as error:
        sys.stdout.write(error.sentence)
        raise SystemExit(1) from error


if __name__ == "__main__":
    main()

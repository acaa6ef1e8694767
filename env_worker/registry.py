"""Finds benchmarks: one file each in `env_worker/benchmarks`, or an entry point of an installed package."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from importlib.metadata import entry_points
from typing import Final

from sparring.env_worker import benchmarks
from sparring.env_worker.benchmark import Benchmark
from sparring.protos.errors import SparringError, unknown

ENTRY_POINTS: Final = "sparring.benchmarks"


def all_benchmarks() -> dict[str, Benchmark]:
    """Every benchmark that can be named, installed dependencies or not."""
    found: dict[str, Benchmark] = {}
    for module_info in pkgutil.iter_modules(benchmarks.__path__, f"{benchmarks.__name__}."):
        if module_info.name.rpartition(".")[2].startswith("_"):
            continue  # a part of a benchmark
        module = importlib.import_module(module_info.name)
        for _, kind in inspect.getmembers(module, inspect.isclass):
            if issubclass(kind, Benchmark) and not inspect.isabstract(kind) and kind.__module__ == module.__name__:
                found[kind.name] = kind()
    for point in entry_points(group=ENTRY_POINTS):
        try:
            found[point.name] = point.load()()
        except Exception as error:  # somebody else's package; name it, whatever it raised
            raise SparringError(
                f"the benchmark {point.name!r} ({point.value}) cannot be loaded: {type(error).__name__}: {error}. "
                "Repair or uninstall the package that brings it."
            ) from error
    return dict(sorted(found.items()))


def get_benchmark(name: str) -> Benchmark:
    """The benchmark of that name.

    Raises:
        UsageError: If there is none, with the nearest names.
    """
    known = all_benchmarks()
    if name not in known:
        raise unknown("benchmark", name, known, hint="See: sparring ls benchmarks")
    return known[name]

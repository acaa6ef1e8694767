"""Finds benchmarks: one file each in `env_worker/benchmarks`, or an entry point of an installed package."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import platform
from collections.abc import Iterable
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from typing import Final

from sparring.env_worker import benchmarks
from sparring.env_worker.benchmark import Benchmark
from sparring.env_worker.own_python import versions_of_own
from sparring.protos.errors import SparringError, unknown
from sparring.protos.installing import OURS
from sparring.protos.sources import sources_of

ENTRY_POINTS: Final = "sparring.benchmarks"
_ALWAYS: Final = (OURS, "numpy", "grpcio", "protobuf")


def all_benchmarks() -> dict[str, Benchmark]:
    """Returns every benchmark that can be used or made usable: its dependencies may be missing."""
    return {name: found for name, found in _found().items() if isinstance(found, Benchmark)}


def broken_benchmarks() -> dict[str, SparringError]:
    """Returns the benchmarks of other packages that cannot be loaded, and why: they harm nobody who does not ask."""
    return {name: found for name, found in _found().items() if isinstance(found, SparringError)}


def get_benchmark(name: str) -> Benchmark:
    """Returns the benchmark of that name.

    Raises:
        UsageError: If there is none, with the nearest names.
        SparringError: If it is one of an installed package that cannot be loaded.
    """
    known = _found()
    if name not in known:
        raise unknown("benchmark", name, known, hint="See: sparring ls benchmarks")
    found = known[name]
    if isinstance(found, SparringError):
        raise found
    return found


def _found() -> dict[str, Benchmark | SparringError]:
    """Returns every benchmark that can be named; in the place of one that cannot be loaded, why."""
    found: dict[str, Benchmark | SparringError] = {}
    for module_info in pkgutil.iter_modules(benchmarks.__path__, f"{benchmarks.__name__}."):
        if module_info.name.rpartition(".")[2].startswith("_"):
            continue  # a part of a benchmark
        module = importlib.import_module(module_info.name)
        for _, kind in inspect.getmembers(module, inspect.isclass):
            if issubclass(kind, Benchmark) and not inspect.isabstract(kind) and kind.__module__ == module.__name__:
                found[kind.name] = kind()
    for point in entry_points(group=ENTRY_POINTS):
        found[point.name] = _load(point)
    return dict(sorted(found.items()))


def _load(point: EntryPoint) -> Benchmark | SparringError:
    try:
        benchmark = point.load()()
        if not isinstance(benchmark, Benchmark):
            raise TypeError("it is not a sparring Benchmark")
    except (Exception, SystemExit) as error:  # noqa: BLE001  # somebody else's package; it is named when somebody asks for it
        return SparringError(
            f"the benchmark {point.name!r} ({point.value}) cannot be loaded: {type(error).__name__}: {error}. "
            "Repair or uninstall the package that brings it."
        )
    return benchmark


def experts_of(names: Iterable[str]) -> dict[str, str]:
    """Returns what the policy `expert` means for each benchmark: `module:Class`, or nothing where there is none.

    Raises:
        UsageError: If a name is unknown.
    """
    return {name: get_benchmark(name).expert for name in names}


def distribution_of(name: str) -> str:
    """Returns the distribution that brings a benchmark: ours, or the one whose entry point it is found by."""
    for point in entry_points(group=ENTRY_POINTS):
        if point.name == name and point.dist is not None:
            return point.dist.name
    return OURS


def source_files(names: Iterable[str]) -> dict[str, str]:
    """Returns the hashes of the source files of benchmarks, by `NAME:FILE`; ours are known by our version."""
    found: dict[str, str] = {}
    for name in names:
        files = sources_of([type(get_benchmark(name)).__module__]).files
        found |= {f"{name}:{file}": sha256 for file, sha256 in files.items()}
    return found


def installed_versions() -> dict[str, str]:
    """Versions of what can change a number, as installed here."""
    packages = dict.fromkeys(_ALWAYS)
    for name, benchmark in all_benchmarks().items():
        packages |= dict.fromkeys((*benchmark.packages, distribution_of(name)))
    versions = {"python": platform.python_version()}
    for package in packages:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions_of_own() | versions

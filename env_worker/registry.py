"""Finds benchmarks: files in `env_worker/benchmarks`, entry points of installed packages, and any `module:Class`."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import platform
from collections.abc import Iterable
from importlib.metadata import EntryPoint, PackageNotFoundError, version
from typing import Final, TypeGuard

from sparring.env_worker import benchmarks
from sparring.env_worker.benchmark import Benchmark, BenchmarkBroken
from sparring.env_worker.own_python import versions_of_own
from sparring.protos.data_files import package_data_of
from sparring.protos.errors import SparringError, UsageError, unknown
from sparring.protos.installing import OURS
from sparring.protos.own_modules import import_module_of, look_in_the_current_folder
from sparring.protos.plugins import entry_points_of
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

    Args:
        name: Of one that is installed, or `module:Class`; the module may be beside the user, as with `python -m`.

    Raises:
        UsageError: If there is none, with the nearest names, or the class cannot be used.
        SparringError: If it is one of an installed package that cannot be loaded.
    """
    if ":" in name:
        return _own(name)
    found = _one(name)
    if found is None:
        raise unknown(
            "benchmark", name, _names(), hint="See: sparring ls benchmarks. A class of your own: module:Class."
        )
    if isinstance(found, SparringError):
        raise found
    return found


def _found() -> dict[str, Benchmark | SparringError]:
    """Returns every benchmark that can be named; in the place of one that cannot be loaded, why."""
    return {name: found for name in _names() if (found := _one(name)) is not None}


def _names() -> list[str]:
    """Returns the names of all benchmarks, of which none is imported."""
    return sorted({*_files(), *(point.name for point in entry_points_of(ENTRY_POINTS))})


def _files() -> list[str]:
    """Returns the names of our own, each in a file of its name; what begins with `_` is a part of one."""
    return [found.name for found in pkgutil.iter_modules(benchmarks.__path__) if not found.name.startswith("_")]


def _one(name: str) -> Benchmark | SparringError | None:
    """Returns one benchmark, why it cannot be loaded, or nothing. Imports no other, so that a run starts sooner."""
    if name in _files():  # a name of ours is not taken over by whatever is installed beside it
        module = importlib.import_module(f"{benchmarks.__name__}.{name}")
        return next(
            kind() for kind in vars(module).values() if _is_benchmark(kind) and kind.__module__ == module.__name__
        )
    point = next((point for point in entry_points_of(ENTRY_POINTS) if point.name == name), None)
    return _load(point) if point else None


def _is_benchmark(kind: object) -> TypeGuard[type[Benchmark]]:
    return inspect.isclass(kind) and issubclass(kind, Benchmark) and not inspect.isabstract(kind)


def _own(reference: str) -> Benchmark:
    """Makes the benchmark that `module:Class` names."""
    module_name, _, attribute = reference.partition(":")
    look_in_the_current_folder()
    try:
        module = import_module_of(
            reference,
            "benchmark",
            elsewhere=" A worker in a container or on another machine needs it there: in its image, on its PYTHONPATH.",
        )
    except UsageError:
        raise
    except (Exception, SystemExit) as error:  # a user's module may raise anything while it is imported
        raise BenchmarkBroken(f"importing {module_name!r} failed: {type(error).__name__}: {error}") from error
    kind = getattr(module, attribute, None)
    if not (inspect.isclass(kind) and issubclass(kind, Benchmark)):
        classes = [n for n, v in vars(module).items() if inspect.isclass(v) and issubclass(v, Benchmark)]
        raise unknown(f"benchmark in {module_name!r}:", attribute, [n for n in classes if n != Benchmark.__name__])
    lacking = [name for name in ("name", "summary") if not hasattr(kind, name)]
    lacking += [f"{name}()" for name in sorted(getattr(kind, "__abstractmethods__", ()))]
    if lacking:
        raise UsageError(
            f"the benchmark {reference!r} lacks {' and '.join(lacking)}; docs/benchmarks.md shows one that is whole."
        )
    try:
        return kind()
    except (Exception, SystemExit) as error:  # as above
        raise BenchmarkBroken(f"the benchmark {reference!r} cannot be made: {type(error).__name__}: {error}") from error


def _load(point: EntryPoint) -> Benchmark | SparringError:
    try:
        benchmark = point.load()()
        if not isinstance(benchmark, Benchmark):
            raise TypeError("it is not a sparring Benchmark")
        _check_told(benchmark)
    except (Exception, SystemExit) as error:  # noqa: BLE001  # somebody else's package; it is named when somebody asks for it
        broken = BenchmarkBroken(
            f"the benchmark {point.name!r} ({point.value}) cannot be loaded: {type(error).__name__}: {error}. "
            "Repair or uninstall the package that brings it."
        )
        broken.__cause__ = error
        return broken
    return benchmark


def _check_told(benchmark: Benchmark) -> None:
    """Checks that a benchmark can say of itself what is asked of all that are installed, whoever plays what.

    Raises:
        TypeError: If it cannot; or whatever else its code raises.
    """
    texts = [benchmark.name, benchmark.summary, benchmark.expert, *benchmark.packages, *benchmark.missing()]
    wrong = [text for text in texts if not isinstance(text, str)]
    if wrong:
        raise TypeError(f"a name that it says of itself is no text: {wrong[0]!r}")


def experts_of(names: Iterable[str]) -> dict[str, str]:
    """Returns what the policy `expert` means for each benchmark: `module:Class`, or nothing where there is none.

    Raises:
        UsageError: If a name is unknown.
    """
    return {name: get_benchmark(name).expert for name in names}


def distribution_of(name: str) -> str:
    """Returns the distribution that brings a benchmark: ours, or the one whose entry point it is found by."""
    for point in entry_points_of(ENTRY_POINTS):
        if point.name == name and point.dist is not None:
            return point.dist.name
    return OURS


def source_files(names: Iterable[str]) -> dict[str, str]:
    """Returns the hashes of the source files of benchmarks, by `NAME:FILE`, and one of all else in their own packages.

    Ours are known by our version.
    """
    found: dict[str, str] = {}
    for name in names:
        module = type(get_benchmark(name)).__module__
        files = {**sources_of([module]).files, **package_data_of(module)}
        found |= {f"{name}:{file}": sha256 for file, sha256 in files.items()}
    return found


def installed_versions(used: Iterable[str] = ()) -> dict[str, str]:
    """Versions of what can change a number, as installed here.

    Args:
        used: Benchmarks that are used; by default all that are installed.
    """
    packages = dict.fromkeys(_ALWAYS)
    for name in [*used] or all_benchmarks():
        packages |= dict.fromkeys(get_benchmark(name).packages)
        if ":" not in name:
            packages[distribution_of(name)] = None
    versions = {"python": platform.python_version()}
    for package in packages:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions_of_own() | versions

"""Benchmarks that cannot share an interpreter: where each one's own Python is, its state, and how it is made.

A benchmark's `environment` is the recipe: `constraints.txt` pins every package of it, and `no-deps.txt` lists those
that are installed without what they ask for. The rest is sparring, what brings the benchmark, with its extra, and what
else was asked for.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from sparring.env_worker.benchmark import Benchmark
from sparring.env_worker.locks import one_at_a_time, say
from sparring.env_worker.own_python import STAMP, packages_of, read_stamp
from sparring.env_worker.registry import all_benchmarks, distribution_of, get_benchmark
from sparring.orchestrator.machine.environment_maker import (
    BEGUN,
    STEP_SECONDS,
    EnvironmentFailed,
    EnvironmentMaker,
    distributions,
)
from sparring.orchestrator.machine.same_again import known_by, project_of, source_checkout
from sparring.protos.errors import UsageError
from sparring.protos.installing import install_command

VARIABLE: Final = "SPARRING_VENVS"


@dataclass(frozen=True)
class EnvironmentState:
    """Whether a benchmark can be run, and with what.

    Attributes:
        kind: "here" in this interpreter; "ready" in its own; "half-made" if making that was broken off; "stale" if its
            recipe has changed since; "missing" otherwise.
        python: The interpreter to run it with, if there is one.
        detail: A line for people; it says what to do when there is none.
        packages: What was installed in its own beside the recipe, because somebody asked for it.
    """

    kind: Literal["here", "ready", "half-made", "stale", "missing"]
    python: Path | None
    detail: str
    packages: tuple[str, ...] = ()


def interpreter(benchmark: Benchmark) -> Path:
    """Returns the Python that has the benchmark installed: this one, else the one of its own environment.

    An environment that was made with packages of the user's own comes first: they are not here.

    Raises:
        UsageError: If there is none, with the command that makes it.
    """
    found = state(benchmark)
    if found.python is None:
        raise UsageError(f"the benchmark {benchmark.name!r} cannot be run yet: {found.detail}")
    return found.python


def state(benchmark: Benchmark) -> EnvironmentState:
    """Returns where a benchmark can be run, and what to do if it cannot."""
    elsewhere = _is_elsewhere(benchmark.name)
    own = environment_state(benchmark.name) if benchmark.environment is not None or elsewhere else None
    wanted = own is not None and (own.packages or elsewhere)
    if own is not None and wanted and Path(sys.prefix) != environment_folder(benchmark.name):
        return own
    missing = benchmark.missing()
    if not missing:
        return EnvironmentState("here", Path(sys.executable), "installed")
    if own is None:
        detail = f"needs {', '.join(missing)}: {_what_would_help(benchmark)}"
        return EnvironmentState("missing", None, detail)
    return own


def environment_state(name: str) -> EnvironmentState:
    """Returns the state of the environment of that name, whatever is installed here."""
    folder = environment_folder(name)
    stamp = read_stamp(folder)
    packages = packages_of(stamp)
    command = shlex.join(["sparring", "env", "create", name, *(f"--with={package}" for package in packages)])
    if not folder.exists():
        return EnvironmentState("missing", None, f"its environment is not made; make it with: {command}")
    python = folder / "bin" / "python"
    if stamp is None or not python.exists():
        detail = f"its environment {str(folder)!r} is half-made, or being made just now; finish it with: {command}"
        return EnvironmentState("half-made", None, detail, packages)
    if stamp.get("recipe") != fingerprint(name):
        detail = f"its environment {str(folder)!r} was made for other versions; make it anew with: {command}"
        return EnvironmentState("stale", None, detail, packages)
    beside = f", with {', '.join(packages)}" if packages else ""
    detail = f"own environment {str(folder)!r}, Python {stamp.get('python')}{beside}"
    return EnvironmentState("ready", python, detail, packages)


def recipes() -> list[str]:
    """Returns the names of the benchmarks that have an environment of their own: by a recipe, or made elsewhere."""
    return sorted(name for name, one in all_benchmarks().items() if one.environment is not None or _is_elsewhere(name))


def venvs_folder() -> Path:
    """Returns where environments are: as named, else in the source checkout, else in the user's data folder."""
    if named := os.environ.get(VARIABLE):
        return Path(named).expanduser().absolute()
    if checkout := source_checkout():
        return checkout / ".venvs"
    data = Path(os.environ.get("XDG_DATA_HOME", ""))
    return (data if data.is_absolute() else Path.home() / ".local" / "share") / "sparring" / "venvs"


def environment_folder(name: str) -> Path:
    """Returns where the environment of a benchmark is, or would be made: beside the others, or where it was put."""
    folder = venvs_folder() / name
    return folder.resolve() if _is_elsewhere(name) else folder


def _is_elsewhere(name: str) -> bool:
    """Returns whether the environment of a benchmark was put elsewhere: a link among the others says where."""
    return (venvs_folder() / name).is_symlink()


def fingerprint(name: str) -> str:
    """Returns a hash of everything that decides what is in an environment."""
    benchmark = get_benchmark(name)
    known = [part for own, extra in distributions(benchmark).items() for part in known_by(own, extra)]
    digest = hashlib.sha256(json.dumps(known).encode())
    for file in sorted(benchmark.environment.glob("*.txt")) if benchmark.environment is not None else ():
        digest.update(file.name.encode() + file.read_bytes())
    if checkout := source_checkout():
        project = project_of(checkout)
        asked = [project.get("dependencies"), project.get("optional-dependencies", {}).get(benchmark.extra)]
        digest.update(json.dumps(asked).encode())
    return digest.hexdigest()


def create(name: str, *, packages: Sequence[str] = (), force: bool = False, prefix: Path | None = None) -> Path:
    """Makes the environment of a benchmark, unless it is ready; returns its Python.

    Until the new one is ready, an older one stays aside; it comes back if the new one cannot be made.

    Args:
        name: The benchmark's.
        packages: What else is installed there, as pip is told of it; none: what it was made with before.
        force: Makes it anew even if it is ready.
        prefix: Folder to make it in, instead of beside the others, which then have a link to it; None: where it was
            before. With one, any benchmark may have an environment of its own; one without a recipe gets the versions
            that are installed here.

    Raises:
        UsageError: If there is no such benchmark, or it needs no environment of its own.
        EnvironmentFailed: If it cannot be made; what was there before is there again.
    """
    benchmark = get_benchmark(name)
    recipe = benchmark.environment
    if recipe is None and prefix is None and not _is_elsewhere(name):
        raise UsageError(
            f"the benchmark {name!r} has no environment of its own; {_what_would_help(benchmark)}. "
            f"Those that have one: {', '.join(recipes())}. In a folder that is named, any may have "
            "one; see: sparring env create"
        )
    packages = [_checked(package) for package in packages]
    folder = environment_folder(name) if prefix is None else prefix.expanduser().absolute() / name
    if prefix is not None:
        _check_prefix(folder)
    waiting = f"another process makes the environment {name!r}"
    try:
        with one_at_a_time(folder.with_name(f"{name}.lock"), deadline=STEP_SECONDS, waiting=waiting) as lock:
            before = environment_state(name)
            wanted = tuple(packages) or before.packages
            is_there = before.python is not None and environment_folder(name) == folder
            if before.python is not None and is_there and before.packages == wanted and not force:
                return before.python
            with _older_aside(folder):
                python = EnvironmentMaker(folder, lock).make(benchmark, recipe, wanted)
                _write_stamp(folder, name, wanted)
                if folder != venvs_folder() / name:
                    _link(folder, venvs_folder() / name)
                return python
    except OSError as error:
        raise EnvironmentFailed(
            f"the environment {name!r} cannot be made in {str(folder.parent)!r}: {error.strerror or error}. "
            f"Name another folder with {VARIABLE}."
        ) from error


def remove(name: str) -> bool:
    """Removes the environment of a benchmark, finished or not; returns whether there was one.

    Raises:
        UsageError: If no benchmark of that name has an environment.
        EnvironmentFailed: If it cannot be removed.
    """
    if get_benchmark(name).environment is None and not _is_elsewhere(name):
        raise UsageError(
            f"the benchmark {name!r} has no environment of its own. Those that have: {', '.join(recipes())}."
        )
    folder = environment_folder(name)
    if not folder.parent.is_dir():
        return False
    waiting = f"another process makes the environment {name!r}"
    try:
        with one_at_a_time(folder.with_name(f"{name}.lock"), deadline=STEP_SECONDS, waiting=waiting):
            there = folder.exists()
            for path in (folder, _aside(folder)):
                if _is_ours(path) or not _is_elsewhere(name):  # the folder of all environments is ours as a whole
                    _remove(path)
            if _is_elsewhere(name):
                (venvs_folder() / name).unlink()
    except OSError as error:
        raise EnvironmentFailed(
            f"the environment {str(folder)!r} cannot be removed: {error.strerror or error}."
        ) from error
    return there


def _checked(package: str) -> str:
    """Returns a package as pip is told of it from any folder."""
    if package.startswith("-") or not package.strip():
        raise UsageError(
            f"{package!r} is not a package; name one as pip does, for example gym-aloha==0.1.5. "
            "Settings of pip are given by its variables, such as PIP_INDEX_URL."
        )
    return str(Path(package).absolute()) if os.sep in package and Path(package).exists() else package


def _check_prefix(folder: Path) -> None:
    """Checks that an environment may be made in a folder that a user has named: nothing of theirs is in its place.

    Raises:
        UsageError: If something is there that is not to be removed.
    """
    for path in (folder, _aside(folder)):
        if os.path.lexists(path) and (path.is_symlink() or not _is_ours(path)):
            raise UsageError(
                f"{str(path)!r} is there already, and was not made by `sparring env create`. Remove it yourself, "
                "or name another folder to make the environment in."
            )
    nearest = next(parent for parent in folder.parents if parent.exists())
    if nearest.stat().st_mode & stat.S_IWOTH:
        say(f"{str(nearest)!r} may be written by everybody on this machine, who so decide what workers run from there")


def _is_ours(folder: Path) -> bool:
    return any((folder / mark).is_file() for mark in (STAMP, BEGUN))


def _aside(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.older")


@contextmanager
def _older_aside(folder: Path) -> Iterator[None]:
    """Moves what is there out of the way, and back if the block fails; an environment works only in its own place."""
    aside = _aside(folder)
    if aside.exists() and read_stamp(folder) is None:  # a creator was killed between the two
        _remove(folder)
        aside.replace(folder)
    _remove(aside)
    if read_stamp(folder) is None:
        _remove(folder)
    else:
        folder.replace(aside)
    try:
        yield
    except BaseException:
        _remove(folder)
        if aside.exists():
            aside.replace(folder)
        raise
    _remove(aside)


def _link(folder: Path, link: Path) -> None:
    """Has a link to an environment that is elsewhere, in the place of whatever was there."""
    link.parent.mkdir(parents=True, exist_ok=True)
    if not link.is_symlink():
        _remove(link)
    draft = link.with_name(f"{link.name}.link")
    draft.unlink(missing_ok=True)
    draft.symlink_to(folder, target_is_directory=True)
    draft.replace(link)


def _remove(folder: Path) -> None:
    if folder.exists():
        (folder / STAMP).unlink(missing_ok=True)  # first: a folder that is half removed is not ready
        shutil.rmtree(folder)


def _what_would_help(benchmark: Benchmark) -> str:
    """Returns what installs what a benchmark lacks: its extra, if it has one; else only that is known."""
    brings = distribution_of(benchmark.name)
    if command := install_command(benchmark.extra, brings):
        return command
    names = ", ".join(benchmark.missing())
    if not names:
        return "all that it needs is installed here"
    return f"install what brings {names} into this Python ({sys.prefix}); no extra of {brings} does"


def _write_stamp(folder: Path, name: str, packages: Sequence[str]) -> None:
    version = ".".join(str(part) for part in sys.version_info[:3])
    draft = folder / f"{STAMP}.draft"
    draft.write_text(json.dumps({"recipe": fingerprint(name), "python": version, "with": list(packages)}))
    draft.replace(folder / STAMP)

"""What tests need that not every machine has: a container engine, LIBERO's assets, LeRobot.

A test says what it needs with `@pytest.mark.requires("docker")`. Where that is missing, the test is skipped with one
line that says what is missing and why. What the variable SPARRING_REQUIRE names (`docker,libero`, or `all`) must be
there: tests that miss it fail. CI sets it, so that nothing is skipped there unseen.
"""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final, NoReturn

import pytest

VARIABLE: Final = "SPARRING_REQUIRE"
SLURM_VARIABLE: Final = "SPARRING_SLURM"
_LEFT_OUT = pytest.StashKey[dict[str, str]]()

Reason = Callable[[], str]
"""Says why something is not here; says nothing if it is."""


def _no_docker() -> str:
    from sparring.orchestrator.launchers.docker.engine import connect
    from sparring.protos.errors import SparringError

    if shutil.which("docker") is None:
        return "there is no docker command"
    try:
        connect()
    except SparringError as error:
        return str(error)
    return ""


def _no_environment_of(benchmark: str) -> Reason:
    def reason() -> str:
        from sparring.env_worker.registry import get_benchmark
        from sparring.orchestrator.machine.environments import interpreter
        from sparring.protos.errors import SparringError

        try:
            interpreter(get_benchmark(benchmark))
        except SparringError as error:
            return str(error)
        return ""

    return reason


def _no_libero_assets() -> str:
    """Downloads them where a hub can be reached, as a user's first run would."""
    from sparring.env_worker.benchmarks.libero import Libero, LiberoSettings
    from sparring.protos.errors import SparringError

    try:
        Libero().fetch(LiberoSettings())
    except SparringError as error:
        return str(error)
    return ""


def _no_gym() -> str:
    from sparring.env_worker.benchmarks.gym import Gym
    from sparring.orchestrator.machine.environments import state

    if not state(Gym()).packages:
        return f"packages of environments are not here; {_NOT_HERE.format('gym')}"
    return ""


def _not_installed(package: str, how: str) -> Reason:
    def reason() -> str:
        try:
            version(package)  # not by importing it: folders of tests have the names of packages
        except PackageNotFoundError:
            return f"{package} is not installed in this environment; {how}"
        return ""

    return reason


def _no_chromium() -> str:
    return "" if shutil.which("chromium") else "there is no browser: apt-get install chromium"


def _no_charliecloud() -> str:
    return "" if shutil.which("ch-run") else "there is no Charliecloud: apt-get install charliecloud"


def _no_compiler() -> str:
    return "" if shutil.which("cc") else "there is no C compiler: apt-get install gcc libc6-dev"


def _no_rendering() -> str:
    from sparring.env_worker.gl import advice, choose_backend

    return "" if choose_backend() else f"there is no GL library; {advice()}"


def _no_ipv6() -> str:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError as error:
        return f"::1 cannot be listened at: {error.strerror}"
    return ""


def _no_mesa() -> str:
    from egl_drivers import MESA, find_mesa

    return "" if find_mesa() else f"there is no {MESA}: apt-get install libegl-mesa0"


def _no_mount() -> str:
    from chaos.disk import fault

    return fault()


def _no_netns() -> str:
    from chaos.link import fault

    return fault()


def slurm_folder() -> Path:
    """Where the scripts are that start a Slurm cluster on this machine, and harm its nodes."""
    return Path(os.environ.get(SLURM_VARIABLE, "../shared/slurm")).absolute()


def _no_slurm() -> str:
    from sparring.orchestrator.launchers.slurm.commands import call
    from sparring.protos.errors import SparringError

    if not (slurm_folder() / "cluster-node").exists():
        return f"there is no {str(slurm_folder())!r}; {SLURM_VARIABLE} names a folder with cluster-up and cluster-node"
    try:
        call("squeue", "--noheader")
    except SparringError as error:
        return f"{error} Start a cluster with {slurm_folder() / 'cluster-up'}"
    return ""


def _no_accounting() -> str:
    for program in ("slurmdbd", "mariadbd", "mariadb-install-db"):
        if shutil.which(program) is None:
            return f"there is no {program}: apt-get install slurmdbd mariadb-server-core mariadb-client-core"
    return ""


def _no_memory_cgroup() -> str:
    """Slurm's plug-in for version 2 wants systemd, which few machines of tests have."""
    probe = Path("/sys/fs/cgroup/memory") / f"sparring-{os.getpid()}"
    try:
        probe.mkdir()
        probe.rmdir()
    except OSError as error:
        return f"no memory control group of version 1 can be made: {error}"
    return ""


_NOT_HERE: Final = "it has an environment of its own: make test-{0}"

REQUIREMENTS: Final[dict[str, Reason]] = {
    "aloha": _no_environment_of("aloha"),
    "atheris": _not_installed("atheris", "not every Python has it"),
    "cc": _no_compiler,
    "charliecloud": _no_charliecloud,
    "chromium": _no_chromium,
    "docker": _no_docker,
    "docs": _not_installed("mkdocs-material", "make docs installs it"),
    "foreign": _not_installed("openpi-client", _NOT_HERE.format("foreign")),
    "gym": _no_gym,
    "gym-packages": _not_installed("gym-aloha", _NOT_HERE.format("gym")),
    "ipv6": _no_ipv6,
    "lerobot": _not_installed("lerobot", _NOT_HERE.format("lerobot")),
    "libero": _no_environment_of("libero"),
    "libero-assets": _no_libero_assets,
    "memory-cgroup": _no_memory_cgroup,
    "mesa": _no_mesa,
    "mount": _no_mount,
    "netns": _no_netns,
    "pusht": _no_environment_of("pusht"),
    "protoc": _not_installed("grpcio-tools", "the release that stubs come from is for Python 3.12 and older"),
    "ray": _not_installed("ray", _NOT_HERE.format("ray")),
    "rendering": _no_rendering,
    "slurm": _no_slurm,
    "slurmdbd": _no_accounting,
    "triton": _not_installed("triton", "torch for CPUs brings none"),
    "trackers": _not_installed("wandb", _NOT_HERE.format("trackers")),
}
"""Everything that a test may require, by name."""

FOLDERS: Final[dict[str, Reason]] = {
    "foreign": REQUIREMENTS["foreign"],
    "gym": _not_installed("gym-aloha", _NOT_HERE.format("gym")),
    "lerobot": REQUIREMENTS["lerobot"],
    "libero": _not_installed("hf-libero", _NOT_HERE.format("libero")),
    "ray_cluster": REQUIREMENTS["ray"],
    "trackers": REQUIREMENTS["trackers"],
}
"""Folders of tests that are for another interpreter, and when: their modules cannot even be imported elsewhere."""


@cache
def missing(name: str) -> str:
    """Why something that tests need is not on this machine, in one line; empty if it is there."""
    reason = " ".join(REQUIREMENTS[name]().split())
    return f"needs {name}: {reason}" if reason else ""


def demanded() -> frozenset[str]:
    """What must not be missing, by the environment variable.

    Raises:
        pytest.UsageError: If it names something that no test needs.
    """
    named = frozenset(filter(None, (name.strip() for name in os.environ.get(VARIABLE, "").split(","))))
    if named == {"all"}:
        return frozenset(REQUIREMENTS)
    if unknown := sorted(named - set(REQUIREMENTS)):
        raise pytest.UsageError(f"{VARIABLE} names {', '.join(unknown)}; there is {', '.join(REQUIREMENTS)}, and all.")
    return named


def skip_or_fail(names: Sequence[str], *, module: bool = False) -> None:
    """Goes on if everything that is named is there; else skips, or fails what must not be skipped.

    Always called from the same line, so that pytest counts tests of one reason in one line of its summary.

    Args:
        names: What is needed.
        module: Whether it is a whole module that needs them, while it is collected.
    """
    for name in names:
        if reason := missing(name):
            if name in demanded():
                pytest.fail(f"{reason} ({VARIABLE} demands it)", pytrace=False)
            pytest.skip(reason, allow_module_level=module)


def pytest_configure(config: pytest.Config) -> None:
    demanded()  # a mistyped name is told before anything runs


@pytest.hookimpl(trylast=True)  # what --ignore names is none of our business
def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    name = collection_path.name
    if collection_path.parent != config.rootpath / "tests" or not (reason := FOLDERS.get(name, str)()):
        return None
    if not _is_asked_for(collection_path, config):
        return True  # pytest looks into every folder beside those that it is given
    _check_not_demanded(name, reason)
    config.stash.setdefault(_LEFT_OUT, {})[name] = f"SKIPPED tests/{name}: {reason}"
    return True


class _LeftOut(pytest.File):
    """A file of tests for another interpreter: it is not imported, and skipped."""

    def collect(self) -> NoReturn:
        folder = self.path.relative_to(self.config.rootpath / "tests").parts[0]
        pytest.skip(f"tests/{folder}: {FOLDERS[folder]()}", allow_module_level=True)


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.File | None:
    """Leaves out what is for another interpreter and given by its name: pytest does not ask whether to ignore that."""
    tests = parent.config.rootpath / "tests"
    folder = module_path.relative_to(tests).parts[0] if module_path.is_relative_to(tests) else ""
    if not (reason := FOLDERS.get(folder, str)()):
        return None
    _check_not_demanded(folder, reason)
    return _LeftOut.from_parent(parent, path=module_path)  # type: ignore[no-any-return]


def _check_not_demanded(folder: str, reason: str) -> None:
    if (
        folder.partition("_")[0] in demanded()
    ):  # not called ray: where that is not installed, it would be imported for it
        raise pytest.UsageError(f"tests/{folder}: {reason} ({VARIABLE} demands it)")


def _is_asked_for(folder: Path, config: pytest.Config) -> bool:
    given = [(config.invocation_params.dir / argument.partition("::")[0]).resolve() for argument in config.args]
    return any(folder.is_relative_to(path) or path.is_relative_to(folder) for path in given)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for line in config.stash.get(_LEFT_OUT, {}).values():
        terminalreporter.write_line(line)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for name in _required(item):
            if name not in REQUIREMENTS:
                raise pytest.UsageError(f"{item.nodeid} requires {name!r}, which tests/requirements.py does not know.")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    skip_or_fail(_required(item))


def _required(item: pytest.Item) -> list[str]:
    return [name for mark in item.iter_markers("requires") for name in mark.args]

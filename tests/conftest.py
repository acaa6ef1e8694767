"""What all tests share: the command as a user runs it, and a toy benchmark that is found as a user's own would be."""

from __future__ import annotations

import gc
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest
from certificates import Certificates
from support import EVERYTHING, ROOT, Sparring, Undisturbed, orphans, read_csv

if TYPE_CHECKING:
    from sparring import Evaluator

pytest_plugins = ["pytester", "requirements", "longest"]

TOY = ROOT / "tests" / "toy"

_STARTING = frozenset({"sparring", "start_sparring", "warm"})

# The toy's entry points must be found by everything that tests start (pytest's own path has them by configuration).
_PATH = [str(TOY), str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
os.environ["PYTHONPATH"] = os.pathsep.join(_PATH).rstrip(os.pathsep)

# What a shell starts in the background ignores Ctrl-C, and so does everything that it starts: tests send it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Whole folders of tests start processes, and some fixtures do; elsewhere those that do are marked one by one."""
    from longest import RUNS  # a plug-in of pytest's, which wants to be the first to import it

    for item in items:
        fixtures = _STARTING & set(getattr(item, "fixturenames", ()))
        if fixtures or item.path.parent.name in ("compliance", "docker", "e2e"):
            item.add_marker(pytest.mark.processes)
        elif item.path.relative_to(ROOT / "tests").as_posix() in RUNS:
            item.add_marker(pytest.mark.runs)
    if not EVERYTHING and (left := [item for item in items if item.get_closest_marker("everything")]):
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if not item.get_closest_marker("everything")]


_NEW_MODULES = 30
_known_modules = 0


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Spares the garbage collector what stays to the end: players ask for it, and it would look at every module.

    Many are imported by the first test that needs them, torch's and scipy's by the hundred. With those, players in this
    process would take 70 ms for each of their episodes.
    """
    global _known_modules
    if len(sys.modules) >= _known_modules + _NEW_MODULES:
        _known_modules = len(sys.modules)
        gc.collect()
        gc.freeze()


def pytest_report_header() -> str:
    if EVERYTHING:
        return "everything: all tests, tasks and episodes"
    return "a sample: tests that are deselected, all tasks and all episodes are in make test-all"


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """A CA, what it signed, and a token."""
    return Certificates.make(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder that sockets can be in: the name of one has at most 107 characters, and tmp_path has most of them."""
    folder = Path(tempfile.mkdtemp())
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def sparring(tmp_path: Path) -> Sparring:
    """Runs the command in an empty folder and returns what it said. Nothing it started may outlive it."""

    def run(*arguments: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "sparring", *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=timeout, check=False)
        assert orphans(tmp_path) == [], done.stderr
        return done

    return run


@pytest.fixture(scope="module")
def warm() -> Iterator[Evaluator]:
    """Workers that stay: evaluations in this process, for what is the same whoever starts the workers."""
    from sparring import Evaluator

    with Evaluator() as evaluator:
        yield evaluator


@pytest.fixture
def usage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Sparring]:
    """The command in this process, in an empty folder: a second less, where the process is not what is looked at."""
    from sparring.orchestrator.cli import main

    logger = logging.getLogger("sparring")
    level = logger.level
    monkeypatch.setenv("GRPC_VERBOSITY", "ERROR")  # the command sets it, for good
    monkeypatch.chdir(tmp_path)

    def become(*_: object) -> NoReturn:
        raise AssertionError("the command becomes another process, so this one ends: test it with `sparring`")

    monkeypatch.setattr(os, "execv", become)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(sys, "argv", ["sparring", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        assert orphans(tmp_path) == [], said.err
        code = ended.value.code
        return subprocess.CompletedProcess(arguments, code if isinstance(code, int) else 0, said.out, said.err)

    before = set(sys.modules)
    yield run
    logger.setLevel(level)
    # Modules of this test's folder: another test may have one of the same name.
    for name in sys.modules.keys() - before:
        if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def undisturbed(usage: Sparring, tmp_path: Path) -> Undisturbed:
    """Plays a plan in this process, with nobody who could be killed: the rows that it must have, whatever happens."""

    def run(*plan: str) -> list[dict[str, str]]:
        done = usage(*plan, "--in-process", "--output", "undisturbed")
        assert done.returncode == 0, done.stderr
        return read_csv(tmp_path / "undisturbed")

    return run


@pytest.fixture
def start_sparring(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts the command in an empty folder; it is ended with the test."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "sparring", *arguments],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()

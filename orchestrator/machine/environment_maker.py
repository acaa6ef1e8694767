"""Makes a Python of its own for a benchmark: a virtual environment, and what pip installs there."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.markup import escape

from sparring.env_worker.benchmark import Benchmark
from sparring.env_worker.locks import say
from sparring.env_worker.registry import distribution_of
from sparring.orchestrator.machine.same_again import requirement
from sparring.protos.errors import SparringError
from sparring.protos.installing import OURS

BEGUN: Final = ".sparring-begun"
"""A file in a folder that an environment is made in, by which it is known for ours before it is ready."""
STEP_SECONDS: Final = 3600.0
_END_GRACE: Final = 5.0
_LAST_LINES: Final = 12
_NO_NETWORK: Final = (
    "NewConnectionError",
    "ConnectTimeoutError",
    "ReadTimeoutError",
    "NameResolutionError",
    "Failed to establish a new connection",
    "(from versions: none)",  # all that pip says of it when it is told not to retry
)
_LACKING: Final = re.compile(r"No matching distribution found for (\S.*)")

# Asked of the new environment itself: what it was made for must be there.
_CHECK: Final = """
import importlib.util, sys
def there(name):
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # not even what it is a part of
        return False
missing = [name for name in sys.argv[1:] if not there(name)]
sys.exit(f"not installed after all: {', '.join(missing)}" if missing else 0)
"""


class EnvironmentFailed(SparringError):
    """An environment could not be made."""


def distributions(benchmark: Benchmark) -> dict[str, str]:
    """Returns what has to be installed for a benchmark, with the extra of each: sparring, and what brings it."""
    brings = distribution_of(benchmark.name)
    return {OURS: benchmark.extra} if brings == OURS else {OURS: "", brings: benchmark.extra}


def requirements(benchmark: Benchmark, folder: Path) -> list[str]:
    """Returns what makes pip install the sparring that is running, and what brings the benchmark, with its extra.

    Args:
        benchmark: Which.
        folder: Where wheels may be packed for pip to install.
    """
    return [part for name, extra in distributions(benchmark).items() for part in requirement(name, extra, folder)]


class EnvironmentMaker:
    """Makes one environment, step by step, with a log beside it.

    Args:
        folder: Of the environment; nothing is there.
        lock: A file that is locked while it is made: should we be killed, the lock lasts as long as what we started.
    """

    def __init__(self, folder: Path, lock: int) -> None:
        self._folder = folder
        self._python = folder / "bin" / "python"
        self._log = folder.with_name(f"{folder.name}.log")
        self._lock = lock

    def make(self, benchmark: Benchmark, recipe: Path | None, packages: Sequence[str]) -> Path:
        """Makes the environment of a benchmark and returns its Python.

        Args:
            benchmark: Whose it is.
            recipe: The folder that says what is in it; None: what is installed here, in the same versions.
            packages: What else is installed there, as pip is told of it.

        Raises:
            EnvironmentFailed: If it cannot be made.
        """
        # Our own pip, if there is one, installs into it: a copy of pip takes longer to make than the rest of a venv.
        has_pip = importlib.util.find_spec("pip") is not None
        pip = (sys.executable, "-I", "-m", "pip", "--python", str(self._python))
        own_pip = (str(self._python), "-I", "-m", "pip")
        install = (*(pip if has_pip else own_pip), "install", "--no-input", "--progress-bar=off")
        venv = (sys.executable, "-I", "-m", "venv", *(["--without-pip"] if has_pip else []), str(self._folder))
        modules = ("sparring.env_worker", *benchmark.requires)
        self._folder.mkdir(parents=True)
        (self._folder / BEGUN).touch()
        self._log.unlink(missing_ok=True)
        # pip that is ended in the middle leaves what it was unpacking.
        with tempfile.TemporaryDirectory(prefix="sparring-env-", ignore_cleanup_errors=True) as temporary:
            constraints = _versions_here(Path(temporary)) if recipe is None else recipe / "constraints.txt"
            asked = (*requirements(benchmark, Path(temporary)), *packages)
            what = " and ".join(["sparring", *packages])
            steps: list[tuple[str, Sequence[str]]] = [
                ("making it", venv),
                (f"installing {what}", (*install, "-c", str(constraints), *asked)),
                ("looking it over", (str(self._python), "-I", "-c", _CHECK, *modules)),
            ]
            if recipe is not None and (recipe / "no-deps.txt").exists():
                without = (*install, "--no-deps", "-r", str(recipe / "no-deps.txt"))
                steps.insert(2, (f"installing {benchmark.name}", without))
            for number, (title, command) in enumerate(steps, start=1):
                self._step(f"environment {benchmark.name} [{number}/{len(steps)}]: {title}", command, temporary)
        return self._python

    def _step(self, title: str, command: Sequence[str], temporary: str) -> None:
        last: deque[str] = deque(maxlen=_LAST_LINES)
        offline, lacking = False, ""
        with (
            _shown(title) as show,
            open(self._log, "a", opener=_no_link) as log,
            self._running(command, temporary) as process,
        ):
            log.write(f"$ {' '.join(command)}\n")
            assert process.stdout is not None
            for line in process.stdout:
                log.write(line)
                last.append(line.rstrip())
                offline = offline or any(sign in line for sign in _NO_NETWORK)
                if found := _LACKING.search(line):
                    lacking = found[1].strip()
                show.line(line.strip())
        if process.returncode != 0:
            raise self._failed(offline, lacking, last)

    @contextmanager
    def _running(self, command: Sequence[str], temporary: str) -> Iterator[subprocess.Popen[str]]:
        """Runs a command in a process group of its own, which is ended for certain, and within its time."""
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env={"PIP_RETRIES": "2", "PIP_DISABLE_PIP_VERSION_CHECK": "1", **os.environ, "TMPDIR": temporary},
            start_new_session=True,
            pass_fds=(self._lock,),  # should we be killed, the lock lasts as long as what we started
        )
        timer = threading.Timer(STEP_SECONDS, _signal, (process, signal.SIGKILL))
        timer.daemon = True
        timer.start()
        try:
            yield process
            process.wait()
        finally:
            timer.cancel()
            if process.poll() is None:
                _signal(process, signal.SIGTERM)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_END_GRACE)
            _signal(process, signal.SIGKILL)
            process.wait()

    def _failed(self, offline: bool, lacking: str, last: Sequence[str]) -> EnvironmentFailed:
        name = self._folder.name
        again = f"then run `sparring env create {name}` again."
        if offline:
            what = (
                f"the package index cannot be reached, or has no {lacking or 'package that it was asked for'}. Connect "
                f"this machine to the network, or give pip a folder of wheels with PIP_FIND_LINKS; {again}"
            )
        elif lacking:
            what = f"the package index has no {lacking} for this Python, only other versions. Name one it has; {again}"
        else:
            what = f"a command failed. Repair what it names, {again}"
        end = "\n".join(last)
        return EnvironmentFailed(
            f"the environment {name!r} could not be made: {what}\nThe log {str(self._log)!r} ends with:\n{end}"
        )


def _no_link(path: str, flags: int) -> int:
    """Opens a file, and not what a link leads to: others may write in a folder that is shared."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o644)


def _versions_here(folder: Path) -> Path:
    """Writes down the versions of all that is installed here, but for what is none of an index: a file for pip."""
    here = importlib.metadata.distributions()
    found = {one.name: one.version for one in here if one.name != OURS and not one.read_text("direct_url.json")}
    path = folder / "versions-here.txt"
    path.write_text("".join(f"{name}=={version}\n" for name, version in sorted(found.items())))
    return path


class _Shown:
    """How far a step is: a status line on a terminal, else only the step's title."""

    def __init__(self, title: str, status: Any) -> None:
        self._title = title
        self._status = status

    def line(self, text: str) -> None:
        if self._status is not None and text:
            self._status.update(f"{escape(self._title)}  [dim]{escape(text[:100])}[/dim]")


@contextmanager
def _shown(title: str) -> Iterator[_Shown]:
    console = Console(stderr=True)
    if not console.is_terminal:
        say(title)
        yield _Shown(title, None)
        return
    with console.status(escape(title)) as status:
        yield _Shown(title, status)


def _signal(process: subprocess.Popen[str], number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)

"""Benchmarks that cannot share an interpreter: where each one's own Python is, its state, and how it is made.

A benchmark's `environment` is the recipe: `constraints.txt` pins every package of it, and `no-deps.txt` lists those
that are installed without what they ask for. The rest is sparring, and what brings the benchmark, with its extra.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, Final, Literal

from rich.console import Console
from rich.markup import escape

from sparring import env_worker
from sparring.env_worker.benchmark import Benchmark
from sparring.env_worker.locks import one_at_a_time, say
from sparring.env_worker.registry import OURS, all_benchmarks, distribution_of, get_benchmark
from sparring.protos.errors import SparringError, UsageError

SOURCE: Final = Path(env_worker.__file__).resolve().parent.parent
"""Where sparring's own code is; the checkout's root, if it is one."""
VARIABLE: Final = "SPARRING_VENVS"
STAMP: Final = ".sparring.json"
"""In a finished environment, written last."""

_STEP_SECONDS: Final = 3600.0
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


@dataclass(frozen=True)
class EnvironmentState:
    """Whether a benchmark can be run, and with what.

    Attributes:
        kind: "here" in this interpreter; "ready" in its own; "half-made" if making that was broken off; "stale" if its
            recipe has changed since; "missing" otherwise.
        python: The interpreter to run it with, if there is one.
        detail: A line for people; it says what to do when there is none.
    """

    kind: Literal["here", "ready", "half-made", "stale", "missing"]
    python: Path | None
    detail: str


def interpreter(benchmark: Benchmark) -> Path:
    """Returns the Python that has the benchmark installed: this one, else the one of its own environment.

    Raises:
        UsageError: If there is none, with the command that makes it.
    """
    found = state(benchmark)
    if found.python is None:
        raise UsageError(f"the benchmark {benchmark.name!r} cannot be run yet: {found.detail}")
    return found.python


def state(benchmark: Benchmark) -> EnvironmentState:
    """Returns where a benchmark can be run, and what to do if it cannot."""
    missing = benchmark.missing()
    if not missing:
        return EnvironmentState("here", Path(sys.executable), "installed")
    if benchmark.environment is None:
        detail = f"needs {', '.join(missing)}: {_pip(benchmark)}"
        return EnvironmentState("missing", None, detail)
    return environment_state(benchmark.name)


def environment_state(name: str) -> EnvironmentState:
    """Returns the state of the environment of that name, whatever is installed here."""
    folder = venvs_folder() / name
    command = f"sparring env create {name}"
    if not folder.exists():
        return EnvironmentState("missing", None, f"its environment is not made; make it with: {command}")
    stamp = _read_stamp(folder)
    python = folder / "bin" / "python"
    if stamp is None or not python.exists():
        detail = f"its environment {str(folder)!r} is half-made, or being made just now; finish it with: {command}"
        return EnvironmentState("half-made", None, detail)
    if stamp.get("recipe") != fingerprint(name):
        detail = f"its environment {str(folder)!r} was made for other versions; make it anew with: {command}"
        return EnvironmentState("stale", None, detail)
    return EnvironmentState("ready", python, f"own environment {str(folder)!r}, Python {stamp.get('python')}")


def recipes() -> list[str]:
    """Returns the names of the benchmarks that have an environment of their own."""
    return sorted(name for name, benchmark in all_benchmarks().items() if benchmark.environment is not None)


def venvs_folder() -> Path:
    """Returns where environments are: as named, else in the source checkout, else in the user's data folder."""
    if named := os.environ.get(VARIABLE):
        return Path(named).expanduser().absolute()
    if checkout := source_checkout():
        return checkout / ".venvs"
    data = Path(os.environ.get("XDG_DATA_HOME", ""))
    return (data if data.is_absolute() else Path.home() / ".local" / "share") / "sparring" / "venvs"


def source_checkout() -> Path | None:
    """Returns the folder of sparring's source, if it runs from there."""
    return SOURCE if _project(SOURCE).get("name") == OURS else None


def fingerprint(name: str) -> str:
    """Returns a hash of everything that decides what is in an environment."""
    benchmark = get_benchmark(name)
    digest = hashlib.sha256(json.dumps(_requirements(benchmark)).encode())
    for file in sorted(_recipe(benchmark).glob("*.txt")):
        digest.update(file.name.encode() + file.read_bytes())
    if checkout := source_checkout():
        project = _project(checkout)
        asked = [project.get("dependencies"), project.get("optional-dependencies", {}).get(benchmark.extra)]
        digest.update(json.dumps(asked).encode())
    return digest.hexdigest()


def create(name: str, *, force: bool = False) -> Path:
    """Makes the environment of a benchmark, unless it is ready; returns its Python.

    Until the new one is ready, an older one stays aside; it comes back if the new one cannot be made.

    Args:
        name: The benchmark's.
        force: Makes it anew even if it is ready.

    Raises:
        UsageError: If there is no such benchmark, or it needs no environment of its own.
        EnvironmentFailed: If it cannot be made; what was there before is there again.
    """
    benchmark = get_benchmark(name)
    if benchmark.environment is None:
        raise UsageError(
            f"the benchmark {name!r} has no environment of its own; install what it needs with: {_pip(benchmark)}. "
            f"Those that have one: {', '.join(recipes())}."
        )
    folder = venvs_folder() / name
    waiting = f"another process makes the environment {name!r}"
    try:
        with one_at_a_time(folder.with_name(f"{name}.lock"), deadline=_STEP_SECONDS, waiting=waiting) as lock:
            ready = environment_state(name).python
            if ready is not None and not force:
                return ready
            with _older_aside(folder):
                return _Maker(folder, lock).make(benchmark)
    except OSError as error:
        raise EnvironmentFailed(
            f"the environment {name!r} cannot be made in {str(folder.parent)!r}: {error.strerror or error}. "
            f"Name another folder with {VARIABLE}."
        ) from error


class _Maker:
    """Makes one environment, step by step, with a log beside it."""

    def __init__(self, folder: Path, lock: int) -> None:
        self._folder = folder
        self._python = folder / "bin" / "python"
        self._log = folder.with_name(f"{folder.name}.log")
        self._lock = lock

    def make(self, benchmark: Benchmark) -> Path:
        recipe = _recipe(benchmark)
        # Our own pip, if there is one, installs into it: a copy of pip takes longer to make than the rest of a venv.
        has_pip = importlib.util.find_spec("pip") is not None
        pip = (sys.executable, "-I", "-m", "pip", "--python", str(self._python))
        own_pip = (str(self._python), "-I", "-m", "pip")
        install = (*(pip if has_pip else own_pip), "install", "--no-input", "--progress-bar=off")
        venv = (sys.executable, "-I", "-m", "venv", *(["--without-pip"] if has_pip else []), str(self._folder))
        steps: list[tuple[str, Sequence[str]]] = [
            ("making it", venv),
            ("installing sparring", (*install, "-c", str(recipe / "constraints.txt"), *_requirements(benchmark))),
            ("looking it over", (str(self._python), "-I", "-c", _CHECK, "sparring.env_worker", *benchmark.requires)),
        ]
        if (recipe / "no-deps.txt").exists():
            steps.insert(
                2, (f"installing {benchmark.name}", (*install, "--no-deps", "-r", str(recipe / "no-deps.txt")))
            )
        self._log.write_bytes(b"")
        # pip that is ended in the middle leaves what it was unpacking.
        with tempfile.TemporaryDirectory(prefix="sparring-env-", ignore_cleanup_errors=True) as temporary:
            for number, (what, command) in enumerate(steps, start=1):
                self._step(f"environment {benchmark.name} [{number}/{len(steps)}]: {what}", command, temporary)
        _write_stamp(self._folder, benchmark.name)
        return self._python

    def _step(self, title: str, command: Sequence[str], temporary: str) -> None:
        last: deque[str] = deque(maxlen=_LAST_LINES)
        offline = False
        with _shown(title) as show, self._log.open("a") as log, self._running(command, temporary) as process:
            log.write(f"$ {' '.join(command)}\n")
            assert process.stdout is not None
            for line in process.stdout:
                log.write(line)
                last.append(line.rstrip())
                offline = offline or any(sign in line for sign in _NO_NETWORK)
                show.line(line.strip())
        if process.returncode != 0:
            raise self._failed(offline, last)

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
        timer = threading.Timer(_STEP_SECONDS, _signal, (process, signal.SIGKILL))
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

    def _failed(self, offline: bool, last: Sequence[str]) -> EnvironmentFailed:
        name = self._folder.name
        if offline:
            what = (
                "the package index cannot be reached, or lacks a package. Connect this machine to the network, or give "
                f"pip a folder of wheels with PIP_FIND_LINKS; then run `sparring env create {name}` again."
            )
        else:
            what = f"a command failed. Repair what it names, then run `sparring env create {name}` again."
        end = "\n".join(last)
        return EnvironmentFailed(
            f"the environment {name!r} could not be made: {what}\nThe log {str(self._log)!r} ends with:\n{end}"
        )


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


@contextmanager
def _older_aside(folder: Path) -> Iterator[None]:
    """Moves what is there out of the way, and back if the block fails; an environment works only in its own place."""
    aside = folder.with_name(f"{folder.name}.older")
    if aside.exists() and _read_stamp(folder) is None:  # a creator was killed between the two
        _remove(folder)
        aside.replace(folder)
    _remove(aside)
    if _read_stamp(folder) is None:
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


def _remove(folder: Path) -> None:
    if folder.exists():
        (folder / STAMP).unlink(missing_ok=True)  # first: a folder that is half removed is not ready
        shutil.rmtree(folder)


def _recipe(benchmark: Benchmark) -> Path:
    assert benchmark.environment is not None
    return benchmark.environment


def _pip(benchmark: Benchmark) -> str:
    """Returns the command that installs what a benchmark needs."""
    extra = f"[{benchmark.extra}]" if benchmark.extra else ""
    return f"pip install '{distribution_of(benchmark.name)}{extra}'"


def _requirements(benchmark: Benchmark) -> list[str]:
    """Returns what makes pip install the sparring that is running, and what brings the benchmark, with its extra."""
    brings = distribution_of(benchmark.name)
    if brings == OURS:
        return _requirement(OURS, benchmark.extra)
    return [*_requirement(OURS, ""), *_requirement(brings, benchmark.extra)]


def _requirement(name: str, extra: str) -> list[str]:
    extras = f"[{extra}]" if extra else ""
    if name == OURS and (checkout := source_checkout()):
        return ["-e", f"{checkout}{extras}"]
    installed = distribution(name)
    origin = json.loads(installed.read_text("direct_url.json") or "{}")
    if "url" not in origin:
        return [f"{name}{extras}=={installed.version}"]
    url = origin["url"]
    if version_control := origin.get("vcs_info"):
        url = f"{version_control['vcs']}+{url}@{version_control['commit_id']}"
    return [f"{name}{extras} @ {url}"]


def _project(folder: Path) -> Mapping[str, Any]:
    import tomllib  # read when an environment is made, and not by every run

    try:
        project = tomllib.loads((folder / "pyproject.toml").read_text()).get("project", {})
    except (OSError, tomllib.TOMLDecodeError):
        return {}
    return project if isinstance(project, dict) else {}


def _read_stamp(folder: Path) -> Mapping[str, Any] | None:
    try:
        stamp = json.loads((folder / STAMP).read_text())
    except (OSError, ValueError):
        return None
    return stamp if isinstance(stamp, dict) else None


def _write_stamp(folder: Path, name: str) -> None:
    version = ".".join(str(part) for part in sys.version_info[:3])
    draft = folder / f"{STAMP}.draft"
    draft.write_text(json.dumps({"recipe": fingerprint(name), "python": version}))
    draft.replace(folder / STAMP)


def _signal(process: subprocess.Popen[str], number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)

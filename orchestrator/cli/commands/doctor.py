"""`sparring doctor`: what works here, and what to do about what does not."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click
from rich.text import Text

from sparring.env_worker.gl import advice, choose_backend
from sparring.env_worker.registry import all_benchmarks, broken_benchmarks, installed_versions
from sparring.env_worker.rendering.choice import choose_devices
from sparring.env_worker.rendering.device import AUTO, BACKEND_VARIABLE, DEVICE_VARIABLE, OSMESA, Device
from sparring.env_worker.rendering.probe import Drawn, NotDrawn, count_devices, try_device
from sparring.orchestrator.display.listing import print_listing
from sparring.orchestrator.launchers.base import Launcher
from sparring.orchestrator.launchers.registry import working_launchers
from sparring.orchestrator.machine.environments import environment_state, recipes, state
from sparring.orchestrator.machine.finding import Finding, FindingState
from sparring.protos.advice import FLAGS, Hint, render
from sparring.protos.errors import SparringError

_MARKS: Final = {
    "ok": Text("ok", style="green"),
    "note": Text("note", style="yellow"),
    "bad": Text("bad", style="red bold"),
}
_ENVIRONMENTS: Final[Mapping[str, FindingState]] = {
    "here": "ok",
    "ready": "ok",
    "half-made": "bad",
    "stale": "bad",
    "missing": "note",
}
_PROBE_SECONDS: Final = 60
_LEAST_FREE_GIB: Final = 0.25
_AMPLE_GIB: Final = 2.0


@click.command(short_help="check this machine")
def doctor() -> int:
    """Looks at rendering, versions, ports, GPU and disk, and says what to do. Exit code 1 if something must be done."""
    findings = list(examine())
    rows = [(_MARKS[finding.state], finding.what, render(finding.detail, FLAGS)) for finding in findings]
    print_listing(("", "", ""), rows)
    return 1 if any(finding.state == "bad" for finding in findings) else 0


def examine() -> Iterator[Finding]:
    """Finds out everything worth knowing about this machine."""
    for package, version in installed_versions().items():
        yield Finding(package, "ok", version)
    for name, benchmark in all_benchmarks().items():
        found = state(benchmark)
        yield Finding(f"benchmark {name}", _ENVIRONMENTS[found.kind], found.detail)
    for name, error in broken_benchmarks().items():
        yield Finding(f"benchmark {name}", "note", error.sentence)
    yield from _rendering()
    yield _gpu()
    for launcher in working_launchers().values():
        yield from _of_launcher(launcher)
    yield from (_port(port, role) for port, role in ((50051, "policy server"), (50052, "orchestrator")))
    yield _disk()
    yield _video()


def _of_launcher(launcher: Launcher[Any]) -> Iterator[Finding]:
    try:
        yield from launcher.examine()
    except Exception as error:  # noqa: BLE001  # somebody else's package, which need not be used
        raised = error.sentence if isinstance(error, SparringError) else f"{type(error).__name__}: {error}"
        yield Finding(f"launcher {launcher.name}", "note", f"its examine() raised {raised}")


def _rendering() -> Iterator[Finding]:
    python = _python_with_mujoco()
    if python is None:
        yield Finding("rendering", "note", "no benchmark that renders is installed to try it with")
        return
    backend = choose_backend()
    tried: dict[Device, Drawn | NotDrawn] = {}
    for device in (Device("egl"), OSMESA):
        tried[device] = try_device(python, device)
        used = " (used by workers here)" if device.backend == backend and isinstance(tried[device], Drawn) else ""
        yield Finding(f"rendering {device.backend}", _drawing(tried[device]), f"{tried[device]}{used}")
    numbered = [Device("egl", number) for number in range(count_devices(python))]
    for device in numbered:  # one after the other, for their times
        tried[device] = try_device(python, device)
        yield Finding(str(device), _drawing(tried[device]), str(tried[device]))
    if not any(isinstance(found, Drawn) for found in tried.values()):
        yield Finding("rendering", "bad", f"nothing renders: {advice()}")
        return
    choice = choose_devices(AUTO, _Examined(tried, len(numbered)))
    if not choice.chosen or not all(isinstance(tried.get(device), Drawn) for device in choice.chosen):
        yield Finding("rendering", "bad", f"what is set here does not work; {_instead(tried)}")
    else:
        auto = Hint("render_device", value=AUTO)
        yield Finding("rendering", "ok", f"slots draw on {' and '.join(map(str, choice.chosen))} with {auto}")


def _drawing(found: Drawn | NotDrawn) -> FindingState:
    return "ok" if isinstance(found, Drawn) else "note"


def _instead(tried: Mapping[Device, Drawn | NotDrawn]) -> str:
    """Says what to set where what is set does not work."""
    working = [device for device, found in tried.items() if isinstance(found, Drawn)]
    numbers = [device.number for device in working if device.number is not None]
    if DEVICE_VARIABLE in os.environ and numbers:
        return f"set {DEVICE_VARIABLE}={numbers[0]}, or leave it out"
    return f"set {BACKEND_VARIABLE}={working[0].backend}"


class _Examined:
    """What there is to draw with, as it has just been tried."""

    def __init__(self, tried: Mapping[Device, Drawn | NotDrawn], devices: int) -> None:
        self._tried = tried
        self._devices = devices

    def devices(self) -> int:
        return self._devices

    def has_osmesa(self) -> bool:
        return isinstance(self._tried[OSMESA], Drawn)

    def can_try(self) -> bool:
        return True

    def tried(self, devices: Sequence[Device]) -> Mapping[Device, Drawn | NotDrawn]:
        return {device: self._tried[device] for device in devices}


def _python_with_mujoco() -> Path | None:
    if importlib.util.find_spec("mujoco") is not None:
        return Path(sys.executable)
    ready = (found.python for found in map(environment_state, recipes()) if found.kind == "ready")
    return next((python for python in ready if python and _has_mujoco(python)), None)


def _has_mujoco(python: Path) -> bool:
    return any(python.parent.parent.glob("lib/python*/site-packages/mujoco"))


def _gpu() -> Finding:
    if shutil.which("nvidia-smi") is None:
        return Finding("GPU", "note", "no nvidia-smi; policies run on the CPU, rendering is done in software")
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    try:
        asked = subprocess.run(query, capture_output=True, text=True, timeout=_PROBE_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return Finding("GPU", "bad", "nvidia-smi does not answer; the driver may need a restart")
    if asked.returncode != 0:
        return Finding("GPU", "note", f"nvidia-smi finds none: {asked.stdout.strip() or asked.stderr.strip()}")
    return Finding("GPU", "ok", "; ".join(asked.stdout.strip().splitlines()))


def _port(port: int, role: str) -> Finding:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return Finding(f"port {port}", "note", f"taken; give the {role} another with --listen")
    return Finding(f"port {port}", "ok", f"free for the {role}")


def _disk() -> Finding:
    free = shutil.disk_usage(os.getcwd()).free / 2**30
    if free >= _AMPLE_GIB:
        return Finding("disk", "ok", f"{free:.0f} GiB free here")
    # A run with a few films is small; a worker's container has a /tmp of a gigabyte and writes no results at all.
    state: FindingState = "note" if free >= _LEAST_FREE_GIB else "bad"
    return Finding("disk", state, f"{free:.1f} GiB free here; films and recordings need room")


def _video() -> Finding:
    try:
        import av
    except ImportError:
        return Finding("video", "note", "--video needs the av package: pip install av")
    return Finding("video", "ok", f"av {av.__version__}")

"""`sparring doctor`: what works here, and what to do about what does not."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import click
from rich.table import Table
from rich.text import Text

from sparring.env_worker.gl import advice, choose_backend
from sparring.env_worker.registry import all_benchmarks, broken_benchmarks, installed_versions
from sparring.orchestrator.display.screen import show
from sparring.orchestrator.launchers.registry import working_launchers
from sparring.orchestrator.machine.environments import environment_state, recipes, state
from sparring.orchestrator.machine.finding import Finding, Verdict
from sparring.orchestrator.machine.rendering import DEVICE_VARIABLE, Drawn, try_backend, try_devices
from sparring.protos.advice import FLAGS, render

_MARKS: Final = {
    "ok": Text("ok", style="green"),
    "note": Text("note", style="yellow"),
    "bad": Text("bad", style="red bold"),
}
_ENVIRONMENTS: Final[Mapping[str, Verdict]] = {
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
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    findings = list(examine())
    for finding in findings:
        table.add_row(_MARKS[finding.state], Text(finding.what), Text(render(finding.detail, FLAGS)))
    show(table)
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
        yield from launcher.examine()
    yield from (_port(port, role) for port, role in ((50051, "policy server"), (50052, "orchestrator")))
    yield _disk()
    yield _video()


def _rendering() -> Iterator[Finding]:
    python = _python_with_mujoco()
    if python is None:
        yield Finding("rendering", "note", "no benchmark that renders is installed to try it with")
        return
    chosen = choose_backend()
    working = []
    for backend in ("egl", "osmesa"):
        tried = try_backend(python, backend)
        drawn = isinstance(tried, Drawn)
        if drawn:
            working.append(backend)
        used = " (used by workers here)" if backend == chosen else ""
        yield Finding(f"rendering {backend}", "ok" if drawn else "note", f"{tried}{used}")
    devices = try_devices(python)
    for number, device in devices.items():
        yield Finding(f"EGL device {number}", "ok" if isinstance(device, Drawn) else "note", str(device))
    alive = next((number for number, device in devices.items() if isinstance(device, Drawn)), None)
    if "egl" not in working and alive is not None:
        yield Finding("rendering", "bad", f"EGL works on device {alive} alone: set {DEVICE_VARIABLE}={alive}")
    elif not working:
        yield Finding("rendering", "bad", f"nothing renders: {advice()}")
    elif chosen not in working:
        yield Finding(
            "rendering", "bad", f"MUJOCO_GL={chosen or 'unset'} does not work here; set MUJOCO_GL={working[0]}"
        )


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
    verdict: Verdict = "note" if free >= _LEAST_FREE_GIB else "bad"
    return Finding("disk", verdict, f"{free:.1f} GiB free here; films and recordings need room")


def _video() -> Finding:
    try:
        import av
    except ImportError:
        return Finding("video", "note", "--video needs the av package: pip install av")
    return Finding("video", "ok", f"av {av.__version__}")

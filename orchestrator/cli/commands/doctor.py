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

_SOFTWARE: Final = ("llvmpipe", "softpipe", "swrast", "SWR")
"""How Mesa's software renderers call themselves."""

# In a process of its own: a broken GL driver takes down whoever asks it.
_GL_PROBE: Final = """
import mujoco, numpy
model = mujoco.MjModel.from_xml_string('<mujoco><worldbody><light pos="0 0 3"/><geom size=".5"/></worldbody></mujoco>')
data = mujoco.MjData(model)
mujoco.mj_forward(model, data)
with mujoco.Renderer(model, 64, 64) as renderer:
    renderer.update_scene(data)
    image = renderer.render()
    assert image.max() > 0, 'the image is black'
    from OpenGL import GL
    print(GL.glGetString(GL.GL_RENDERER).decode())
"""


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
        ok, said = _probe_gl(python, backend)
        if ok:
            working.append(backend)
        used = " (used by workers here)" if backend == chosen else ""
        yield Finding(f"rendering {backend}", "ok" if ok else "note", f"{said}{used}")
    if not working:
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


def _probe_gl(python: Path, backend: str) -> tuple[bool, str]:
    environment = {**os.environ, "MUJOCO_GL": backend, "PYOPENGL_PLATFORM": backend}
    try:
        probe = subprocess.run(
            [str(python), "-c", _GL_PROBE],
            env=environment,
            capture_output=True,
            text=True,
            timeout=_PROBE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False, f"did not answer within {_PROBE_SECONDS} s"
    if probe.returncode == 0:
        renderer = probe.stdout.strip()
        return True, f"{'in software' if renderer.startswith(_SOFTWARE) else 'on the GPU'}: {renderer}"
    said = probe.stderr.strip().splitlines()
    errors = [line for line in said if "Error" in line and not line.startswith(" ")]
    return False, f"does not work: {errors[-1] if errors else (said[-1] if said else 'no reason given')}"


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

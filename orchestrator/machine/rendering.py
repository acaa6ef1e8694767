"""What draws on this machine: GL backends, and EGL's devices, each tried with a frame in a process of its own.

A broken GL driver takes down whoever asks it, so nobody is asked in this process.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

DEVICE_VARIABLE: Final = "MUJOCO_EGL_DEVICE_ID"
"""Names one of EGL's devices to MuJoCo and to robosuite, by its number."""

_PROBE_SECONDS: Final = 60
_SOFTWARE: Final = ("llvmpipe", "softpipe", "swrast", "SWR")
"""How Mesa's software renderers call themselves."""

_COUNT: Final = """
from mujoco.egl import egl_ext
print(len(egl_ext.eglQueryDevicesEXT()))
"""

_FRAME: Final = """
import json, time
import mujoco
model = mujoco.MjModel.from_xml_string('<mujoco><worldbody><light pos="0 0 3"/><geom size=".5"/></worldbody></mujoco>')
data = mujoco.MjData(model)
mujoco.mj_forward(model, data)
with mujoco.Renderer(model, 240, 320) as renderer:
    renderer.update_scene(data)
    image = renderer.render()
    assert image.max() > 0, 'the image is black'
    start = time.perf_counter()
    renderer.update_scene(data)
    renderer.render()
    milliseconds = (time.perf_counter() - start) * 1000
    from OpenGL import GL
    names = [GL.glGetString(name).decode() for name in (GL.GL_VENDOR, GL.GL_RENDERER)]
    print(json.dumps([*names, milliseconds]))
"""


@dataclass(frozen=True)
class Drawn:
    """A backend or a device that has drawn a frame.

    Attributes:
        vendor: Who made its driver.
        renderer: As GL calls it.
        milliseconds: What a second frame of 320×240 took.
    """

    vendor: str
    renderer: str
    milliseconds: float

    @property
    def software(self) -> bool:
        """Whether it draws on the CPU."""
        return self.renderer.startswith(_SOFTWARE)

    def __str__(self) -> str:
        where = "in software" if self.software else "on the GPU"
        return f"{where}: {self.renderer} ({self.vendor}), {self.milliseconds:.1f} ms per frame"


@dataclass(frozen=True)
class NotDrawn:
    """One that has not.

    Attributes:
        reason: How it ended.
    """

    reason: str

    def __str__(self) -> str:
        return f"does not work: {self.reason}"


def try_backend(python: Path, backend: str) -> Drawn | NotDrawn:
    """Draws a frame with one of MuJoCo's backends, on the device that it chooses by itself or that a variable names."""
    return _frame(python, {"MUJOCO_GL": backend, "PYOPENGL_PLATFORM": backend})


def try_devices(python: Path) -> dict[int, Drawn | NotDrawn]:
    """Draws a frame on each of EGL's devices; none are found where EGL itself does not work."""
    egl = {"MUJOCO_GL": "egl", "PYOPENGL_PLATFORM": "egl"}
    said = _run(python, _COUNT, egl)
    if not isinstance(said, str) or not said.isdigit():
        return {}
    return {number: _frame(python, {**egl, DEVICE_VARIABLE: str(number)}) for number in range(int(said))}


def _frame(python: Path, variables: Mapping[str, str]) -> Drawn | NotDrawn:
    said = _run(python, _FRAME, variables)
    if isinstance(said, NotDrawn):
        return said
    vendor, renderer, milliseconds = json.loads(said)
    return Drawn(vendor, renderer, milliseconds)


def _run(python: Path, script: str, variables: Mapping[str, str]) -> str | NotDrawn:
    try:
        probe = subprocess.run(
            [str(python), "-c", script],
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            timeout=_PROBE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return NotDrawn(f"no answer within {_PROBE_SECONDS} s")
    if probe.returncode == 0:
        return probe.stdout.strip().splitlines()[-1]
    if probe.returncode < 0:
        return NotDrawn(f"its driver was ended by {signal.Signals(-probe.returncode).name}")
    said = probe.stderr.strip().splitlines()
    errors = [line for line in said if "Error" in line and not line.startswith(" ")]
    return NotDrawn(errors[-1] if errors else (said[-1] if said else "no reason given"))

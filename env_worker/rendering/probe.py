"""What draws on this machine: each device is tried with a frame in a process of its own.

A broken GL driver takes down whoever asks it, so nobody is asked in this process.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from sparring.env_worker.rendering.device import Device
from sparring.protos.process import signal_name

_PROBE_SECONDS: Final = 60
_SOFTWARE: Final = ("llvmpipe", "softpipe", "swrast", "SWR")
"""How Mesa's software renderers call themselves."""

_MOST_DEVICES: Final = 10
"""MuJoCo and robosuite know no others."""

_MOST_SAID: Final = 80
"""Characters of what a driver says, in a sentence of ours."""

_COUNT: Final = """
import ctypes
egl = ctypes.CDLL("libEGL.so.1")
egl.eglGetProcAddress.restype, egl.eglGetProcAddress.argtypes = ctypes.c_void_p, [ctypes.c_char_p]
address = egl.eglGetProcAddress(b"eglQueryDevicesEXT")
query = ctypes.CFUNCTYPE(ctypes.c_uint, ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int))(address)
found = ctypes.c_int()
print(found.value if query(0, None, ctypes.byref(found)) else 0)
"""
"""Without MuJoCo, whose import takes ten times as long."""

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
    names = [GL.glGetString(name).decode() for name in (GL.GL_VENDOR, GL.GL_RENDERER, GL.GL_VERSION)]
    print(json.dumps([*names, milliseconds]))
"""


@dataclass(frozen=True)
class Drawn:
    """A backend or a device that has drawn a frame.

    Attributes:
        vendor: Who made its driver.
        renderer: As GL calls it.
        version: Of GL and of the driver.
        milliseconds: What a second frame of 320×240 took.
    """

    vendor: str
    renderer: str
    version: str
    milliseconds: float

    @property
    def software(self) -> bool:
        """Whether it draws on the CPU."""
        return self.renderer.startswith(_SOFTWARE)

    @property
    def name(self) -> str:
        """What it is called in results: renderer, vendor and version."""
        return f"{self.renderer}, {self.vendor}, {self.version}"

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


def count_devices(python: Path) -> int:
    """Returns how many devices EGL has; 0 where it does not work, or cannot say."""
    said = _run(python, _COUNT, {}, "-I", "-S")
    return min(int(said), _MOST_DEVICES) if isinstance(said, str) and said.isdecimal() else 0


def try_device(python: Path, device: Device) -> Drawn | NotDrawn:
    """Draws a frame on a device, with MuJoCo."""
    said = _run(python, _FRAME, device.variables)
    return said if isinstance(said, NotDrawn) else _read_drawn(said)


def try_devices(python: Path, devices: Sequence[Device]) -> dict[Device, Drawn | NotDrawn]:
    """Draws a frame on each of some devices, at the same time."""
    if not devices:
        return {}
    with ThreadPoolExecutor(max_workers=len(devices)) as pool:
        return dict(zip(devices, pool.map(partial(try_device, python), devices), strict=True))


def _read_drawn(said: str) -> Drawn | NotDrawn:
    """Reads what a probe said last; a driver may end its process before it answers, or have the last word."""
    if not said:
        return NotDrawn("its driver ended without an answer")
    try:
        vendor, renderer, version, milliseconds = json.loads(said)
        return Drawn(str(vendor), str(renderer), str(version), float(milliseconds))
    except (ValueError, TypeError):
        return NotDrawn(f"its driver ended without an answer; its last line is {said[:_MOST_SAID]!r}")


def _run(python: Path, script: str, variables: Mapping[str, str], *flags: str) -> str | NotDrawn:
    try:
        probe = subprocess.run(
            [str(python), *flags, "-c", script],
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PROBE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return NotDrawn(f"no answer within {_PROBE_SECONDS} s")
    if probe.returncode == 0:
        return next(reversed(probe.stdout.strip().splitlines()), "")
    if probe.returncode < 0:
        return NotDrawn(f"its driver was ended by {signal_name(-probe.returncode)}")
    said = probe.stderr.strip().splitlines()
    errors = [line for line in said if "Error" in line and not line.startswith(" ")]
    return NotDrawn(errors[-1] if errors else (said[-1] if said else "no reason given"))

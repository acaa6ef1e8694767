"""Devices that draw: one of EGL's, by its number, or Mesa's library for drawing in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from sparring.protos.errors import UsageError

AUTO: Final = "auto"
SOFTWARE: Final = "software"

BACKEND_VARIABLE: Final = "MUJOCO_GL"
PLATFORM_VARIABLE: Final = "PYOPENGL_PLATFORM"
DEVICE_VARIABLE: Final = "MUJOCO_EGL_DEVICE_ID"
"""Names one of EGL's devices to MuJoCo, robosuite and dm_control, by its number, when they make their first context.

robosuite would take CUDA_VISIBLE_DEVICES for a list of EGL's devices, where this one is not set.
"""


@dataclass(frozen=True)
class Device:
    """What a slot draws on.

    Attributes:
        backend: MuJoCo's name for the library; a process has one, from the moment that MuJoCo is imported.
        number: Of a device among EGL's; None: the first that works, or OSMesa, which has none.
    """

    backend: Literal["egl", "osmesa"]
    number: int | None = None

    @property
    def variables(self) -> dict[str, str]:
        """The variables that choose it, in a process that has not imported MuJoCo."""
        return self.shared if self.number is None else {**self.shared, DEVICE_VARIABLE: str(self.number)}

    @property
    def shared(self) -> dict[str, str]:
        """Those of them that hold for all slots which are forked from one process."""
        return {BACKEND_VARIABLE: self.backend, PLATFORM_VARIABLE: self.backend}

    def __str__(self) -> str:
        if self.backend == "osmesa":
            return "OSMesa"
        return "EGL" if self.number is None else f"EGL device {self.number}"


OSMESA: Final = Device("osmesa")


def parse_devices(text: str) -> Sequence[int] | None:
    """Reads what `render_device` may be: numbers of EGL's devices with commas in between, else None for a word.

    Raises:
        UsageError: If it is nothing of that.
    """
    if text in ("", AUTO, SOFTWARE):
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise UsageError(f"must be {AUTO}, {SOFTWARE}, or numbers of EGL's devices, such as 0,1.")
    return list(dict.fromkeys(map(int, parts)))

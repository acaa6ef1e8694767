"""Which devices the slots of a worker draw on: what `render_device` wants, of what works here."""

from __future__ import annotations

import ctypes.util
import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from sparring.env_worker.gl import advice, choose_backend
from sparring.env_worker.rendering.device import (
    AUTO,
    BACKEND_VARIABLE,
    DEVICE_VARIABLE,
    OSMESA,
    SOFTWARE,
    Device,
    parse_devices,
)
from sparring.env_worker.rendering.probe import Drawn, NotDrawn, count_devices, try_devices
from sparring.protos.advice import Hint
from sparring.protos.errors import UsageError

Tried = Mapping[Device, Drawn | NotDrawn]


@dataclass(frozen=True)
class Choice:
    """What slots draw on.

    Attributes:
        chosen: They are spread over these; empty: what a simulator draws with is its own affair.
        spare: Taken one after the other, if none of the chosen is left.
        warnings: Sentences that whoever evaluates should know.
    """

    chosen: Sequence[Device] = ()
    spare: Sequence[Device] = ()
    warnings: Sequence[str] = ()


class Machine(Protocol):
    """What there is to draw with."""

    def devices(self) -> int:
        """Returns how many devices EGL has."""

    def has_osmesa(self) -> bool:
        """Returns whether Mesa's library for drawing in memory is there."""

    def can_try(self) -> bool:
        """Returns whether a device can be tried: with MuJoCo, if it is installed."""

    def tried(self, devices: Sequence[Device]) -> Tried:
        """Draws a frame on each, in processes of their own."""


class ThisMachine:
    """The machine, as the Python of a worker sees it."""

    _PYTHON: Final = Path(sys.executable)

    def devices(self) -> int:
        return count_devices(self._PYTHON)

    def has_osmesa(self) -> bool:
        return ctypes.util.find_library("OSMesa") is not None

    def can_try(self) -> bool:
        return importlib.util.find_spec("mujoco") is not None

    def tried(self, devices: Sequence[Device]) -> Tried:
        return try_devices(self._PYTHON, devices)


def choose_devices(wanted: str, machine: Machine, *, mujoco: bool = True) -> Choice:
    """Chooses what the slots of a worker draw on. May take seconds: devices are tried.

    Args:
        wanted: `render_device`.
        machine: What there is.
        mujoco: Whether MuJoCo is what draws, as far as that is known. If it is not, nothing is looked for by itself.

    Raises:
        UsageError: If nothing that was asked for draws here.
    """
    numbers = parse_devices(wanted)
    if numbers is not None:
        return _named(numbers, machine)
    if wanted == SOFTWARE:
        return _software(machine)
    return _any(machine) if mujoco else Choice()


def draw_here(wanted: str) -> None:
    """Has this process draw on the first device that is chosen; `auto` leaves that to MuJoCo.

    Args:
        wanted: `render_device`.

    Raises:
        UsageError: If nothing that was asked for draws here, or it comes too late.
    """
    backend = choose_backend()
    if wanted in ("", AUTO):
        return
    for device in choose_devices(wanted, ThisMachine()).chosen[:1]:
        if "mujoco" in sys.modules and device.backend != backend:
            raise UsageError(
                f"{Hint('render_device')} wants {device}, and MuJoCo is imported here already, with "
                f"{backend or 'glfw'}: set {BACKEND_VARIABLE}={device.backend} before that."
            )
        os.environ.update(device.variables)


def _named(numbers: Sequence[int], machine: Machine) -> Choice:
    devices = [Device("egl", number) for number in numbers]
    if not machine.can_try():
        return Choice(devices)
    count = machine.devices()
    there = [device for device in devices if device.number is not None and device.number < count]
    missing = NotDrawn(f"there is none of this number; EGL has {count} here")
    tried = {**dict.fromkeys(devices, missing), **machine.tried(there)}
    working = [device for device in devices if isinstance(tried[device], Drawn)]
    told = [f"{device} {tried[device]}." for device in devices if device not in working]
    if not working:
        raise UsageError(
            f"nothing that {Hint('render_device')} names draws where the worker runs: {' '.join(told)} "
            "`sparring doctor` lists what does."
        )
    return Choice(working, warnings=[f"{sentence} It is left alone." for sentence in told])


def _software(machine: Machine) -> Choice:
    if not machine.can_try():
        return Choice([OSMESA] if machine.has_osmesa() else ())
    tried = machine.tried([Device("egl", number) for number in range(machine.devices())])
    found = _same(tried, software=True)
    if found:
        return Choice(found, [OSMESA] if machine.has_osmesa() else ())
    if machine.has_osmesa() and isinstance(machine.tried([OSMESA])[OSMESA], Drawn):
        return Choice([OSMESA])
    raise UsageError(f"nothing draws in software where the worker runs; {advice()}.")


def _any(machine: Machine) -> Choice:
    backend = os.environ.get(BACKEND_VARIABLE, "").lower()
    if backend == "osmesa":
        return Choice([OSMESA])
    if backend != "egl":  # a window system's, another platform's, or none at all
        return Choice()
    named = os.environ.get(DEVICE_VARIABLE, "")
    if named.isdigit():
        return Choice([Device("egl", int(named))])
    spare = [OSMESA] if machine.has_osmesa() else []
    count = machine.devices()
    if count < 2 or not machine.can_try():  # there is nothing to choose from; should it break, it will be noticed
        return Choice([Device("egl", 0 if count == 1 else None)], spare)
    tried = machine.tried([Device("egl", number) for number in range(count)])
    found = _same(tried, software=False) or _same(tried, software=True)
    if not found:
        return Choice(spare or [Device("egl")])
    others = sorted(
        (device for device, drawn in tried.items() if isinstance(drawn, Drawn) and device not in found),
        key=lambda device: _is_software(tried[device]),
    )
    return Choice(found, [*others, *spare])


def _same(tried: Tried, *, software: bool) -> list[Device]:
    """Returns the devices that draw as the first of their kind does: those of another renderer have other pixels."""
    drawn = {device: found for device, found in tried.items() if isinstance(found, Drawn)}
    names = {device: found.name for device, found in drawn.items() if found.software == software}
    return [device for device, name in names.items() if name == next(iter(names.values()))]


def _is_software(found: Drawn | NotDrawn) -> bool:
    return isinstance(found, Drawn) and found.software

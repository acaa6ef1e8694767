"""Which devices slots draw on: of those that work, those that draw alike; and what becomes of one that kills slots.

The machine is made up: no machine of ours has two GPUs. What is asked of it is asked of a real one in
test_render_devices.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from sparring.env_worker.rendering.choice import Choice, choose_devices
from sparring.env_worker.rendering.device import DEVICE_VARIABLE, OSMESA, Device, parse_devices
from sparring.env_worker.rendering.devices import RenderDevices
from sparring.env_worker.rendering.probe import Drawn, NotDrawn
from sparring.protos.errors import UsageError

A100 = Drawn("NVIDIA Corporation", "NVIDIA A100/PCIe/SSE2", "4.6.0 NVIDIA 535.1", 1.0)
OLD = Drawn("NVIDIA Corporation", "NVIDIA T4/PCIe/SSE2", "4.6.0 NVIDIA 535.1", 2.0)
MESA = Drawn("Mesa/X.org", "llvmpipe (LLVM 15.0.6, 256 bits)", "4.5 Mesa 22.3.6", 20.0)
DEAD = NotDrawn("its driver was ended by SIGABRT")


class MadeUp:
    """A machine with these devices; counts how often one is tried."""

    def __init__(self, *found: Drawn | NotDrawn, osmesa: bool = True, mujoco: bool = True) -> None:
        self._found = found
        self._osmesa = osmesa
        self._mujoco = mujoco
        self.tries = 0

    def devices(self) -> int:
        return len(self._found)

    def has_osmesa(self) -> bool:
        return self._osmesa

    def can_try(self) -> bool:
        return self._mujoco

    def tried(self, devices: Sequence[Device]) -> Mapping[Device, Drawn | NotDrawn]:
        self.tries += len(devices)
        return {d: MESA if d.number is None else self._found[d.number] for d in devices}


def egl(*numbers: int) -> list[Device]:
    return [Device("egl", number) for number in numbers]


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUJOCO_GL", "egl")
    monkeypatch.delenv(DEVICE_VARIABLE, raising=False)


@pytest.mark.parametrize(
    ("found", "chosen", "spare"),
    [
        ((A100, A100, MESA), egl(0, 1), [*egl(2), OSMESA]),
        ((DEAD, A100, A100), egl(1, 2), [OSMESA]),
        ((MESA, A100, OLD), egl(1), [*egl(2), *egl(0), OSMESA]),  # what is of another renderer only where need is
        ((DEAD, MESA), egl(1), [OSMESA]),
        ((DEAD, DEAD), [OSMESA], []),
    ],
)
def test_auto_takes_gpus_that_draw_alike(
    found: Sequence[Drawn | NotDrawn], chosen: list[Device], spare: list[Device]
) -> None:
    choice = choose_devices("auto", MadeUp(*found))
    assert (list(choice.chosen), list(choice.spare)) == (chosen, spare)


def test_where_there_is_no_choice_nothing_is_tried() -> None:
    machine = MadeUp(DEAD)
    assert choose_devices("auto", machine) == Choice(egl(0), [OSMESA])
    assert choose_devices("auto", MadeUp(), mujoco=True).chosen == [Device("egl")]
    assert choose_devices("auto", MadeUp(A100, A100), mujoco=False) == Choice(), "nothing is known of what draws"
    assert machine.tries == 0


@pytest.mark.parametrize(("backend", "chosen"), [("osmesa", [OSMESA]), ("glfw", []), ("", [])])
def test_auto_leaves_what_is_set_as_it_is(monkeypatch: pytest.MonkeyPatch, backend: str, chosen: list[Device]) -> None:
    monkeypatch.setenv("MUJOCO_GL", backend)
    assert list(choose_devices("auto", MadeUp(A100, A100)).chosen) == chosen


def test_software_is_mesa() -> None:
    assert choose_devices("software", MadeUp(A100, MESA)).chosen == egl(1)
    assert choose_devices("software", MadeUp(A100)).chosen == [OSMESA]
    with pytest.raises(UsageError, match="nothing draws in software"):
        choose_devices("software", MadeUp(A100, osmesa=False))


def test_what_is_named_is_taken_and_nothing_else() -> None:
    choice = choose_devices("0, 2", MadeUp(A100, A100, MESA))
    assert (choice.chosen, choice.spare) == (egl(0, 2), ()), "the results will say that they differ"
    assert choose_devices("1", MadeUp(A100, mujoco=False)).chosen == egl(1), "it cannot be tried"


@pytest.mark.parametrize("text", ["-1", "gpu", "0;1", "0,", "1.5", "²"])
def test_what_is_no_device_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="must be auto, software"):
        parse_devices(text)


def test_slots_are_spread() -> None:
    devices = RenderDevices(Choice(egl(0, 2, 3)))
    assert [devices.of(slot) for slot in range(5)] == egl(0, 2, 3, 0, 2)
    assert RenderDevices().of(0) is None


def test_one_that_kills_is_left_at_once_where_others_draw_alike() -> None:
    devices = RenderDevices(Choice(egl(0, 1), [OSMESA]))
    assert devices.died_on(Device("egl", 0), "it died")
    assert devices.died_on(Device("egl", 0), "another slot on it died as well")
    assert [devices.of(slot) for slot in range(2)] == egl(1, 1)
    assert devices.is_left(Device("egl", 0))
    assert len(devices.warnings) == 1, "it is told once"


def test_the_only_one_has_a_second_chance_and_the_last_one_all_of_them() -> None:
    devices = RenderDevices(Choice(egl(0), [OSMESA]))
    assert devices.died_on(Device("egl", 0), "it died")
    assert devices.of(0) == Device("egl", 0)
    assert devices.died_on(Device("egl", 0), "it died")
    assert devices.of(0) == OSMESA
    assert not devices.died_on(OSMESA, "it died"), "then it is an error as any other"
    assert devices.of(0) == OSMESA


def test_what_breaks_last_is_not_left() -> None:
    devices = RenderDevices(Choice(egl(0, 1)))
    assert devices.leave(Device("egl", 0), "it broke")
    assert not devices.leave(Device("egl", 1), "it broke, too")
    assert not devices.leave(Device("egl", 1), "and is tried by each slot")
    assert not devices.is_left(Device("egl", 1))
    assert [devices.of(slot) for slot in range(2)] == egl(1, 1)
    assert devices.warnings == [
        "EGL device 0 is left alone: it broke. Slots draw on EGL device 1 from then on.",
        "EGL device 1 is not left alone, because there is nothing else to draw on: it broke, too. What it cannot draw "
        "are errors of episodes.",
    ]
    assert not devices.died_on(Device("egl", 1), "it died"), "an error as any other"


def test_robosuite_and_mujoco_have_one_name_for_a_device() -> None:
    variables = {"MUJOCO_GL": "egl", "PYOPENGL_PLATFORM": "egl", "MUJOCO_EGL_DEVICE_ID": "1"}
    assert Device("egl", 1).variables == variables
    assert OSMESA.variables == {"MUJOCO_GL": "osmesa", "PYOPENGL_PLATFORM": "osmesa"}

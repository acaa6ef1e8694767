"""Imports LeRobot without what a checkpoint does not need: other families, datasets, robots, and their libraries.

LeRobot's modules import each other at their tops, most of them for a type or for a function that is never called here:
whoever wants an ACT imports transformers, diffusers and all of LeRobot's datasets, which takes longer than loading its
weights. While LeRobot's own core is imported here, such modules are stood in for, and their names with them. A name
that is used after all (called, looked into, derived from) imports its module then, the real one, and is what it stands
for.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, Final

log = logging.getLogger(__name__)

_CORE: Final = (
    "lerobot.configs.policies",
    "lerobot.processor",
    "lerobot.policies.pretrained",
    "lerobot.policies.factory",
)
_PUT_OFF: Final = (
    "transformers",
    "diffusers",
    "datasets",
    "accelerate",
    "peft",
    "lerobot.configs.train",
    "lerobot.datasets",
    "lerobot.envs",
    "lerobot.robots",
    "lerobot.teleoperators",
    "lerobot.cameras",
    "lerobot.motors",
)
_ALSO: Final = ("packaging.version",)
"""What LeRobot (0.4) uses and has only because something else imports it."""
_FAMILIES: Final = "lerobot.policies"
_PARTS: Final = ("configuration", "processor", "modeling")


def import_light(family: str) -> bool:
    """Imports what a checkpoint of a family needs of LeRobot; returns whether that has come about.

    If not, nothing of LeRobot is imported: to import all of it is another matter.

    Args:
        family: As its configuration has it: "act".
    """
    if any(name.partition(".")[0] == "lerobot" for name in sys.modules):
        return False  # somebody has imported it already
    spec = importlib.util.find_spec("lerobot")
    roots = [Path(place) for place in (spec.submodule_search_locations or ())] if spec else []
    own = next((root / "policies" / family for root in roots if (root / "policies" / family).is_dir()), None)
    if own is None or not family.isidentifier() or not (own / f"configuration_{family}.py").is_file():
        return False
    try:
        with _put_off([*_PUT_OFF, *_families(own.parent)]):
            for name in (*_ALSO, *_CORE):
                importlib.import_module(name)
        for part in _PARTS:  # for real, as LeRobot itself would
            if (own / f"{part}_{family}.py").is_file():
                importlib.import_module(f"{_FAMILIES}.{family}.{part}_{family}")
    except Exception as error:  # noqa: BLE001  # a LeRobot that is made otherwise; what is wrong with it, the usual way says
        log.info("LeRobot is imported as a whole: %s: %s", type(error).__name__, error)
        for name in [name for name in sys.modules if name.partition(".")[0] == "lerobot"]:
            del sys.modules[name]
        return False
    _settle()
    return True


def import_all_families() -> None:
    """Imports what was put off of LeRobot's policies, so that it knows all their types and processor steps."""
    package = sys.modules.get(_FAMILIES)
    for value in list(vars(package).values()) if package is not None else ():
        if isinstance(value, _Name):
            value.real()
    _settle()


def _families(folder: Path) -> Sequence[str]:
    return [f"{_FAMILIES}.{entry.name}" for entry in folder.iterdir() if _has_config(entry)]


def _has_config(folder: Path) -> bool:
    return folder.is_dir() and any(folder.glob("configuration_*.py"))


class _Name:
    """Stands for a name of a module that is not imported yet."""

    def __init__(self, module: str, name: str) -> None:
        self._module = module
        self._name = name

    def real(self) -> Any:
        """Returns what it stands for."""
        module = importlib.import_module(self._module)
        if isinstance(module, _Module):
            raise ImportError(f"{self._module}.{self._name} is used where it was to be imported only")
        return getattr(module, self._name)

    @property
    def known(self) -> Any:
        """What it stands for, if its module is imported; else itself."""
        return getattr(sys.modules.get(self._module), self._name, self)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return getattr(self.real(), name)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self.real()(*arguments, **keywords)

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[Any, ...]:
        return (self.real(),)

    def __instancecheck__(self, instance: Any) -> bool:
        # Of a class whose module is not imported there are no instances.
        return self.known is not self and isinstance(instance, self.known)

    def __subclasscheck__(self, kind: type) -> bool:
        return self.known is not self and issubclass(kind, self.known)

    def __getitem__(self, item: Any) -> Any:
        return self.real()[item]

    def __or__(self, other: Any) -> Any:
        return Any

    __ror__ = __or__


class _Module(ModuleType):
    """Stands for a module that is not imported yet."""

    def __getattr__(self, name: str) -> Any:
        if name == "__version__" and "." not in self.__name__:  # by which LeRobot finds out whether it is installed
            return importlib.metadata.version(self.__name__)
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return _Name(self.__name__, name)


class _Finder(MetaPathFinder, Loader):
    """Finds stand-ins for modules that are put off."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = frozenset(names)

    def stands_for(self, name: str) -> bool:
        parts = name.split(".")
        return any(".".join(parts[: length + 1]) in self._names for length in range(len(parts)))

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if not self.stands_for(name):
            return None
        if "." not in name and PathFinder.find_spec(name) is None:
            return None  # it is not installed, and whoever asks is to know that
        return ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to run."""


@contextmanager
def _put_off(names: Sequence[str]) -> Iterator[None]:
    """Lets modules be stood in for, unless they are there already; afterwards nobody finds the stand-ins any more."""
    finder = _Finder(names)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name, module in sys.modules.items() if isinstance(module, _Module)]:
            module = sys.modules.pop(name)
            package, _, last = name.rpartition(".")
            if vars(sys.modules.get(package, module)).get(last) is module:
                delattr(sys.modules[package], last)


def _settle() -> None:
    """Puts names in LeRobot's modules in the place of their stand-ins, as far as they are imported by now."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "lerobot":
            for key, value in list(vars(module).items()):
                if isinstance(value, _Name):
                    setattr(module, key, value.known)

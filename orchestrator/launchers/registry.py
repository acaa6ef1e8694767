"""Finds launchers: one file or folder each beside this one, or an entry point of an installed package."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from functools import cache
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Any, Final

from sparring.orchestrator import launchers
from sparring.orchestrator.launchers.base import Launcher, LauncherBroken, LauncherSettings
from sparring.protos.errors import SparringError, unknown
from sparring.protos.plugins import entry_points_of

if TYPE_CHECKING:  # which have the launcher's settings in them
    from sparring.orchestrator.serving.hosting import ClusterHosting
    from sparring.orchestrator.settings import RunSettings

ENTRY_POINTS: Final = "sparring.launchers"
HERE: Final = "here"
"""Where a policy is hosted that is hosted beside its run."""


def get_launcher(name: str) -> Launcher[Any]:
    """Returns the launcher of that name.

    Raises:
        UsageError: If there is none, with the nearest names.
        SparringError: If it is one of an installed package that cannot be loaded.
    """
    found = all_launchers()
    if name not in found:
        raise unknown("launcher", name, found, hint="See: sparring ls launchers")
    launcher = found[name]
    if isinstance(launcher, SparringError):  # once more, for its traceback
        launcher = next(_load(point) for point in entry_points_of(ENTRY_POINTS) if point.name == name)
    if isinstance(launcher, SparringError):
        raise launcher
    return launcher


def hosting_of(run: RunSettings) -> ClusterHosting | None:
    """Returns what hosts the policy of a run on machines of a cluster; None: it is hosted here, or by somebody else.

    Raises:
        UsageError: If it cannot be hosted where it is to be.
    """
    where = run.policy.serve_on
    if where == HERE:
        return None
    able = {name: found for name, one in working_launchers().items() if (found := one.hosting(run)) is not None}
    if where not in able:
        raise unknown("place for a policy:", where, [HERE, *able])
    return able[where]


def hosting_settings_of(where: str) -> type[LauncherSettings]:
    """Returns the class of a place's own settings, for `serve_on`; of one that there is not, an empty one."""
    launcher = working_launchers().get(where)
    return LauncherSettings if launcher is None else launcher.hosting_settings


def working_launchers() -> dict[str, Launcher[Any]]:
    """Returns every launcher that can be loaded, ours first."""
    return {name: found for name, found in all_launchers().items() if isinstance(found, Launcher)}


@cache
def all_launchers() -> dict[str, Launcher[Any] | SparringError]:
    """Returns every launcher that can be named; in the place of one that cannot be loaded, why."""
    found: dict[str, Launcher[Any] | SparringError] = {kind.name: kind() for kind in _shipped()}
    for point in entry_points_of(ENTRY_POINTS):
        loaded = _load(point)
        if isinstance(loaded, SparringError):
            loaded.__cause__ = None  # this is kept for good, and so would be all that the callers of this have at hand
        found.setdefault(point.name, loaded)
    return found


def _shipped() -> Iterator[type[Launcher[Any]]]:
    for module_info in pkgutil.iter_modules(launchers.__path__, f"{launchers.__name__}."):
        module = importlib.import_module(module_info.name)
        for _, kind in inspect.getmembers(module, inspect.isclass):
            here = kind.__module__ == module.__name__ or kind.__module__.startswith(f"{module.__name__}.")
            if issubclass(kind, Launcher) and not inspect.isabstract(kind) and here:
                yield kind


def _load(point: EntryPoint) -> Launcher[Any] | SparringError:
    try:
        launcher = point.load()()
        if not isinstance(launcher, Launcher) or not issubclass(launcher.settings, LauncherSettings):
            raise TypeError("it is not a sparring Launcher with a class of LauncherSettings as its `settings`")
        if not issubclass(launcher.hosting_settings, LauncherSettings):
            raise TypeError("its `hosting_settings` are not a class of LauncherSettings")
        if not isinstance(launcher.summary, str):
            raise TypeError("its `summary` is no text")
        launcher.name = point.name  # that users know it by
    except (Exception, SystemExit) as error:  # noqa: BLE001  # somebody else's package; it is named when somebody asks for it
        broken = LauncherBroken(
            f"the launcher {point.name!r} ({point.value}) cannot be loaded: {type(error).__name__}: {error}. "
            "Repair or uninstall the package that brings it."
        )
        broken.__cause__ = error
        return broken
    return launcher

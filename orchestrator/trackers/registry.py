"""Finds trackers: one file each beside this one, or an entry point of an installed package."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from functools import cache
from importlib.metadata import EntryPoint
from typing import Any, Final

from sparring.orchestrator import trackers
from sparring.orchestrator.trackers.base import Tracker, TrackerBroken, TrackerSettings
from sparring.protos.errors import SparringError, unknown
from sparring.protos.plugins import entry_points_of

ENTRY_POINTS: Final = "sparring.trackers"


def get_tracker(name: str) -> type[Tracker[Any]]:
    """Returns the tracker of that name.

    Raises:
        UsageError: If there is none, with the nearest names, or it cannot be loaded.
    """
    shipped = _shipped()
    if name in shipped:
        return shipped[name]
    for point in entry_points_of(ENTRY_POINTS):
        if point.name == name:
            return _load(point)
    raise unknown("tracker", name, tracker_names(), hint="See: sparring ls trackers")


def tracker_names() -> list[str]:
    """Returns every tracker that can be named, ours first."""
    others = [point.name for point in entry_points_of(ENTRY_POINTS)]
    return list(dict.fromkeys([*_shipped(), *others]))


@cache
def _shipped() -> dict[str, type[Tracker[Any]]]:
    return {kind.name: kind for kind in _found()}


def _found() -> Iterator[type[Tracker[Any]]]:
    for module_info in pkgutil.iter_modules(trackers.__path__, f"{trackers.__name__}."):
        module = importlib.import_module(module_info.name)
        for _, kind in inspect.getmembers(module, inspect.isclass):
            if issubclass(kind, Tracker) and not inspect.isabstract(kind) and kind.__module__ == module.__name__:
                yield kind


def _load(point: EntryPoint) -> type[Tracker[Any]]:
    try:
        tracker = point.load()
        if not issubclass(tracker, Tracker) or not issubclass(tracker.settings, TrackerSettings):
            raise TypeError("it is not a class of sparring's Tracker with a class of TrackerSettings as its `settings`")
    except (Exception, SystemExit) as error:
        if isinstance(error, SparringError):
            raise
        raise TrackerBroken(
            f"the tracker {point.name!r} ({point.value}) cannot be loaded: {type(error).__name__}: {error}. "
            "Repair or uninstall the package that brings it."
        ) from error
    tracker.name = point.name  # that users know it by
    return tracker  # type: ignore[no-any-return]

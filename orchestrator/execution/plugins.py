"""Plug-ins: what is installed here and found by an entry point, and the packages that bring it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from sparring.env_worker.registry import ENTRY_POINTS as BENCHMARKS
from sparring.orchestrator.launchers.registry import ENTRY_POINTS as LAUNCHERS
from sparring.orchestrator.results.document_parts import RunPlugin
from sparring.orchestrator.trackers.registry import ENTRY_POINTS as TRACKERS
from sparring.protos.plugins import entry_points_of

_KINDS: Final[Mapping[Literal["benchmark", "launcher", "policy", "tracker"], str]] = {
    "benchmark": BENCHMARKS,
    "launcher": LAUNCHERS,
    "policy": "sparring.policies",
    "tracker": TRACKERS,
}


def plugins() -> list[RunPlugin]:
    """Returns every plug-in that is installed here. Loads none of them."""
    return [
        RunPlugin(
            kind=kind,
            name=point.name,
            value=point.value,
            package=None if point.dist is None else point.dist.name,
            version=None if point.dist is None else point.dist.version,
        )
        for kind, group in _KINDS.items()
        for point in entry_points_of(group)
    ]

"""Runs that are finished: their results, without loading anything or touching their folder."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Final

from sparring.orchestrator.results.document import RUN_FILE, read_document
from sparring.orchestrator.results.finite import finite
from sparring.orchestrator.results.results import Results
from sparring.orchestrator.settings import RunSettings, setting_fields
from sparring.protos.episode_rules import EpisodeRules
from sparring.protos.errors import UsageError

_DECIDING: Final = (
    "benchmark",
    "task",
    "benchmark_arg",
    "evaluations",
    "episodes",
    "seed",
    "policy",
    "policy_arg",
    "rename",
    "policy_server",
    *(rule.name for rule in fields(EpisodeRules)),
)
"""Settings that say what was evaluated on what: with the same ones, the results are those that there are."""


def finished_results(folder: Path) -> Results | None:
    """Returns the results in a folder if nothing is left to play: every episode has an outcome of the policy's own."""
    if not (folder / RUN_FILE).exists():
        return None
    try:
        results = Results.load(folder)
    except UsageError:  # whoever goes on with it says what is wrong
        return None
    return results if results.status == "finished" and not results.missing and not results.overall.errors else None


def finished_already(settings: RunSettings) -> Results | None:
    """Returns the results that settings ask for, if their folder has all of them."""
    folder = settings.output.folder
    results = None if folder is None else finished_results(folder)
    if results is None or folder is None:
        return None
    known, now, then = setting_fields(), finite(settings.flat()), finite(read_document(folder).settings)
    for name in _DECIDING:
        default = known[name].get_default(call_default_factory=True)
        if now[name] != then.get(name, list(default) if isinstance(default, tuple) else default):
            return None
    return results

"""Runs that are finished: their results, without loading anything or touching their folder."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from sparring.env_worker.registry import get_benchmark
from sparring.orchestrator.results.document import RUN_FILE, read_document
from sparring.orchestrator.results.finite import finite
from sparring.orchestrator.results.results import Results
from sparring.orchestrator.run.films import EVENT as FILM
from sparring.orchestrator.settings import RunSettings, setting_fields
from sparring.orchestrator.settings.run import fields_of
from sparring.orchestrator.settings.stopping import StopSettings
from sparring.protos.data_files import data_of, named_by
from sparring.protos.episode_rules import EpisodeRules
from sparring.protos.errors import UsageError
from sparring.protos.sources import sha256_of_file

_DECIDING: Final = (
    "benchmark",
    "task",
    "benchmark_arg",
    "evaluations",
    "protocol",
    "episodes",
    "policy_seeds",
    "seed",
    "policy",
    "policy_arg",
    "rename",
    "policy_server",
    *fields_of(StopSettings),
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
    return None if _films_to_make(settings, results, then) else results


def changed_files(results: Results) -> list[str]:
    """Returns the files that have other contents now than when the results were made.

    Looked at are the user's own source files and those that arguments name, by names and not by importing anything; one
    that is not found where the user is has not changed.
    """
    made: defaultdict[Path, set[str]] = defaultdict(set)
    others: dict[Path, bool] = {}
    for program in results.programs.values():
        for name, sha256 in program.files.items():
            places = (Path(place, name) for place in ("", *sys.path))
            made[next((path for path in places if path.is_file()), Path(name))].add(sha256)
        now = data_of(program.arguments, folders=True)
        for label, path in named_by(program.arguments):
            if label in now and label in program.data:
                others[path] = others.get(path, True) and now[label] != program.data[label]
    changed = [path for path, hashes in made.items() if _sha256(path) not in (None, *hashes)]
    return [str(path) for path in (*changed, *(path for path, differs in others.items() if differs))]


def _sha256(path: Path) -> str | None:
    try:
        return sha256_of_file(path) if path.is_file() else None
    except (OSError, ValueError):
        return None


def _films_to_make(settings: RunSettings, results: Results, then: Mapping[str, Any]) -> bool:
    """Returns whether films are wanted that are not there, and can be made of the actions that were kept."""
    output = settings.output
    if output.video == "none" or output.video_live or not (output.actions and then.get("actions")):
        return False
    again = {part.label for part in settings.plan.parts if get_benchmark(part.benchmark).replays}
    given_up = {event.episode for event in results.events if event.kind == FILM}
    return any(
        row.benchmark in again
        and not row.video
        and row.id not in given_up
        and output.wants_film(row.task, row.index, row.outcome, benchmark=row.benchmark)
        for row in results.rows
    )

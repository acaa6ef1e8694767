"""The conditions of a benchmark's episodes: what a recording of them keeps, and a replay is held against."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from sparring.env_worker.benchmark import Benchmark
from sparring.env_worker.registry import distribution_of, get_benchmark
from sparring.protos import evaluation_pb2 as pb
from sparring.protos.conditions import Conditions, plain
from sparring.protos.episode_rules import EpisodeRules
from sparring.protos.installing import OURS


def versions_of(benchmark: Benchmark) -> dict[str, str]:
    """Returns the versions of the packages that decide what a benchmark's simulators do, as installed here."""
    versions: dict[str, str] = {}
    for package in sorted({*benchmark.packages, distribution_of(benchmark.name)} - {OURS}):
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    return versions


def conditions_of(benchmark: Benchmark, settings: Any, rules: EpisodeRules, versions: Mapping[str, str]) -> Conditions:
    """Returns by what episodes are played.

    Args:
        benchmark: Whose they are.
        settings: The benchmark's own.
        rules: Of episodes.
        versions: `versions_of` the benchmark: to look them up takes milliseconds, and is done once.
    """
    own = {benchmark.assets.setting} if benchmark.assets is not None else set()  # a folder: another on each machine
    moving = [f.name for f in fields(settings) if not f.metadata.get("only_seen") and f.name not in own]
    return Conditions(
        settings={name: plain(getattr(settings, name)) for name in moving},
        rules=rules.that_move(),
        versions=versions,
    )


def assigned_conditions(assignment: pb.Assignment) -> Conditions | None:
    """Returns by what a worker's episodes are played; None if it is assigned to no benchmark."""
    if not assignment.benchmark:
        return None
    benchmark = get_benchmark(assignment.benchmark)
    settings = benchmark.read_settings(json.loads(assignment.benchmark_settings or "{}"))
    return conditions_of(benchmark, settings, EpisodeRules.from_message(assignment.rules), versions_of(benchmark))

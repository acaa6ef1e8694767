"""The conditions of a benchmark's episodes: what a recording of them keeps, and a replay is held against."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

from sparring.env_worker.benchmark import Benchmark
from sparring.env_worker.registry import distribution_of, get_benchmark, installed_versions
from sparring.protos import evaluation_pb2 as pb
from sparring.protos.conditions import Conditions, plain
from sparring.protos.episode_rules import EpisodeRules
from sparring.protos.installing import OURS


def conditions_of(benchmark: Benchmark, settings: Any, rules: EpisodeRules) -> Conditions:
    """Returns by what episodes are played.

    Args:
        benchmark: Whose they are.
        settings: The benchmark's own.
        rules: Of episodes.
    """
    own = {benchmark.assets.setting} if benchmark.assets is not None else set()  # a folder: another on each machine
    moving = [f.name for f in fields(settings) if not f.metadata.get("only_seen") and f.name not in own]
    deciding = {*benchmark.packages, distribution_of(benchmark.name)} - {OURS}
    return Conditions(
        settings={name: plain(getattr(settings, name)) for name in moving},
        rules=rules.that_move(),
        versions={package: found for package, found in installed_versions().items() if package in deciding},
    )


def assigned_conditions(assignment: pb.Assignment) -> Conditions | None:
    """Returns by what a worker's episodes are played; None if it is assigned to no benchmark."""
    if not assignment.benchmark:
        return None
    benchmark = get_benchmark(assignment.benchmark)
    settings = benchmark.read_settings(json.loads(assignment.benchmark_settings or "{}"))
    return conditions_of(benchmark, settings, EpisodeRules.from_message(assignment.rules))

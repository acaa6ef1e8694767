"""By which rules a run is really played."""

from __future__ import annotations

from sparring.env_worker.protocol import OURS, differences, in_effect, whole
from sparring.env_worker.registry import get_benchmark
from sparring.orchestrator.results.document_parts import RunProtocol
from sparring.orchestrator.settings import RunSettings
from sparring.orchestrator.settings.assets import benchmark_settings


def protocols_played(settings: RunSettings) -> dict[str, RunProtocol]:
    """Returns the rules of each part of a run, by its label: its protocol's, or ours with whatever else was set."""
    found = {}
    for part in settings.plan.parts:
        benchmark = get_benchmark(part.benchmark)
        named = whole(benchmark, OURS) if part.protocol is None else part.protocol.whole()
        played = in_effect(
            benchmark,
            named,
            seed=settings.plan.seed_of(part),
            settings=benchmark.read_settings(benchmark_settings(settings, part)),
            rules=settings.plan.rules_of(part),
        )
        found[part.label] = RunProtocol.of(played, [one.rule.name for one in differences(benchmark, named, played)])
    return found

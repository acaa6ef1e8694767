"""The protocols that run.json tells of: whether they are the rules that its settings play by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sparring.env_worker.benchmark import Benchmark
from sparring.env_worker.protocol import OURS, WholeProtocol, protocols_of, rules_of, value_of, whole
from sparring.env_worker.registry import get_benchmark
from sparring.orchestrator.replay.recorded_run import RecordedRun
from sparring.orchestrator.results.document_parts import RunProtocol
from sparring.orchestrator.settings import Evaluation
from sparring.protos.conditions import plain
from sparring.protos.episode_rules import EpisodeRules
from sparring.protos.errors import SparringError


def protocol_problems(run: RecordedRun) -> Iterator[str]:
    """Says in sentences where a protocol of run.json is not what the settings say: replays go by the settings.

    Only rules that this release knows are held against each other.

    Raises:
        UsageError: If the settings have no sense.
    """
    told = run.document.protocols
    if not told:
        return  # of an earlier release
    labels = {part.label for part in run.parts}
    for label in sorted(told.keys() ^ labels):
        yield f"run.json has {'a protocol' if label in told else 'no protocol'} of {label!r}, unlike its settings."
    for part in run.parts:
        if part.label in told:
            for problem in _problems(run, part, told[part.label]):
                yield f"run.json tells of the protocol {told[part.label].label} ({part.label}), and {problem}"


def _problems(run: RecordedRun, part: Evaluation, told: RunProtocol) -> Iterator[str]:
    named = OURS if part.protocol is None else part.protocol.whole()
    if (told.name, told.version) != (named.name, named.version):
        yield f"its settings have {named.name}@{named.version}."
    if told.layout != named.layout:
        yield f"its layout is {told.layout!r}, and by its settings {named.layout!r}."
    seed = run.plan.seed if part.seed is None else part.seed
    if told.seed != seed:
        yield f"its seed is {told.seed}, and by its settings {seed}."
    saved = run.document.settings
    rules = EpisodeRules().that_move()
    rules |= {name: saved[name] for name in rules if name in saved}
    yield from _others("rule", told.rules, {**rules, **part.rules})
    if (benchmark := _known(part)) is None:
        return
    if told.benchmark != benchmark.name:
        yield f"it is of {told.benchmark!r}."
        return
    yield from _others("setting", told.settings, _settings(benchmark, part))
    if part.protocol is not None:
        yield from _name_problems(benchmark, part.protocol.whole(), told)


def _name_problems(benchmark: Benchmark, named: WholeProtocol, told: RunProtocol) -> Iterator[str]:
    """Says where the name is that of other rules: who reads it looks no further."""
    known = protocols_of(benchmark).get(named.name)
    if known is not None and known.version == named.version and whole(benchmark, known).sha256 != named.sha256:
        yield "its settings have other rules by that name and version than the benchmark."
    played = WholeProtocol(**{name: getattr(told, name) for name in WholeProtocol.__dataclass_fields__})
    changed = {
        rule.name
        for place, rule in rules_of(benchmark).items()
        if (values := [value_of(played, place), value_of(named, place)])
        and None not in values
        and plain(values[0]) != plain(values[1])
    }
    if missing := sorted(changed - set(told.changed)):
        yield f"it does not say that it was played with other rules: {', '.join(missing)}."


def _others(kind: str, told: Mapping[str, Any], played: Mapping[str, Any]) -> Iterator[str]:
    for name in told.keys() & played.keys():
        if plain(told[name]) != plain(played[name]):
            yield f"its {kind} {name} is {told[name]!r}, and by its settings {played[name]!r}."


def _known(part: Evaluation) -> Benchmark | None:
    """Returns the benchmark, if it is one that is known here by its name; nothing is imported that a folder names."""
    try:
        return None if ":" in part.benchmark else get_benchmark(part.benchmark)
    except SparringError:
        return None  # who plays it says so


def _settings(benchmark: Benchmark, part: Evaluation) -> Mapping[str, Any]:
    try:
        read = benchmark.read_settings(part.benchmark_arg)
    except SparringError:
        return {}  # who plays it says so
    return {name: getattr(read, name) for name in benchmark.settings.__dataclass_fields__}

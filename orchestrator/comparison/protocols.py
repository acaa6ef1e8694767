"""The same policy by several protocols, in one run: what each comes to, and which rules may have moved the number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sparring.env_worker.protocol import ProtocolDifference, ProtocolRule, rules_of
from sparring.env_worker.registry import get_benchmark
from sparring.orchestrator.comparison.comparison import Comparison, compare
from sparring.orchestrator.plan import EpisodeId
from sparring.orchestrator.results.document_parts import RunProtocol
from sparring.orchestrator.results.results import Results
from sparring.orchestrator.results.row import EpisodeRow
from sparring.orchestrator.results.several_protocols import protocols_side_by_side
from sparring.protos.effect import Effect
from sparring.protos.errors import UsageError


@dataclass(frozen=True)
class ProtocolResult:
    """What a policy comes to by one of the protocols.

    Attributes:
        label: What this part of the run is called.
        protocol: By which it was played.
        results: Its episodes, as those of a run of their own.
        against: Held against the first protocol's; None: it is the first, or there is nothing to compare yet.
        differences: Rules that are otherwise than in the first.
        cut_off: Episodes that were lost to the first, which needed more steps for them than there are here.
        begins_alike: Whether episodes of a pair begin in the same state: the same of a list, or drawn by the same seed.
    """

    label: str
    protocol: RunProtocol
    results: Results
    against: Comparison | None
    differences: Sequence[ProtocolDifference]
    cut_off: int
    begins_alike: bool = True

    def to_json(self) -> dict[str, Any]:
        """Returns its form in `--json`."""
        return {
            "protocol": self.protocol.label,
            "sha256": self.protocol.sha256,
            **self.results.overall.to_json(),
            "against_the_first": None if self.against is None else self.against.to_json(),
            "differences": [
                {"rule": one.rule.name, "first": one.first, "here": one.second, "effect": one.effect}
                for one in self.differences
            ],
            "cut_off": self.cut_off,
            "begins_alike": self.begins_alike,
        }


def side_by_side(results: Results) -> list[ProtocolResult]:
    """Returns what came of each protocol, where a run has played the same tasks by several; else nothing.

    Pairs are episodes of the same task and number: they begin in the same state, where protocols have the same states.
    """
    labels = protocols_side_by_side(results)
    owners = {results.protocols[label].benchmark for label in labels}
    parts = [_alone(results, label, owners) for label in labels]
    states = {label: [task.initial_states for task in results.plan.tasks[label]] for label in labels}
    found = []
    for label, part in zip(labels, parts, strict=True):
        protocols = results.protocols[labels[0]], results.protocols[label]
        against = None if label == labels[0] else _compared(parts[0], part)
        cut_off = 0 if against is None else _cut_off(parts[0], part, against)
        drawn = 0 in states[label]  # by the seed, where there is no list of them
        alike = states[label] == states[labels[0]] and not (drawn and protocols[0].seed != protocols[1].seed)
        found.append(ProtocolResult(label, protocols[1], part, against, list(_differences(*protocols)), cut_off, alike))
    return found


def _alone(results: Results, label: str, owners: set[str]) -> Results:
    """Returns a part of a run as a run of its own, whose episodes have the names and seeds that all parts have."""
    (owner,) = owners
    rows = [
        replace(row, benchmark=owner, seed=results.plan.round_of(row.index))
        for row in results.rows
        if row.benchmark == label
    ]
    plan = replace(results.plan, tasks={owner: results.plan.tasks[label]}, seed=0, seeds={})
    return replace(results, plan=plan, rows=rows, settings={}, protocols={}, events=[])


def _compared(first: Results, second: Results) -> Comparison | None:
    try:
        return compare(first, second, force=True)  # rules, initial states and all: what differs is told below the table
    except UsageError:  # nothing is judged yet, or all ended in errors
        return None


def _cut_off(first: Results, second: Results, against: Comparison) -> int:
    there, here = (_by_id(run.rows) for run in (first, second))
    lost = [id for id, won in against.flipped if not won]
    return sum(there[id].steps > here[id].steps for id in lost)


def _by_id(rows: Sequence[EpisodeRow]) -> dict[EpisodeId, EpisodeRow]:
    return {row.id: row for row in rows}


def _differences(first: RunProtocol, second: RunProtocol) -> Iterator[ProtocolDifference]:
    known = _rules(first.benchmark)
    places = {"seed": (first.seed, second.seed), "layout": (first.layout, second.layout)}
    for kind in ("settings", "rules", "conventions"):
        values = getattr(first, kind), getattr(second, kind)
        for name in {**values[0], **values[1]}:
            places[f"{kind}.{name}"] = values[0].get(name), values[1].get(name)
    for place, (there, here) in places.items():
        if there != here:
            name = place.rpartition(".")[2]
            yield ProtocolDifference(known.get(place, ProtocolRule(name, name, Effect())), there, here)


def _rules(benchmark: str) -> dict[str, ProtocolRule]:
    try:
        return rules_of(get_benchmark(benchmark))
    except UsageError:  # a user's own, which is not here: rules are known by their names
        return {}

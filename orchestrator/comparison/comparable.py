"""Whether two runs may be compared: what moves a score, and is not the policy, must be the same in both."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

from sparring.orchestrator.results.document_parts import RunProtocol
from sparring.orchestrator.results.results import Results
from sparring.orchestrator.results.several_protocols import protocols_side_by_side
from sparring.protos.advice import Hint
from sparring.protos.episode_rules import EpisodeRules, meaning
from sparring.protos.errors import UsageError

_OURS: Final = ("sparring", "grpcio", "protobuf", "python", "av")
"""Packages of a worker that decide nothing about what a simulator does."""

_KINDS: Final = ("settings", "rules", "conventions")
"""Of what protocols are made, beside the seed and the layout."""


class NotComparable(UsageError):
    """Two runs differ in something that moves a score and is not the policy.

    Args:
        found: What that is, in sentences.
    """

    def __init__(self, found: Sequence[str]) -> None:
        super().__init__(
            "these runs are not comparable: what moves a score is not the same in both:\n"
            + "\n".join(f"  {sentence}" for sentence in found)
            + f"\n{Hint('force')} compares them all the same, and the result says so."
        )
        self.found = found


def obstacles(first: Results, second: Results) -> list[str]:
    """Returns, in sentences, what makes two runs not comparable; empty if nothing does."""
    return [
        *_protocols(first, second),
        *_rules(first, second),
        *_arguments(first, second),
        *_states(first, second),
        *_versions(first, second),
    ]


def refuse_obstacles(found: Sequence[str], *, force: bool) -> None:
    """Refuses runs that are not comparable, unless the user wants it all the same.

    Raises:
        NotComparable: With what makes them so.
    """
    if found and not force:
        raise NotComparable(found)


def refuse_several_protocols(first: Results, second: Results, tasks: Collection[tuple[str, str]]) -> None:
    """Refuses to compare episodes by several protocols together: by the rules of none, and no independent pairs.

    Args:
        first: One run.
        second: The other.
        tasks: Benchmark and name of each task that both have.

    Raises:
        UsageError: With how to compare one of them.
    """
    common = {benchmark for benchmark, _ in tasks}
    for run in (first, second):
        labels = [label for label in protocols_side_by_side(run) if label in common]
        if len(labels) > 1:
            raise UsageError(
                f"these runs have played the same tasks by several protocols ({', '.join(labels)}): a difference of "
                "all of them together would be by the rules of none, and one episode would count several times. "
                f"Compare one at a time, such as {Hint('tasks', value=labels[0])}."
            )


def _protocols(first: Results, second: Results) -> Iterator[str]:
    """Says which rules differ; those of a run by an earlier release are known by its settings only."""
    for label in _known_in_both(first, second):
        there, here = first.protocols[label], second.protocols[label]
        if there.sha256 == here.sha256 or there.benchmark != here.benchmark:
            continue
        if there.name == here.name and all(_same(kind, there, here) for kind in (*_KINDS, "layout")):
            continue  # another seed: other episodes by the same rules
        yield f"{label} was played by {there.label} ({there.sha256[:12]}) and by {here.label} ({here.sha256[:12]})."
        for kind in _KINDS:
            if _same(kind, there, here):
                continue
            values = getattr(there, kind), getattr(here, kind)
            for name in sorted(values[0].keys() | values[1].keys()):
                said = [side.get(name, "not known") for side in values]
                if said[0] != said[1]:
                    yield f"{label}, {name}: {_two(name, said)}."


def _same(kind: str, there: RunProtocol, here: RunProtocol) -> bool:
    """Returns whether two protocols have the same rules of a kind, as far as both say."""
    values = getattr(there, kind), getattr(here, kind)
    return values[0] == values[1] or (kind == "conventions" and not all(values))


def _known_in_both(first: Results, second: Results) -> list[str]:
    return sorted(first.protocols.keys() & second.protocols.keys())


def _rules(first: Results, second: Results) -> Iterator[str]:
    if _known_in_both(first, second):
        return
    for rule in fields(EpisodeRules):
        if rule.metadata["moves"]:
            values = [run.settings.get(rule.name, rule.default) for run in (first, second)]
            if values[0] != values[1]:
                yield f"{rule.name}: {_two(rule.name, values)}."


def _two(rule: str, values: Sequence[Any]) -> str:
    return " and ".join(f"{value}{meaning(rule, value)}" for value in values)


def _arguments(first: Results, second: Results) -> Iterator[str]:
    there, here = (_arguments_of(run) for run in (first, second))
    for label in sorted(there.keys() & here.keys()):
        told = {name for run in (first, second) if label in run.protocols for name in run.protocols[label].settings}
        told = told if label in _known_in_both(first, second) else set()
        for name in sorted((there[label].keys() | here[label].keys()) - told):
            values = [side[label].get(name, "its default") for side in (there, here)]
            if values[0] != values[1]:
                yield f"{label}, {name}: {values[0]} and {values[1]}."


def _arguments_of(run: Results) -> dict[str, Mapping[str, Any]]:
    """Returns the settings of each benchmark of a run, by what it is called there."""
    evaluations = run.settings.get("evaluations") or []
    found = {part.get("name") or part["benchmark"]: part.get("benchmark_arg") or {} for part in evaluations}
    if not found and run.settings.get("benchmark"):
        found = {run.settings["benchmark"]: run.settings.get("benchmark_arg") or {}}
    return {label.replace(":", "."): arguments for label, arguments in found.items()}


def _states(first: Results, second: Results) -> Iterator[str]:
    there, here = (
        {(benchmark, task.name): task.initial_states for benchmark, task in run.plan.labels().values()}
        for run in (first, second)
    )
    for benchmark, task in sorted(there.keys() & here.keys()):
        values = there[benchmark, task], here[benchmark, task]
        if values[0] != values[1]:
            yield f"{task}: {values[0]} and {values[1]} initial states."


def _versions(first: Results, second: Results) -> Iterator[str]:
    there, here = (_versions_of(run) for run in (first, second))
    for key in sorted(there.keys() & here.keys()):
        if there[key] != here[key]:
            benchmark, package = key
            yield f"{package} of {benchmark}: {' and '.join(sorted(there[key]))}, {' and '.join(sorted(here[key]))}."


def _versions_of(run: Results) -> dict[tuple[str, str], set[str]]:
    """Returns the versions that the workers of each benchmark had of each package."""
    found: dict[tuple[str, str], set[str]] = {}
    for benchmark, maker in sorted({(row.benchmark, row.maker) for row in run.rows if row.maker in run.makers}):
        for package, version in run.makers[maker].versions.get("worker", {}).items():
            if package not in _OURS:
                found.setdefault((benchmark, package), set()).add(version)
    return found

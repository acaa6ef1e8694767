"""The plan of a recorded run: whether run.json says the same of it everywhere, and the journal, too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sparring.env_worker.registry import get_benchmark
from sparring.orchestrator.replay.recorded_run import RecordedRun
from sparring.orchestrator.results.finite import finite
from sparring.orchestrator.settings import Evaluation
from sparring.protos.episode_rules import EpisodeRules
from sparring.protos.errors import SparringError


def plan_problems(run: RecordedRun, identity: object = None) -> Iterator[str]:
    """Says in sentences where the plan is not what the settings, or the journal, say that was to be done.

    A run that is smaller everywhere is another run, and cannot be told from one.

    Args:
        run: Which.
        identity: What the journal has of it, which it is tied to; None: there is none.

    Raises:
        UsageError: If its settings have no sense.
    """
    document, plan = run.document, run.plan
    for name, planned in (("seed", plan.seed), ("episodes", document.episodes), ("policy_seeds", plan.repeats)):
        if name in document.settings and document.settings[name] != planned:
            yield f"run.json has the {name} {document.settings[name]!r} in its settings, and {planned} in its plan."
    seeds = {part.label: part.seed for part in run.parts if part.seed is not None}
    if seeds != plan.seeds:
        yield f"run.json has the seeds {seeds!r} of evaluations in its settings, and {dict(plan.seeds)!r} in its plan."
    tasks = {label: [task.name for task in found] for label, found in plan.tasks.items()}
    for part in run.parts:
        selected, planned_tasks = _selected(part), tasks.get(part.label, [])
        if selected is not None and selected != set(planned_tasks):
            which = ", ".join(sorted(selected ^ set(planned_tasks))[:3])
            yield f"the plan has other tasks of {part.label} than its settings select ({part.task}): {which}."
    if identity is None:
        return
    arguments = {part.label: dict(part.benchmark_arg) for part in run.parts}
    told: Mapping[str, Any] = {
        **{name: document.settings[name] for name in EpisodeRules().that_move() if name in document.settings},
        "tasks": tasks,
        "benchmark_arg": arguments,
        "episodes": document.episodes,
        "seed": plan.seed,
        "policy_seeds": plan.repeats,
        "seeds": dict(plan.seeds),
        "rules": {part.label: dict(part.rules) for part in run.parts if part.rules},
        "benchmarks": {part.label: part.benchmark for part in run.parts if part.name},
        "protocols": {
            part.label: f"{part.protocol.whole().label} {part.protocol.sha256}" for part in run.parts if part.protocol
        },
    }
    # The journal has the last three only if there is something to say.
    tied = {"rules": {}, "benchmarks": {}, "protocols": {}, **identity} if isinstance(identity, Mapping) else {}
    for name, value in told.items():
        if name in tied and finite(tied[name]) != finite(value):
            yield f"run.json has another plan than the journal: {name}."


def _selected(part: Evaluation) -> set[str] | None:
    """Returns the tasks that settings select; None: only code that the run names could tell."""
    if ":" in part.benchmark:
        return None
    try:
        return {task.name for task in get_benchmark(part.benchmark).tasks(part.task)}
    except SparringError:
        return None  # it is not here, or has no such task: who plays it says so

"""Makes the plan that settings ask for, and says what of them decides its numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sparring.env_worker.benchmark import Task, asking
from sparring.env_worker.registry import get_benchmark
from sparring.orchestrator.plan import Plan
from sparring.orchestrator.settings import RunSettings
from sparring.orchestrator.settings.assets import benchmark_settings
from sparring.orchestrator.settings.plan import Evaluation
from sparring.protos.advice import Hint
from sparring.protos.errors import UsageError


def make_plan(settings: RunSettings) -> Plan:
    """Makes the plan that settings ask for.

    Raises:
        UsageError: If a benchmark, a task or a setting of a benchmark is unknown.
    """
    tasks: dict[str, Sequence[Task]] = {}
    for part in settings.plan.parts:
        benchmark = get_benchmark(part.benchmark)
        own = benchmark.read_settings(benchmark_settings(settings, part))
        with asking(part.benchmark, "tasks()"):
            tasks[part.label] = list(benchmark.planned(benchmark.tasks(part.task), own))
        _check_tasks(part, tasks[part.label])
    used = {part.benchmark: get_benchmark(part.benchmark).assets for part in settings.plan.parts}
    if settings.worker.assets is not None and not any(used.values()):
        raise UsageError(f"{Hint('assets')} is of no use here: {' and '.join(used)} has none.")
    plan = settings.plan
    seeds = {part.label: part.seed for part in plan.parts if part.seed is not None}
    return Plan(tasks, plan.episodes, plan.seed, repeats=plan.policy_seeds, seeds=seeds)


def _check_tasks(part: Evaluation, tasks: Sequence[object]) -> None:
    """Checks what a benchmark, which may be anybody's, returned as its tasks.

    Raises:
        UsageError: If that is none, or something else.
    """
    whose = f"tasks() of the benchmark {part.benchmark!r}"
    if not tasks:
        raise UsageError(
            f"{whose} found nothing by the name {part.task!r}; it is to return tasks, or to refuse a name."
        )
    for task in tasks:
        if not isinstance(task, Task):
            raise UsageError(
                f"{whose} returned {task!r:.100}, and not tasks; docs/benchmarks.md shows one that is whole."
            )


def identity(settings: RunSettings, plan: Plan) -> dict[str, Any]:
    """Returns what decides a run's numbers, beside the policy, and so what must be equal to go on in a folder.

    How many slots, which launcher, where the server is and what is filmed is not part of it.
    """
    parts = settings.plan.parts
    named = {part.label: part.benchmark for part in parts if part.name}
    rules = {part.label: part.rules for part in parts if part.rules}
    protocols = {part.label: part.protocol for part in parts if part.protocol is not None}
    return {
        "tasks": {benchmark: [task.name for task in tasks] for benchmark, tasks in plan.tasks.items()},
        "benchmark_arg": {part.label: dict(part.benchmark_arg) for part in parts},
        **({"benchmarks": named} if named else {}),  # folders of earlier releases know of no names
        **({"seeds": dict(plan.seeds)} if plan.seeds else {}),
        **({"rules": rules} if rules else {}),
        "protocols": {label: f"{found.whole().label} {found.sha256}" for label, found in protocols.items()},
        "episodes": plan.episodes,
        "seed": plan.seed,
        "policy_seeds": plan.repeats,
        **settings.plan.rules.that_move(),
    }

"""What a benchmark of your own can be held against: `check_benchmark()`, `sparring check benchmark`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from sparring.env_worker.benchmark import Benchmark
from sparring.env_worker.compliance import catalogue, episodes, observations
from sparring.env_worker.compliance.subject import EPISODES, STEPS, Subject
from sparring.env_worker.gl import choose_backend
from sparring.env_worker.registry import get_benchmark
from sparring.protos.advice import Hint
from sparring.protos.errors import UsageError
from sparring.protos.rules import Verdict, judge, raise_failures

RULES_OF_A_BENCHMARK: Final[tuple[Callable[[Benchmark], None], ...]] = catalogue.RULES
RULES_OF_A_TASK: Final[tuple[Callable[[Subject], None], ...]] = (*observations.RULES, *episodes.RULES)


def check_benchmark(
    benchmark: str | Benchmark,
    *,
    task: str = "",
    episodes: int = EPISODES,
    steps: int = STEPS,
    settings: Mapping[str, Any] | None = None,
) -> list[Verdict]:
    """Holds a benchmark against everything that Sparring relies on; for the tests of your own.

    Args:
        benchmark: Its name, or an object of it.
        task: Which tasks to try, as for --task; by default that of its smoke test, else the first of its first group.
        episodes: How many episodes of each task are compared.
        steps: How many steps of each, at most.
        settings: What --benchmark-arg takes.

    Returns:
        A verdict for each rule; none of them failed.

    Raises:
        CheckFailed: If a rule does not hold, with every one that does not and how to see it.
        UsageError: If there is no such benchmark, task or setting, or what it needs is not installed.
    """
    found = get_benchmark(benchmark) if isinstance(benchmark, str) else benchmark
    verdicts = verdicts_of(found, task=task, episodes=episodes, steps=steps, settings=settings)
    return raise_failures(f"the benchmark {found.name!r}", verdicts)


def verdicts_of(
    benchmark: Benchmark,
    *,
    task: str = "",
    episodes: int = EPISODES,
    steps: int = STEPS,
    settings: Mapping[str, Any] | None = None,
) -> Iterator[Verdict]:
    """Yields the verdict of each rule, as it is reached; arguments as for `check_benchmark`."""
    choose_backend()
    if missing := benchmark.missing():
        raise UsageError(f"the benchmark {benchmark.name!r} needs {', '.join(missing)}, not installed in this Python.")
    arguments = dict(settings or {})
    resolved = benchmark.read_settings(arguments)
    selected = benchmark.tasks(task or default_task(benchmark))
    for rule in RULES_OF_A_BENCHMARK:
        yield judge(rule, benchmark)
    benchmark.prepare(resolved)
    for one in selected:
        subject = Subject(benchmark, one, resolved, arguments, episodes=episodes, steps=steps)
        try:
            for of_a_task in RULES_OF_A_TASK:
                verdict = judge(of_a_task, subject)
                yield verdict if len(selected) == 1 else replace(verdict, rule=f"{one.name}: {verdict.rule}")
        finally:
            subject.close()


def default_task(benchmark: Benchmark) -> str:
    """Returns the task that is tried where none is named.

    Raises:
        UsageError: If the benchmark says nothing of any.
    """
    if benchmark.smoke is not None:
        return benchmark.smoke.task
    for names in benchmark.groups().values():
        return names[0]
    raise UsageError(f"the benchmark {benchmark.name!r} has no list of tasks; name one with {Hint('task')}.")

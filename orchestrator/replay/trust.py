"""What a result folder may have run on the machine of whoever plays it again: nothing but benchmarks that are there.

A folder or a bundle may be anybody's, and so may the names in it. A benchmark that is installed is played by its name.
`module:Class`, and tasks that name modules, would import what lies in the current folder, the downloaded one included:
that is for users to allow, by name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from sparring.env_worker.benchmark import Task
from sparring.env_worker.registry import get_benchmark
from sparring.orchestrator.settings import Evaluation
from sparring.protos.advice import Hint
from sparring.protos.comma_list import comma_list
from sparring.protos.errors import UsageError


class NotTrusted(UsageError):
    """A recorded run names code that its reader has not allowed."""


def check_trusted(
    parts: Sequence[Evaluation], tasks: Mapping[str, Sequence[Task]], trusted: Collection[str] = ()
) -> None:
    """Checks that playing a recorded run again imports nothing that it names itself, before anything is imported.

    Args:
        parts: What it says that was evaluated.
        tasks: Of its plan, by the labels of its parts.
        trusted: Names that the user has allowed.

    Raises:
        NotTrusted: If it would, with what that is and how to allow it.
        UsageError: If a benchmark is not installed here, or the plan is of a part that there is not.
    """
    labels = {part.label for part in parts}
    if strangers := sorted(tasks.keys() - labels):
        raise UsageError(
            f"run.json is damaged: its plan has tasks of {strangers[0]!r}, which its settings do not know."
        )
    for part in parts:
        for name, what in _named(part, tasks.get(part.label, ())):
            if name not in trusted:
                raise NotTrusted(
                    f"this run names code of its own, and playing it again would run that here: {what}. Result folders "
                    "and bundles are trusted with nothing, and the module may be one beside you that came with them. "
                    f"If it is code that you know, allow it: {Hint('trust_benchmark', value=name)}"
                )


def _named(part: Evaluation, tasks: Sequence[Task]) -> Iterator[tuple[str, str]]:
    """Returns what would be run, by the name that allows it, and in words."""
    if ":" in part.benchmark:
        module = part.benchmark.partition(":")[0]
        yield part.benchmark, f"the benchmark {part.benchmark!r} is a class of the module {module!r}"
        return  # who trusts it trusts it with its tasks
    benchmark = get_benchmark(part.benchmark)
    names = dict.fromkeys([*(task.name for task in tasks), *comma_list(part.task)])
    for name in names:
        if module := benchmark.module_named_by(name):
            yield module, f"the task {name!r} of the benchmark {part.benchmark!r} imports the module {module!r}"
    if given := [name for name in benchmark.code_settings if part.benchmark_arg.get(name)]:
        told = ", ".join(f"{name}={part.benchmark_arg[name]!r}" for name in given)
        yield part.benchmark, f"the benchmark {part.benchmark!r} hands {told} to code that the task names"

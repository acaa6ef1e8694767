"""Rules about what a benchmark says of itself. They need no simulator, but for one whose tasks have no list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Final

from sparring.env_worker.benchmark import Benchmark
from sparring.protos.errors import UsageError
from sparring.protos.rules import NotApplicable, broken, expect

_NOBODY: Final = "no-such-task-as-this"


def groups_name_tasks_that_there_are(benchmark: Benchmark) -> None:
    """A group's tasks are those that selecting it gives, each once, in its order."""
    groups = benchmark.groups()
    if not groups:
        raise NotApplicable("it has no groups.")
    for group, names in groups.items():
        expect(names, f"the group {group!r} has no tasks.")
        chosen = [task.name for task in benchmark.tasks(group)]
        expect(
            chosen == list(names),
            f"groups() says that {group!r} is {_few(names)}; tasks({group!r}) gives {_few(chosen)}.",
        )
        expect(len(set(chosen)) == len(chosen), f"tasks({group!r}) gives a task twice.")


def a_task_s_name_selects_it(benchmark: Benchmark) -> None:
    """A task is selected by its own name, and nothing else is; it has a sentence."""
    names = {name for group in benchmark.groups().values() for name in group}
    if not names:
        raise NotApplicable("it has no groups to take names from.")
    for name in sorted(names):
        chosen = benchmark.tasks(name)
        expect([task.name for task in chosen] == [name], f"tasks({name!r}) gives {_few([t.name for t in chosen])}.")
        expect(chosen[0].instruction, f"the task {name!r} has no sentence.")


def a_list_selects_each_task_once(benchmark: Benchmark) -> None:
    """A comma list selects what is in it, each task once."""
    first = next(iter(benchmark.groups()), None)
    if first is None:
        raise NotApplicable("it has no groups.")
    once, twice = ([task.name for task in benchmark.tasks(s)] for s in (first, f"{first}, {first}"))
    expect(once == twice, f"tasks('{first}, {first}') gives {_few(twice)}, not {_few(once)}.")


def an_unknown_task_is_refused(benchmark: Benchmark) -> None:
    """An unknown task is refused with a UsageError that names it: by tasks(), or by make() where there is no list."""

    def ask() -> None:
        task = benchmark.tasks(_NOBODY)[0]
        if not benchmark.groups():
            benchmark.make(task, benchmark.read_settings({})).close()

    _refused(ask, f"the task {_NOBODY!r}", naming=_NOBODY)


def an_empty_selection_is_refused(benchmark: Benchmark) -> None:
    """A selection of nothing is refused with a UsageError."""
    _refused(lambda: benchmark.tasks(" , "), "the selection ' , '")


def settings_have_defaults_and_types(benchmark: Benchmark) -> None:
    """Settings are a frozen dataclass with defaults; unknown ones and wrong types are refused with a UsageError."""
    kind = benchmark.settings
    expect(is_dataclass(kind) and kind.__dataclass_params__.frozen, "settings is not a frozen dataclass.")  # type: ignore[attr-defined]
    defaults = benchmark.read_settings({})
    _refused(lambda: benchmark.read_settings({"no_such_setting": 1}), "the setting no_such_setting=1", "no_such")
    for one in fields(kind):
        if isinstance(getattr(defaults, one.name), (bool, int, float, str)):
            wrong = {one.name: ["not", "of", "this", "type"]}
            _refused(partial(benchmark.read_settings, wrong), f"a list as {one.name}", one.name)


RULES: Final = (
    groups_name_tasks_that_there_are,
    a_task_s_name_selects_it,
    a_list_selects_each_task_once,
    an_unknown_task_is_refused,
    an_empty_selection_is_refused,
    settings_have_defaults_and_types,
)


def _refused(ask: Callable[[], object], what: str, naming: str = "") -> None:
    try:
        ask()
    except UsageError as refusal:
        expect(naming in refusal.sentence, f"{what} is refused, but the sentence does not name it: {refusal.sentence}")
        expect(" " in refusal.sentence, f"{what} is refused without a sentence: {refusal.sentence}")
        return
    except Exception as error:  # noqa: BLE001  # somebody else's, which raises what it pleases
        broken(f"{what} is refused with {type(error).__name__} ({error}) in place of a UsageError.")
    broken(f"{what} is taken.")


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (f", … ({len(names)})" if len(names) > 4 else "") or "nothing"

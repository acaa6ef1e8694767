"""A benchmark's list of tasks, and the selections that all benchmarks read alike."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sparring.env_worker.benchmark import Task
from sparring.protos.comma_list import comma_list
from sparring.protos.errors import UsageError, unknown


@dataclass(frozen=True)
class TaskTable:
    """A fixed list of tasks with groups, and the selections one can make of it.

    A selection is a comma list. Each part of it is a task (`reach-v3`), a group (`mt10`), a task of a group by its
    place, counted from 0 (`mt10/3`), or a range of places, first and last (`mt10/0-4`).

    Attributes:
        benchmark: Its name.
        instructions: The sentence of each task.
        groups: The tasks of each group.
        prefixes: Stripped from names, for people who come from tools that add them.
        aliases: Names that stand for a selection.
        initial_states: How many official initial states every task has.
        max_steps: After how many steps a task's episodes are truncated, where that is known.
    """

    benchmark: str
    instructions: Mapping[str, str]
    groups: Mapping[str, Sequence[str]]
    prefixes: Sequence[str] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    initial_states: int = 0
    max_steps: Mapping[str, int] = field(default_factory=dict)

    def select(self, selection: str) -> list[Task]:
        """Returns the tasks of a selection, each once, in the order they are named.

        Raises:
            UsageError: If something in it is unknown or out of range.
        """
        chosen: dict[str, Task] = {}
        for part in comma_list(selection):
            for named in comma_list(self.aliases.get(part, part)):
                for task in self._part(named):
                    chosen.setdefault(task.name, task)
        if not chosen:
            raise UsageError(f"no task was named; see: sparring ls tasks --benchmark {self.benchmark}")
        return list(chosen.values())

    def _part(self, part: str) -> list[Task]:
        named = self._stripped(part)
        group, slash, places = named.rpartition("/")
        if named in self.groups:
            return [self._task(name, part, number) for number, name in enumerate(self.groups[named])]
        if named in self.instructions:
            if named in self.groups.get(group, ()):  # its name says which group it is of
                return [self._task(named, group, self.groups[group].index(named))]
            return [self._task(named, part, 0)]
        if slash and group in self.groups:
            return [self._task(self.groups[group][place], group, place) for place in self._places(group, places)]
        raise unknown(
            f"task or group of {self.benchmark}:",
            part,
            [*self.groups, *self.aliases, *self.instructions],
            hint=f"See: sparring ls tasks --benchmark {self.benchmark}",
        )

    def _places(self, group: str, places: str) -> range:
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", places)
        if match is None:
            raise UsageError(f"cannot read '{group}/{places}'; write {group}/3 or {group}/0-4.")
        first = int(match[1])
        last = first if match[2] is None else int(match[2])
        if first > last or last >= len(self.groups[group]):
            raise UsageError(
                f"'{group}/{places}' is out of range; {group} has tasks 0 to {len(self.groups[group]) - 1}."
            )
        return range(first, last + 1)

    def _task(self, name: str, group: str, number: int) -> Task:
        return Task(
            name, self.instructions[name], group, self.initial_states, number, max_steps=self.max_steps.get(name, 0)
        )

    def _stripped(self, name: str) -> str:
        for prefix in self.prefixes:
            name = name.removeprefix(prefix)
        return name

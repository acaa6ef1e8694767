"""What a selection of tasks means, for every benchmark alike."""

from __future__ import annotations

import pytest

from sparring.env_worker.task_table import TaskTable
from sparring.protos.errors import UsageError

TABLE = TaskTable(
    benchmark="chores",
    instructions={name: name.upper() for name in ("sweep", "mop", "cook", "bake", "rooms/0", "rooms/1", "rooms/hall")},
    groups={"floor": ("sweep", "mop"), "all": ("sweep", "mop", "cook", "bake"), "rooms": ("rooms/hall", "rooms/0")},
    prefixes=("chores-",),
    aliases={"kitchen": "cook,all/3"},
    initial_states=5,
    max_steps={"mop": 30},
)


@pytest.mark.parametrize(
    ("selection", "tasks"),
    [
        ("mop", [("mop", "mop", 0)]),
        ("floor", [("sweep", "floor", 0), ("mop", "floor", 1)]),
        ("all/2", [("cook", "all", 2)]),
        ("all/1-2", [("mop", "all", 1), ("cook", "all", 2)]),
        ("all/0-0", [("sweep", "all", 0)]),
        ("kitchen", [("cook", "cook", 0), ("bake", "all", 3)]),
        (" mop ,, all/0-1", [("mop", "mop", 0), ("sweep", "all", 0)]),
        ("chores-mop", [("mop", "chores-mop", 0)]),
        ("chores-all/1", [("mop", "all", 1)]),
        # A task's own name means that task, whatever its place; its group is the one that it names.
        ("rooms/0", [("rooms/0", "rooms", 1)]),
        ("rooms/hall", [("rooms/hall", "rooms", 0)]),
        ("rooms/1", [("rooms/1", "rooms/1", 0)]),
    ],
)
def test_selections(selection: str, tasks: list[tuple[str, str, int]]) -> None:
    assert [(task.name, task.group, task.number) for task in TABLE.select(selection)] == tasks


def test_tasks_carry_what_the_table_knows_of_them() -> None:
    sweep, mop = TABLE.select("floor")
    assert (mop.instruction, mop.initial_states, mop.max_steps) == ("MOP", 5, 30)
    assert sweep.max_steps == 0


@pytest.mark.parametrize(
    ("selection", "sentence"),
    [
        ("mopp", "unknown task or group of chores: 'mopp'. Did you mean 'mop'"),
        ("flor/0", "Did you mean 'floor'"),
        ("floor/2", "'floor/2' is out of range; floor has tasks 0 to 1"),
        ("floor/1-0", "out of range"),
        ("floor/0-2", "out of range"),
        ("floor/x", "cannot read 'floor/x'; write floor/3 or floor/0-4"),
        ("floor/-1", "cannot read"),
        ("floor/", "cannot read"),
        ("", "no task was named"),
        (" , ", "no task was named"),
    ],
)
def test_mistakes_are_named(selection: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        TABLE.select(selection)

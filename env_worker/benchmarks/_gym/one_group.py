"""Tasks as LeRobot's evaluation counts those of Gymnasium's packages: one group of the environment's name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sparring.env_worker.benchmark import Task


def in_one_group(tasks: Sequence[Task], group: str) -> list[Task]:
    """Returns the tasks in a group, numbered from 0: LeRobot plays one, which is number 0 whichever it is."""
    return [replace(task, group=group, number=number) for number, task in enumerate(tasks)]

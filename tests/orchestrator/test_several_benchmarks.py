"""Several benchmarks in one run: whose rates and whose groups are whose."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console
from rows import ROW

from sparring.env_worker.benchmark import Task
from sparring.orchestrator.display.screen import show
from sparring.orchestrator.display.table import results_table
from sparring.orchestrator.plan import Plan
from sparring.orchestrator.results.results import Results

PLAN = Plan(
    {
        "left": [Task("reach", "Reach", "all", number=0), Task("push", "Push", "all", number=1)],
        "right": [Task("reach", "Reach", "all", number=0), Task("lift", "Lift", "few", number=0)],
    },
    episodes=2,
    seed=0,
)


def results() -> Results:
    rows = [
        replace(ROW, benchmark=e.benchmark, task=e.task, index=e.index, outcome=outcome, reward_sum=float(number))
        for number, e in enumerate(PLAN.ids())
        for outcome in ["success" if e.benchmark == "left" or e.index else "failure"]
    ]
    return Results(PLAN, rows, 1.0, None)


def table() -> list[str]:
    file = io.StringIO()
    show(results_table(results()), Console(file=file, width=80))
    return file.getvalue().splitlines()


def test_groups_of_the_same_name_are_two_groups() -> None:
    found = results()
    assert {name: summary.n for name, summary in found.groups.items()} == {"left/all": 4, "right/all": 2, "few": 2}
    assert found.groups["left/all"].success_rate == 1.0
    assert found.groups["right/all"].success_rate == 0.5
    assert {name: summary.success_rate for name, summary in found.benchmarks.items()} == {"left": 1.0, "right": 0.5}
    assert found.owners["few"] == "right"


def test_json_says_whose_each_is() -> None:
    document = results().to_json()
    assert {name: found["benchmark"] for name, found in document["groups"].items()} == {
        "left/all": "left",
        "right/all": "right",
        "few": "right",
    }
    assert document["tasks"]["push"]["benchmark"] == "left"
    assert document["benchmarks"]["right"]["return"]["mean"] == 5.5


def test_the_table_has_one_benchmark_after_the_other() -> None:
    lines = [line.split() for line in table() if line]
    names = [" ".join(line[:2]) if line[0].endswith(":") else line[0] for line in lines]
    assert names[:10] == [
        "task", "left/reach", "push", "left: all", "left", "right/reach", "lift", "right: all", "right: few", "right",
    ]  # fmt: skip
    assert names[10:] == [
        "overall", "mean", "left: return", "left: steps", "left: reward_max", "right: return", "right: steps",
        "right: reward_max", "8",
    ]  # fmt: skip
    assert lines[4][:5] == ["left", "4", "0", "100.0", "%"]
    assert lines[9][:5] == ["right", "4", "0", "50.0", "%"]


def test_lerobots_layout_keeps_them_apart_too() -> None:
    info = results().eval_info()
    assert {name: group["n_episodes"] for name, group in info["per_group"].items()} == {
        "left/all": 4,
        "right/all": 2,
        "few": 2,
    }
    assert [(task["task_group"], task["task_id"]) for task in info["per_task"]] == [
        ("left/all", 0), ("left/all", 1), ("right/all", 0), ("few", 0),
    ]  # fmt: skip


def test_tasks_are_selected_by_the_group_of_one_benchmark_or_of_all_that_have_it() -> None:
    assert set(results().select("left/all").tasks) == {"reach", "push"}
    assert set(results().select("all").tasks) == {"left/reach", "push", "right/reach"}
    assert set(results().select("right").tasks) == {"reach", "lift"}

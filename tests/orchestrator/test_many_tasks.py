"""Results of many tasks: written, summed up and shown in time that grows as they do."""

from __future__ import annotations

import gc
import time
from dataclasses import replace
from pathlib import Path

from rows import ROW

from sparring.env_worker.benchmark import Task
from sparring.orchestrator.display.table import results_table
from sparring.orchestrator.plan import Plan
from sparring.orchestrator.results.results import Results, write_results


def cpu_seconds(tasks: int, folder: Path) -> float:
    """The CPU time of all that is made of the results of so many tasks, each of them a group, at best of two."""
    plan = Plan({"toy": [Task(f"t{n}", "Go", f"g{n}", number=n) for n in range(tasks)]}, 1, 0)
    rows = [replace(ROW, task=f"t{n}") for n in range(tasks)]
    times = []
    for _ in range(2):
        results = Results(plan, rows, 1.0, folder)
        gc.collect()
        began = time.process_time()
        write_results(results)
        results.to_json()
        results_table(results)
        results.select("t1*")
        times.append(time.process_time() - began)
    return min(times)


def test_ten_times_the_tasks_take_about_ten_times_as_long(tmp_path: Path) -> None:
    few, many = (cpu_seconds(tasks, tmp_path) for tasks in (60, 600))
    assert many < 30 * few, f"{few:.2f} s for 60 tasks, {many:.2f} s for 600: in quadratic time it would be 100 times"

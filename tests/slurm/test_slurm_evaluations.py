"""`evaluate(launcher="slurm")`: workers are jobs that stay from call to call, and go when it is closed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from slurm_cluster import Cluster
from toy_policies import Wanderer

from sparring import Evaluator, Results

PLAN: dict[str, Any] = {"benchmark": "toy", "tasks": "good", "episodes": 2}


def rows(results: Results) -> list[tuple[Any, ...]]:
    return [(row.task, row.index, row.seed, row.outcome, row.reward_sum, row.steps) for row in results.rows]


def own_jobs(cluster: Cluster) -> list[str]:
    told = cluster.do("squeue", "--noheader", "--array", "--format=%i %j").splitlines()
    return [line.split()[0] for line in told if "sparring-toy-" in line]


def test_the_same_rows_by_the_same_jobs_in_every_call(cluster: Cluster, tmp_path: Path) -> None:
    where: dict[str, Any] = {"launcher": "slurm", "workers": 2, "slots_per_worker": 1, "slurm": {"mem": "100M"}}
    with Evaluator() as evaluator:
        first = rows(evaluator.evaluate(Wanderer(), **PLAN, **where, slurm_folder=tmp_path))
        jobs = own_jobs(cluster)
        assert jobs
        again = rows(evaluator.evaluate(Wanderer(), **PLAN, **where, slurm_folder=tmp_path))
        assert own_jobs(cluster) == jobs
        here = rows(evaluator.evaluate(Wanderer(), **PLAN, in_process=True))
    assert first == again == here
    assert own_jobs(cluster) == []
    assert list(tmp_path.glob("*/slurm")) == []

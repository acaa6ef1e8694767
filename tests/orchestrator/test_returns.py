"""Runs that are about the return: of simulators that do not say what success is, and of those that do."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from support import Sparring, read_csv

from sparring import Results

HERE = ("run", "--in-process", "--policy", "random", "--output", "out")
PENDULUM = (*HERE, "--benchmark", "gym", "--task", "Pendulum-v1", "--episodes", "3", "--max-steps", "20")


def test_an_environment_without_success_is_evaluated_by_its_rewards(usage: Sparring, tmp_path: Path) -> None:
    done = usage(*PENDULUM, "--metric", "return")
    assert done.returncode == 0, done.stderr
    rows = read_csv(tmp_path / "out")
    assert [(row["outcome"], row["error"]) for row in rows] == [("played", "")] * 3
    sums = [float(row["reward_sum"]) for row in rows]
    from scipy import stats  # half a second of every worker that collects this file

    low, high = stats.t.interval(0.95, 2, loc=np.mean(sums), scale=stats.sem(sums))
    results = Results.load(tmp_path / "out")
    assert results.metric == "return"
    assert results.overall.success_rate is None
    returns = results.overall.returns
    assert returns is not None
    assert returns.interval is not None
    np.testing.assert_allclose([returns.mean, *returns.interval], [np.mean(sums), low, high])
    lines = [line.split() for line in done.stdout.splitlines()]
    digits = 0 if max(map(abs, (low, high))) >= 1000 else 1
    expected = ["overall", "3", "0", f"{np.mean(sums):.{digits}f}", f"{low:.{digits}f}", "to", f"{high:.{digits}f}"]
    assert expected in lines, done.stdout
    assert "success" not in done.stdout
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
    document = json.loads((tmp_path / "out" / "run.json").read_text())
    assert (document["overall"]["success_rate"], document["overall"]["judged"]) == (None, 0)
    assert document["overall"]["return"]["interval"] == list(returns.interval)
    info = json.loads((tmp_path / "out" / "eval_info.json").read_text())
    assert info["overall"]["pc_success"] is None
    assert info["overall"]["avg_sum_reward"] == np.mean(sums)
    assert (info["per_task"][0]["metrics"]["successes"], info["overall"]["n_episodes"]) == ([], 3)


@pytest.mark.parametrize(("task", "outcome"), [("Walker2d-v5", "played"), ("Hopper-v5", "failure")])
def test_walkers_are_evaluated_by_their_rewards(usage: Sparring, tmp_path: Path, task: str, outcome: str) -> None:
    """Hopper has a reward threshold in Gymnasium, by which it is judged, too; Walker2d has none."""
    done = usage(*HERE, "--benchmark", "gym", "--task", task, "--episodes", "2", "--metric", "return")
    assert done.returncode == 0, done.stderr
    rows = read_csv(tmp_path / "out")
    assert [(row["outcome"], row["error"]) for row in rows] == [(outcome, "")] * 2
    returns = Results.load(tmp_path / "out").overall.returns
    assert returns is not None
    assert returns.mean == np.mean([float(row["reward_sum"]) for row in rows])


def test_where_success_is_wanted_and_nobody_says_what_that_is_the_first_episode_is_the_last(
    usage: Sparring, tmp_path: Path
) -> None:
    done = usage(*PENDULUM)
    assert done.returncode == 2
    assert "'Pendulum-v1' does not say what success is. --metric return evaluates the sum of rewards" in done.stderr
    assert "--benchmark-arg success_return=..." in done.stderr
    assert "trying again" not in done.stderr
    assert not (tmp_path / "out").exists()


def test_whatever_a_run_was_about_both_can_be_shown(usage: Sparring) -> None:
    done = usage(*HERE, "--benchmark", "toy", "--task", "good", "--episodes", "3", "--metric", "return", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["metric"] == "return"
    assert document["overall"]["judged"] == document["overall"]["n"] == 6
    table = usage("show", "out").stdout
    assert [line.split()[:5] for line in table.splitlines() if line.startswith("task")] == [
        ["task", "n", "errors", "return", "95"]
    ]
    assert "success" in table, "it is beside the other means"
    of_success = usage("show", "out", "--metric", "success").stdout
    assert [line.split()[3] for line in of_success.splitlines() if line.startswith("task")] == ["success"]
    assert {line.split()[0] for line in of_success.splitlines() if line} >= {"return", "steps", "reward_max"}

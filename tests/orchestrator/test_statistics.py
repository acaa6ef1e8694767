"""Rates and intervals against other people's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from scipy.stats import binomtest

from sparring.env_worker.benchmark import Task
from sparring.orchestrator.display.lines import errors_left_out
from sparring.orchestrator.plan import Plan
from sparring.orchestrator.results.intervals import student, t_quantile, wilson
from sparring.orchestrator.results.results import Results
from sparring.orchestrator.results.row import EpisodeRow
from sparring.orchestrator.results.statistics import Mean, Summary
from sparring.protos.record import EpisodeRecord


@pytest.mark.parametrize(("successes", "n"), [(0, 10), (5, 10), (10, 10), (81, 263), (1, 29), (1, 1)])
def test_wilson_is_scipys(successes: int, n: int) -> None:
    expected = binomtest(successes, n).proportion_ci(0.95, method="wilson")
    assert wilson(successes, n) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_wilson_is_newcombes() -> None:
    # Newcombe (1998), Statistics in Medicine 17, table I, method 3.
    for (successes, n), published in {
        (81, 263): (0.2553, 0.3662),
        (15, 148): (0.0624, 0.1605),
        (0, 20): (0, 0.1611),
    }.items():
        assert wilson(successes, n) == pytest.approx(published, abs=5e-5)


def test_nothing_to_judge_by() -> None:
    assert wilson(0, 0) == (0.0, 1.0)
    assert Summary(n=0, errors=3, successes=0).to_json() == {
        "success_rate": None,
        "interval": [0.0, 1.0],
        "worst_case": 0.0,
        "best_case": 1.0,
        "n": 0,
        "judged": 0,
        "errors": 3,
        "errors_by_kind": {},
        "return": None,
        "steps": None,
        "reward_max": None,
        "metrics": {},
    }


def test_beside_a_rate_stands_what_it_would_be_if_errors_had_been_failures_or_successes() -> None:
    summary = Summary(n=20, errors=10, successes=19)
    assert summary.success_rate == 0.95
    assert (summary.worst_case, summary.best_case) == (19 / 30, 29 / 30)
    calm = Summary(n=20, errors=0, successes=19)
    assert calm.worst_case == calm.best_case == calm.success_rate
    nothing = Summary(n=0, errors=0, successes=0)
    assert (nothing.worst_case, nothing.best_case) == (None, None)


def row(index: int, record: EpisodeRecord, task: str = "x") -> EpisodeRow:
    return EpisodeRow(benchmark="toy", task=task, index=index, seed=index, attempts=1, video="", **vars(record))


def test_errors_are_counted_by_kind_and_metrics_rest_on_episodes_that_have_them() -> None:
    summary = Summary.of(
        [
            row(0, EpisodeRecord(outcome="success", metrics={"progress": 1.0, "distance": 0.25})),
            row(1, EpisodeRecord(outcome="failure", metrics={"progress": 0.5})),
            row(2, EpisodeRecord.failed("simulator", "boom")),
            row(3, EpisodeRecord.failed("policy", "boom")),
            row(4, EpisodeRecord.failed("policy", "boom")),
            row(5, EpisodeRecord.failed("", "of an old journal")),
        ]
    )
    assert (summary.n, summary.errors, summary.successes) == (2, 4, 1)
    document = summary.to_json()
    assert document["errors_by_kind"] == {"policy": 2, "simulator": 1, "unspecified": 1}
    assert document["metrics"]["distance"] == {"mean": 0.25, "interval": None, "n": 1}
    assert (document["metrics"]["progress"]["mean"], document["metrics"]["progress"]["n"]) == (0.75, 2)


def test_quantiles_of_students_distribution_are_scipys() -> None:
    for freedom in (*range(1, 420), 1_000, 99_999, 10**7):  # on both sides of where it is computed in another way
        assert t_quantile(freedom) == pytest.approx(float(stats.t.ppf(0.975, freedom)), rel=1e-11), freedom


def test_quantiles_are_gossets() -> None:
    # Of every table of Student's t, two-sided 95 %.
    for freedom, published in {1: 12.706, 2: 4.303, 9: 2.262, 30: 2.042, 120: 1.980}.items():
        assert t_quantile(freedom) == pytest.approx(published, abs=5e-4)


@pytest.mark.parametrize("n", [2, 3, 10, 250, 1000])
def test_intervals_of_means_are_scipys(n: int) -> None:
    values = np.random.default_rng(n).gamma(0.5, 300.0, n) - 50.0
    expected = stats.t.interval(0.95, n - 1, loc=values.mean(), scale=stats.sem(values))
    assert student(values.tolist()) == pytest.approx(expected, rel=1e-10)


def test_intervals_of_means_cover_what_they_say() -> None:
    """Of normal values, in which Student's is exact, 95 of 100 intervals hold the mean, also with five values."""
    draws = np.random.default_rng(3).normal(7.0, 2.0, (4000, 5))
    held = sum(low <= 7.0 <= high for low, high in filter(None, (student(row.tolist()) for row in draws)))
    assert 0.94 < held / 4000 < 0.96


def test_means_of_next_to_nothing_and_of_next_to_everything() -> None:
    assert Mean.of([]) is None
    assert Mean.of([3.0]) == Mean(3.0, 1, None)
    assert Mean.of([3.0, 3.0]) == Mean(3.0, 2, (3.0, 3.0))
    huge = Mean.of([1.5e308, 1.5e308, 1.4e308])
    assert huge is not None
    assert huge.mean == pytest.approx(1.5e308, rel=0.05)
    assert Mean.of([-1.7e308, 1.7e308]) == Mean(0.0, 2, None), "no float can hold its interval"


def test_returns_steps_and_largest_rewards_rest_on_episodes_that_did_not_err() -> None:
    rows = [
        row(n, EpisodeRecord(outcome="failure", reward_sum=s, reward_max=m, steps=k))
        for n, (s, m, k) in enumerate([(1.0, 0.5, 10), (2.0, 0.75, 20), (6.0, 1.0, 30)])
    ]
    summary = Summary.of([*rows, row(9, EpisodeRecord.failed("simulator", "boom"))])
    for mean, values in (
        (summary.returns, [1.0, 2.0, 6.0]), (summary.reward_max, [0.5, 0.75, 1.0]), (summary.steps, [10, 20, 30]),
    ):  # fmt: skip
        assert mean is not None
        assert mean.n == 3
        assert mean.mean == pytest.approx(np.mean(values))
        expected = stats.t.interval(0.95, 2, loc=np.mean(values), scale=stats.sem(values))
        assert mean.interval == pytest.approx(expected, rel=1e-10)
    assert summary.to_json()["return"]["mean"] == 3.0


def test_tasks_that_nobody_can_judge_have_no_rate_and_spoil_no_other() -> None:
    silent = [row(n, EpisodeRecord(outcome="played", reward_sum=-100.0 * n), task="silent") for n in range(4)]
    summary = Summary.of(silent)
    assert (summary.n, summary.judged, summary.success_rate, summary.interval) == (4, 0, None, (0.0, 1.0))
    assert (summary.worst_case, summary.best_case) == (None, None)
    assert summary.returns is not None
    assert summary.returns.mean == -150.0
    told = [row(n, EpisodeRecord(outcome="success" if n else "failure")) for n in range(4)]
    broken = [row(9, EpisodeRecord.failed("policy", "boom"), task) for task in ("silent", "x")]
    both = Summary.of([*silent, *told, *broken])
    assert (both.n, both.judged, both.errors, both.success_rate) == (8, 4, 2, 0.75)
    assert (both.worst_case, both.best_case) == (3 / 5, 4 / 5), "what erred in the silent task is no success either way"


def test_where_nothing_is_judged_there_is_no_best_and_no_worst_case() -> None:
    silent = row(0, EpisodeRecord(outcome="played"), task="silent")
    summary = Summary.of([silent, row(0, EpisodeRecord.failed("policy", "boom"), task="broken")])
    assert (summary.judged, summary.errors, summary.unjudged_errors) == (0, 1, 0)
    assert (summary.worst_case, summary.best_case) == (None, None)
    rows = [silent, row(0, EpisodeRecord.failed("policy", "boom"), task="broken")]
    plan = Plan({"toy": [Task("silent", "", "g"), Task("broken", "", "g")]}, 1, 0)
    said = errors_left_out(Results(plan, rows, 0.0, Path("out")))
    assert said == "1 episode ended in an error (1 policy), not counted in the means"


def test_a_task_that_is_judged_now_and_then_has_no_rate() -> None:
    """Of an environment that speaks of success only when there is one, the rate would be 100 %."""
    rows = [row(n, EpisodeRecord(outcome="success" if n < 2 else "played")) for n in range(10)]
    assert (Summary.of(rows).success_rate, Summary.of(rows).successes) == (None, 0)


def test_bounds_stay_in_range_and_around_the_rate() -> None:
    for n in (1, 7, 250):
        for successes in range(n + 1):
            low, high = wilson(successes, n)
            assert 0.0 <= low <= successes / n <= high <= 1.0

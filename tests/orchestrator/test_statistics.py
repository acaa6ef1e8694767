"""Rates and intervals against other people's."""

from __future__ import annotations

import pytest
from scipy.stats import binomtest

from sparring.orchestrator.results.row import EpisodeRow
from sparring.orchestrator.results.statistics import Summary, wilson
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
        "errors": 3,
        "errors_by_kind": {},
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


def row(index: int, record: EpisodeRecord) -> EpisodeRow:
    return EpisodeRow(benchmark="toy", task="x", index=index, seed=index, attempts=1, video="", **vars(record))


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
    assert document["metrics"] == {"distance": {"mean": 0.25, "n": 1}, "progress": {"mean": 0.75, "n": 2}}


def test_bounds_stay_in_range_and_around_the_rate() -> None:
    for n in (1, 7, 250):
        for successes in range(n + 1):
            low, high = wilson(successes, n)
            assert 0.0 <= low <= successes / n <= high <= 1.0

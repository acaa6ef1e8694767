"""Rates and intervals against other people's."""

from __future__ import annotations

import pytest
from scipy.stats import binomtest

from sparring.orchestrator.results.statistics import Summary, wilson


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
        "n": 0,
        "errors": 3,
    }


def test_bounds_stay_in_range_and_around_the_rate() -> None:
    for n in (1, 7, 250):
        for successes in range(n + 1):
            low, high = wilson(successes, n)
            assert 0.0 <= low <= successes / n <= high <= 1.0

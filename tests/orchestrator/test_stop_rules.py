"""Rules to stop early, held against exact enumeration of all that can happen, and against scipy."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
from scipy import integrate, stats

from sparring.orchestrator.comparison.sequential import chance_of_decision, evidence, rate_interval
from sparring.orchestrator.comparison.shares import EpisodeKey, Share
from sparring.orchestrator.comparison.significance import mcnemar
from sparring.orchestrator.comparison.stopping import Different, PreciseEnough, Round

LOG20 = math.log(20.0)


def limits(most: int) -> Iterator[tuple[int, int]]:
    """For so many differing pairs: how few of them must be the first's, or how many, for a decision at 5 %."""
    for n in range(most + 1):
        few = max((k for k in range(n // 2 + 1) if evidence(k, n - k) >= LOG20), default=-1)
        yield few, n - few


def chance_by_enumeration(first: float, second: float, pairs: int) -> tuple[float, float]:
    """The chance of a decision within so many pairs, and how many are played on average: every way is followed.

    Args:
        first: The chance that only the first succeeds.
        second: That only the second does.
        pairs: At most.
    """
    edge = list(limits(pairs))
    ways = {(0, 0): 1.0}
    decided = played = 0.0
    for n in range(1, pairs + 1):
        after: dict[tuple[int, int], float] = {}
        for (a, b), chance in ways.items():
            for at, part in (((a + 1, b), first), ((a, b + 1), second), ((a, b), 1 - first - second)):
                if chance * part > 1e-14:
                    after[at] = after.get(at, 0.0) + chance * part
        ways = {}
        for (a, b), chance in after.items():
            few, many = edge[a + b]
            if a <= few or a >= many:
                decided += chance
                played += n * chance
            else:
                ways[a, b] = chance
    return decided, played + pairs * sum(ways.values())


def test_evidence_is_a_mixture_of_bets_by_quadrature() -> None:
    # Jeffreys' prior over how the differing pairs may be shared, against a half each.
    for first, second in ((0, 6), (3, 9), (11, 2)):
        mixed, _ = integrate.quad(
            lambda share, a=first, b=second: stats.beta.pdf(share, 0.5, 0.5) * share**a * (1 - share) ** b, 0, 1
        )
        assert math.exp(evidence(first, second)) == pytest.approx(mixed * 2 ** (first + second), rel=1e-6)


@pytest.mark.parametrize("differing", [0.1, 0.4, 1.0])
def test_two_equal_policies_are_told_apart_in_less_than_five_of_a_hundred_runs(differing: float) -> None:
    wrong, _ = chance_by_enumeration(differing / 2, differing / 2, 120)
    assert 0.002 < wrong <= 0.05


def test_another_test_after_a_rule_that_did_not_stop_is_a_second_chance_to_err() -> None:
    """Why `compare` does not use it for such runs. Exactly, of 120 pairs that all differ, half to either side."""
    ways, stopped = {0: 1.0}, 0.0
    for n in range(1, 121):
        after: dict[int, float] = {}
        for first, chance in ways.items():
            for at in (first, first + 1):
                after[at] = after.get(at, 0.0) + chance / 2
        ways = {first: chance for first, chance in after.items() if evidence(first, n - first) < LOG20}
        stopped += sum(chance for first, chance in after.items() if first not in ways)
    later = sum(chance for first, chance in ways.items() if mcnemar(first, 120 - first) <= 0.05)
    assert stopped <= 0.05 < stopped + later
    assert 100 * (stopped + later) == pytest.approx(6.1, abs=0.05)  # docs/comparing.md has it


def test_what_a_stop_saves() -> None:
    """docs/comparing.md has these figures: of 200 pairs, how many are played, and how often a difference is seen."""
    found = {gained: chance_by_enumeration(0.05, 0.05 + gained, 200) for gained in (0.0, 0.1, 0.2, 0.4)}
    assert {gained: (round(100 * seen, 1), round(pairs)) for gained, (seen, pairs) in found.items()} == {
        0.0: (2.2, 198), 0.1: (65.5, 136), 0.2: (99.5, 61), 0.4: (100.0, 24),
    }  # fmt: skip


@pytest.mark.parametrize(("gained", "seen", "pairs"), [(0.0, 0.02, 86), (0.1, 0.62, 108), (0.2, 0.99, 60)])
def test_what_futility_saves_and_costs(gained: float, seen: float, pairs: int) -> None:
    """docs/comparing.md has these figures, of 1,500 runs each; here are 100."""
    generator = np.random.default_rng(11)
    decided, played = [], []
    for _ in range(100):
        draws = generator.random(200)
        other = {("toy", "a", n): Share(n, float(0 <= draw < 0.05), 1) for n, draw in enumerate(draws)}
        rule = Different(other, "x", 200, alpha=0.05, futility=True)
        heard = (rule.heard(one(n, float(0.05 <= draw < 0.10 + gained))) for n, draw in enumerate(draws))
        stop = next(((n, why) for n, why in enumerate(heard, 1) if why), (200, None))
        played.append(stop[0])
        decided.append(stop[1] == "difference")
    assert np.mean(decided) == pytest.approx(seen, abs=3 * (seen * (1 - seen) / 100) ** 0.5 + 0.01)
    assert np.mean(played) == pytest.approx(pairs, abs=3 * np.std(played) / 100**0.5)


@pytest.mark.parametrize(("rate", "episodes"), [(0.7, 244), (0.9, 87), (0.95, 48)])
def test_the_interval_at_the_stop_holds_the_rate(rate: float, episodes: int) -> None:
    """Exactly, over all ways of at most 400 episodes: the interval is wrong at the stop in less than 5 of 100 runs.

    docs/comparing.md has the numbers of episodes.
    """
    wrong = stopped = played = 0.0
    going = {0: 1.0}
    for n in range(1, 401):
        after: dict[int, float] = {}
        for won, chance in going.items():
            after[won] = after.get(won, 0.0) + chance * (1 - rate)
            after[won + 1] = after.get(won + 1, 0.0) + chance * rate
        going = {}
        for won, chance in after.items():
            if chance < 1e-13:
                continue
            low, high = rate_interval(won, n)
            if (high - low) / 2 <= 0.1:
                stopped += chance
                played += n * chance
                wrong += chance * (not low <= rate <= high)
            else:
                going[won] = chance
    assert stopped == pytest.approx(1.0, abs=1e-6)
    assert wrong <= 0.05
    assert round(played) == episodes


def rounds_of(generator: np.random.Generator, rates: np.ndarray, count: int) -> list[Round]:
    return [
        {("toy", str(task), index): Share(index, float(won), 1) for task, won in enumerate(line)}
        for index, line in enumerate(generator.random((count, len(rates))) < rates)
    ]


def test_tasks_that_differ_do_no_harm_to_whole_rounds() -> None:
    """Rounds of easy and hopeless tasks: both rules err less often than they say, and stop sooner than the plan."""
    rates = np.array([0.02, 0.5, 0.7, 0.98])
    generator = np.random.default_rng(7)
    wrong = seen = played = 0
    games = 80
    for _ in range(5 * games):
        mine, other = rounds_of(generator, rates, 40), rounds_of(generator, rates, 40)
        outcomes = {episode: outcome for played_by in other for episode, outcome in played_by.items()}
        different = Different(outcomes, "x", 40, alpha=0.05, futility=False)
        seen += any(different.heard(one) == "difference" for one in mine)
    for _ in range(games):
        mine, precise = rounds_of(generator, rates, 60), PreciseEnough(0.12, 0.05)
        stop = next((number for number, one in enumerate(mine, 1) if precise.heard(one)), 60)
        played += stop
        won = sum(share.success or 0.0 for one in mine[:stop] for share in one.values())
        low, high = rate_interval(won, 4 * stop)
        wrong += not low <= rates.mean() <= high
    assert wrong / games <= 0.05
    assert seen / (5 * games) <= 0.05
    assert played / games < 55


def one(index: int, success: float | None) -> Round:
    return {("toy", "a", index): Share(index, success, 1)}


def test_errors_count_on_neither_side() -> None:
    other: dict[EpisodeKey, Share] = {("toy", "a", index): Share(index, 0.0, 1) for index in range(50)}
    with_errors, without = (Different(other, "x", 50, alpha=0.05, futility=False) for _ in range(2))
    stops = []
    for rule, step in ((without, 1), (with_errors, 2)):
        found = [rule.heard(one(index, 1.0 if index % step == 0 else None)) for index in range(50)]
        stops.append(found.index("difference") + 1)
    assert stops == [7, 13], "the seventh that only this run did decides"


def test_futility_is_asked_at_rounds_that_do_not_depend_on_anything_else() -> None:
    other: dict[EpisodeKey, Share] = {("toy", "a", index): Share(index, 1.0, 1) for index in range(100)}
    rule = Different(other, "x", 100, alpha=0.05, futility=True)
    found = [rule.heard(one(index, 1.0)) for index in range(100)]
    stopped = found.index("futility") + 1
    assert stopped % 5 == 0
    assert stopped < 100
    late = Different(other, "x", 100, alpha=0.05, futility=False)
    assert not any(late.heard(one(index, 1.0)) for index in range(100))


def test_shares_of_successes_are_judged_as_seldom_wrongly() -> None:
    """Episodes that are played three times, and are alike: the rules count them as one each."""
    generator = np.random.default_rng(3)
    wrong = seen = 0
    for _ in range(200):
        hard = generator.beta(0.6, 0.4, size=(2, 60))
        mine, other = generator.binomial(3, hard) / 3
        before = {("toy", "a", index): Share(index, share, 3) for index, share in enumerate(other)}
        different = Different(before, "x", 60, alpha=0.05, futility=False)
        precise = PreciseEnough(0.13, 0.05)
        seen += any(different.heard(one(index, share)) for index, share in enumerate(mine))
        stop = next((n for n, share in enumerate(mine, 1) if precise.heard(one(n, share))), 60)
        low, high = rate_interval(float(np.sum(mine[:stop])), stop)
        wrong += not low <= 0.6 <= high
    assert wrong / 200 <= 0.05
    assert seen / 200 <= 0.05


def test_the_chance_of_a_decision_is_what_enumeration_says() -> None:
    """With so many pairs behind it that their shares are hardly in doubt, it is the chance by those shares."""
    first, second, n, remaining = 40, 55, 1000, 150
    edge = list(limits(first + second + remaining))
    ways = {(first, second): 1.0}
    decided = 0.0
    for _ in range(remaining):
        after: dict[tuple[int, int], float] = {}
        for (a, b), chance in ways.items():
            for at, part in (((a + 1, b), 0.040), ((a, b + 1), 0.055), ((a, b), 0.905)):
                after[at] = after.get(at, 0.0) + chance * part
        ways = {}
        for (a, b), chance in after.items():
            few, many = edge[a + b]
            if a <= few or a >= many:
                decided += chance
            else:
                ways[a, b] = chance
    assert chance_of_decision(first, second, n, remaining) == pytest.approx(decided, abs=0.06)
    assert chance_of_decision(0, 3, 3, 100) > 0.9
    assert chance_of_decision(0, 0, 500, 20) < 0.01
    assert chance_of_decision(0, 6, 20, 0) == 0.0
    assert chance_of_decision(0, 7, 20, 0) == 1.0

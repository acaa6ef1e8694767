"""`--policy-seeds`: episodes that are played several times, and what that is worth."""

from __future__ import annotations

import itertools
import json
import math
import operator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from rows import ROW
from support import Sparring, read_csv

from sparring import Evaluator, Results
from sparring.env_worker.benchmark import Task
from sparring.orchestrator.comparison.comparison import compare
from sparring.orchestrator.comparison.significance import mcnemar, sign_flips
from sparring.orchestrator.display.comparison import verdict
from sparring.orchestrator.plan import EpisodeId, Plan
from sparring.orchestrator.results.intervals import student, wilson
from sparring.orchestrator.results.repeats import PlaysWorth, worth_of
from sparring.orchestrator.results.row import EpisodeRow
from sparring.orchestrator.results.statistics import Summary

PLAN = Plan({"toy": [Task("a", "", "a")]}, 40, 5, repeats=3)
PLAY = ("--benchmark", "toy", "--task", "short", "--policy", "toy_policies:Wanderer", "--episodes", "4", "--in-process")


def rows(outcomes: np.ndarray, seed: int = 5) -> list[EpisodeRow]:
    """A row for each play: episodes by plays."""
    plays = outcomes.shape[1]
    return [
        replace(
            ROW, task="a", index=plays * episode + play, seed=seed + episode, reward_sum=float(won),
            outcome="success" if won else "failure",
        )
        for episode, line in enumerate(outcomes) for play, won in enumerate(line)
    ]  # fmt: skip


def run_of(outcomes: np.ndarray, seed: int = 5) -> Results:
    plan = replace(PLAN, episodes=outcomes.shape[0], repeats=outcomes.shape[1], seed=seed)
    return Results(plan=plan, rows=rows(outcomes, seed), seconds=1.0, folder=None, settings={"benchmark": "toy"})


def test_seeds_of_episodes_and_of_the_policy_are_apart() -> None:
    ids = PLAN.ids()
    assert len(ids) == PLAN.plays == 120
    assert [PLAN.seed_of(id) for id in ids[:7]] == [5, 5, 5, 6, 6, 6, 7]
    seeds = [PLAN.policy_seed_of(id) for id in ids]
    assert seeds[::3] == [PLAN.seed_of(id) for id in ids[::3]], "the first play is the one of a run without repeats"
    assert len(set(seeds)) == 120
    assert all(0 <= seed < 2**63 for seed in seeds)
    once = replace(PLAN, repeats=1)
    assert [once.policy_seed_of(id) for id in once.ids()] == [once.seed_of(id) for id in once.ids()]


def test_repeats_that_are_all_alike_are_worth_one_play_each() -> None:
    alike = np.repeat(np.random.default_rng(0).random((40, 1)) < 0.6, 3, axis=1)
    found = Summary.of(rows(alike))
    assert found.n == found.judged == 120
    assert found.interval == pytest.approx(wilson(int(alike[:, 0].sum()), 40))
    assert found.returns is not None
    assert found.returns.interval == student([float(won) for won in alike[:, 0]])
    certain = Summary.of(rows(np.ones((40, 3), bool)))
    assert certain.interval == pytest.approx(wilson(40, 40)), "where nothing is known of how alike they are"


def test_repeats_that_have_nothing_in_common_are_worth_nearly_as_many_episodes() -> None:
    free = np.random.default_rng(1).random((400, 3)) < 0.5
    assert Summary.of(rows(free)).worth > 0.85


def test_a_run_without_repeats_is_judged_as_ever() -> None:
    once = Summary.of(rows(np.random.default_rng(2).random((30, 1)) < 0.4))
    assert once.worth == 1.0
    assert once.interval == wilson(once.successes, 30)


@pytest.mark.parametrize("shape", [(0.4, 0.2), (4.0, 2.0)])
def test_intervals_hold_what_they_promise(shape: tuple[float, float]) -> None:
    """Episodes of other rates, each played four times: how often the interval holds the mean of all rates."""
    generator = np.random.default_rng(4)
    held = held_by_plays = 0
    for _ in range(300):
        outcomes = generator.random((30, 4)) < generator.beta(*shape, size=(30, 1))
        found = Summary.of(rows(outcomes))
        held += found.interval[0] <= 2 / 3 <= found.interval[1]
        low, high = wilson(found.successes, 120)
        held_by_plays += low <= 2 / 3 <= high
    assert held / 300 >= 0.93
    if shape[0] < 1:
        assert held_by_plays / 300 < 0.85, "who takes plays for episodes is wrong far too often"


def test_what_plays_are_worth_is_known_as_they_come() -> None:
    generator, counted, come = np.random.default_rng(0), PlaysWorth(), []
    for _ in range(600):
        task, episode = str(generator.choice(["a", "b", "c"])), int(generator.integers(20))
        won = bool(generator.random() < episode % 5 / 4)
        come.append(replace(ROW, task=task, seed=episode, outcome="success" if won else "failure"))
        counted.add(("toy", task), episode, won=won)
        assert counted.worth == pytest.approx(worth_of(come, lambda row: row.outcome == "success"), abs=1e-9)
    assert counted.worth < 0.9
    for outcomes in ([True] * 6, [False] * 6, [True, True, False, False]):
        alike = PlaysWorth()
        for number, won in enumerate(outcomes):
            alike.add("a", number // 2, won=won)
        assert alike.worth == 0.5, "plays that never differ count as one"


def test_signs_are_flipped_in_every_way() -> None:
    differences = [1 / 3, -2 / 3, 1.0, 1 / 3, 0.0, 2 / 3]
    seen = abs(sum(differences))
    ways = [
        abs(sum(sign * size for sign, size in zip(signs, differences, strict=True))) >= seen - 1e-9
        for signs in itertools.product((-1, 1), repeat=6)
    ]
    assert sign_flips(differences) == pytest.approx(sum(ways) / len(ways))
    for first, second in ((1, 8), (0, 6), (5, 5), (0, 0)):
        assert sign_flips([-1.0] * first + [1.0] * second + [0.0] * 9) == pytest.approx(mcnemar(first, second))
    drawn = [math.sqrt(2) / 2, 0.3, -0.11, 0.9, 0.77, 0.51, 0.2]
    exact = np.mean([
        abs(sum(sign * size for sign, size in zip(signs, drawn, strict=True))) >= abs(sum(drawn)) - 1e-9
        for signs in itertools.product((-1, 1), repeat=7)
    ])  # fmt: skip
    assert sign_flips(drawn) == pytest.approx(exact, abs=0.01)


def test_many_plays_are_not_more_certain_than_signs_can_be() -> None:
    """Shares of 13 to 20 plays against one fewer, as where a play ended in an error: no scale makes them whole."""
    for plays in range(13, 21):
        shares = [Fraction(won, plays) - Fraction(lost, plays - 1) for won, lost in ((3, 7), (9, 2), (plays, 1))]
        for differences in ([shares[0]] * 8, shares * 3):
            signs = itertools.product((-1, 1), repeat=len(differences))
            ways = [abs(sum(map(operator.mul, way, differences))) >= abs(sum(differences)) for way in signs]
            found = sign_flips([float(difference) for difference in differences])
            assert found == pytest.approx(sum(ways) / len(ways), rel=0.2), (plays, differences)


def test_a_comparison_knows_repeats() -> None:
    """Two equally good policies on the same episodes, each played four times: seldom said to differ."""
    generator = np.random.default_rng(6)
    said = held = 0
    for _ in range(200):
        hard = generator.beta(0.5, 0.5, size=(2, 25, 1))
        first, second = (run_of(generator.random((25, 4)) < side) for side in hard)
        found = compare(first, second)
        said += found.is_decided
        held += found.overall.interval[0] <= 0.0 <= found.overall.interval[1]
    assert said / 200 <= 0.06
    assert held / 200 >= 0.93


def test_episodes_are_compared_with_other_numbers_of_plays() -> None:
    often, once = run_of(np.array([[1, 1, 0], [0, 0, 0], [1, 1, 1]], bool)), run_of(np.array([[0], [0], [1]], bool))
    found = compare(once, often)
    assert found.paired
    assert found.overall.first == (1.0, 3)
    assert found.overall.second == pytest.approx((5 / 3, 3))
    assert found.overall.differences == pytest.approx([2 / 3, 0.0, 0.0])
    assert (found.left_out, found.unmatched, list(found.flipped)) == (0, 0, [])
    assert verdict(found, ("A", "B")).startswith("not distinguishable with these 3 episodes: +22.2 points")
    elsewhere = compare(once, run_of(np.ones((3, 3), bool), seed=500))
    assert not elsewhere.paired
    assert elsewhere.overall.second[1] == pytest.approx(3.0), "worth one play each"


def test_a_run_plays_each_episode_with_other_seeds_of_the_policy(usage: Sparring, tmp_path: Path) -> None:
    assert usage("run", *PLAY, "--output", "once").returncode == 0
    done = usage("run", *PLAY, "--policy-seeds", "3", "--output", "often", "--video", "short:1")
    assert done.returncode == 0, done.stderr
    once, often = read_csv(tmp_path / "once"), read_csv(tmp_path / "often")
    assert [row["seed"] for row in often] == [row["seed"] for row in once for _ in range(3)]
    told = [{**row, "index": "", "video": ""} for row in often]
    assert told[::3] == [{**row, "index": "", "video": ""} for row in once], "the first is the one without repeats"
    assert len({(row["seed"], row["reward_sum"]) for row in often}) == 12, "the others are others"
    assert (tmp_path / "often" / often[1]["video"]).is_file()
    assert often[1]["video"].startswith("videos/short_0001_")
    assert "1 task × 4 episodes × 3 policy seeds" in " ".join(usage("show", "often").stdout.split())
    assert json.loads((tmp_path / "often" / "run.json").read_text())["policy_seeds"] == 3
    assert usage("verify", "often", "--in-process").returncode == 0

    refused = usage("run", *PLAY, "--policy-seeds", "2", "--output", "often")
    assert refused.returncode == 2
    assert "policy_seeds: 3 there, 2 now" in refused.stderr
    assert usage("run", *PLAY, "--policy-seeds", "2", "--output", "once").returncode == 2
    more = usage("resume", "often", "--episodes", "5", "--in-process")
    assert more.returncode == 0, more.stderr
    assert read_csv(tmp_path / "often")[:12] == often
    assert len(read_csv(tmp_path / "often")) == 15
    assert usage("compare", "once", "often").returncode == 0
    assert usage("report", "often", "--format", "json", "--output", "-").returncode == 0
    assert usage("run", *PLAY, "--policy-seeds", "0", "--output", "none").returncode == 2


def test_slots_change_nothing_and_a_stop_is_of_whole_episodes(warm: Evaluator) -> None:
    from toy_policies import Wanderer

    given = {"benchmark": "toy", "tasks": "good", "episodes": 30, "policy_seeds": 2, "until": "half-width=0.25"}
    alone = warm.evaluate(Wanderer(), in_process=True, **given)
    beside = warm.evaluate(Wanderer(), slots=3, **given)
    stop = alone.early_stop
    assert stop is not None
    assert stop.stopped
    assert beside.early_stop == stop
    assert len(alone.rows) == 2 * 2 * stop.rounds
    assert [(row.id, row.reward_sum) for row in alone.rows] == [(row.id, row.reward_sum) for row in beside.rows]
    assert alone.plan.ids()[0] == EpisodeId("toy", "short", 0)

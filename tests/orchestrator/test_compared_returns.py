"""`sparring compare` by returns: held against scipy's paired t-test."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest
from rich.console import Console, RenderableType
from rows import ROW
from scipy import stats
from support import Sparring, page_content

import sparring
from sparring.env_worker.benchmark import Task
from sparring.orchestrator.comparison.returns import ComparedReturns, ReturnComparison, compare_returns
from sparring.orchestrator.display.compared_returns import returns_table, returns_verdict
from sparring.orchestrator.plan import Plan
from sparring.orchestrator.report.compared_returns import returns_content
from sparring.orchestrator.report.comparison import FilmsOfRun
from sparring.orchestrator.results.early_stop import EarlyStop
from sparring.orchestrator.results.results import Results
from sparring.protos.errors import UsageError


def run_of(seed: int = 5, repeats: int = 1, errors: int = 0, **tasks: list[float]) -> Results:
    plan = Plan({"toy": [Task(name, "", name) for name in tasks]}, max(map(len, tasks.values())), seed, repeats=repeats)
    rows = [
        replace(
            ROW, task=name, index=index, seed=seed + index // repeats, reward_sum=value,
            outcome="error" if index < errors else "played",
        )
        for name, values in tasks.items() for index, value in enumerate(values)
    ]  # fmt: skip
    return Results(plan=plan, rows=rows, seconds=1.0, folder=None, metric="return", settings={"benchmark": "toy"})


def rendered(shown: RenderableType) -> str:
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(shown)
    return console.export_text()


def test_it_is_scipys_paired_t_test() -> None:
    generator = np.random.default_rng(3)
    first, second = generator.normal(0, 1, (2, 12)).tolist()
    found = ComparedReturns(list(zip(first, second, strict=True)))
    expected = stats.ttest_rel(second, first)
    interval = expected.confidence_interval(0.95)
    assert found.p_value == pytest.approx(expected.pvalue)
    assert found.interval == pytest.approx((interval.low, interval.high))
    assert found.difference == pytest.approx(np.mean(second) - np.mean(first))


def test_pairs_are_of_the_same_episode_and_errors_are_nobodys() -> None:
    found = compare_returns(run_of(errors=1, a=[9.0, 1.0, 2.0, 3.0]), run_of(a=[1.0, 2.0, 4.0, 3.5]))
    assert found.overall.pairs == [(1.0, 2.0), (2.0, 4.0), (3.0, 3.5)]
    assert returns_verdict(found, ("A", "B")).startswith(
        "not distinguishable with these 3 episodes: mean difference +1.167"
    )
    often = compare_returns(run_of(a=[1.0, 5.0]), run_of(repeats=2, a=[1.0, 2.0, 5.0, 9.0]))
    assert often.overall.pairs == [(1.0, 1.5), (5.0, 7.0)], "plays of one episode count once"


def test_the_same_seed_with_another_number_is_another_episode() -> None:
    """Where a task starts from listed states, the number says from which: `compare` by success has no pairs either."""
    with pytest.raises(UsageError, match="no episode in common"):
        compare_returns(run_of(a=[float(n) for n in range(10)]), run_of(seed=8, a=[float(n) for n in range(10)]))
    overlapping = run_of(a=[1.0, 2.0, 3.0])
    moved = replace(overlapping, rows=[*overlapping.rows[:2], replace(overlapping.rows[2], seed=90)])
    assert compare_returns(overlapping, moved).overall.pairs == [(1.0, 1.0), (2.0, 2.0)]


def test_what_says_nothing_is_not_made_up() -> None:
    one = compare_returns(run_of(a=[1.0]), run_of(a=[2.0]))
    assert one.overall.interval is None
    assert one.overall.p_value is None
    assert not one.is_decided
    assert "mean difference +1, by" in returns_verdict(one, ("A", "B"))
    assert compare_returns(run_of(a=[1.0, 2.0]), run_of(a=[1.0, 2.0])).overall.p_value == 1.0
    with pytest.raises(UsageError, match="no episode in common"):
        compare_returns(run_of(a=[1.0]), run_of(seed=50, a=[1.0]))
    with pytest.raises(UsageError, match="no task in common"):
        compare_returns(run_of(a=[1.0]), run_of(b=[1.0]))


def test_differences_that_are_the_same_but_for_rounding_decide_nothing() -> None:
    found = ComparedReturns([(0.1 * number, 0.1 * number + 0.3) for number in range(10)])
    assert len(set(found.differences)) > 1, "rounding tells them apart"
    assert (found.interval, found.p_value) == (None, None)
    comparison = ReturnComparison({"a": found}, found)
    assert not comparison.is_decided
    assert "+0.3 in every pair, so that there is no spread" in returns_verdict(comparison, ("A", "B"))
    none = ComparedReturns([(0.1 + 0.2, 0.3), (1.0, 1.0), (0.7, 0.7)])
    assert (none.interval, none.p_value) == (None, 1.0)


def test_a_tiny_p_is_not_shown_as_one_in_a_thousand() -> None:
    sure = run_of(a=[10.0 + number % 3 for number in range(30)])
    comparison = compare_returns(run_of(a=[0.0] * 30), sure)
    shown = rendered(returns_table(comparison, ("A", "B")))
    assert comparison.overall.p_value is not None
    assert comparison.overall.p_value < 1e-20
    assert shown.count("< 0.001") == 4, "p and p by Holm of the task, p over all, and the verdict"
    assert shown.count("0.001") == 4
    assert "p < 0.001, by" in returns_verdict(comparison, ("A", "B"))


def test_of_a_run_that_goes_on_whole_rounds_are_compared_with_a_warning() -> None:
    first, whole = run_of(a=[1.0, 2.0, 3.0], b=[1.0, 2.0, 3.0]), run_of(a=[2.0, 4.0, 5.0], b=[2.0, 2.5, 3.0])
    settled = compare_returns(first, whole)
    assert (settled.rounds, settled.cautions, len(settled.overall.pairs)) == (None, [], 6)
    stop = EarlyStop(reason="half-width", rounds=2, planned=3, alpha=0.05)
    for going in (
        replace(whole, rows=whole.rows[:-1], status="running"),
        replace(whole, rows=[row for row in whole.rows if row.index < 2], early_stop=stop),
    ):
        found = compare_returns(first, going)
        assert found.overall.pairs == [(1.0, 2.0), (2.0, 4.0), (1.0, 2.0), (2.0, 2.5)]
        assert found.to_json()["rounds"] == 2
        assert "only whole rounds are compared (2)" in found.to_json()["cautions"][0]
        assert "not finished, or could stop early" in rendered(returns_table(found, ("A", "B")))
        decided = replace(found, overall=ComparedReturns([(0.0, 1.0 + n % 3) for n in range(9)]))
        assert returns_verdict(decided, ("A", "B")).endswith(", if the number of episodes was fixed beforehand.")
    with pytest.raises(UsageError, match="no round"):
        compare_returns(first, replace(whole, rows=whole.rows[:3], status="running"))


def test_in_an_interpreter_and_in_a_notebook_it_is_a_table() -> None:
    hostile = "<script>alert(1)</script>"
    comparison = sparring.compare_returns(
        run_of(a=[1.0, 2.0], **{hostile: [1.0, 4.0]}), run_of(a=[2.0, 4.0], **{hostile: [1.0, 5.0]})
    )
    text = repr(comparison)
    assert "not distinguishable with these 4 episodes: mean difference +1" in text
    (line,) = [line.split() for line in text.splitlines() if line.startswith("a ")]
    assert line[:5] == ["a", "2", "1.500", "3.000", "+1.5"]
    page = comparison._repr_html_()
    assert page.count("<tr>") == 4
    assert "<script>" not in page
    assert hostile.replace("<", "&lt;").replace(">", "&gt;") in page
    assert "not distinguishable" in rendered(comparison)  # type: ignore[arg-type] # by __rich__


def test_the_command(usage: Sparring, tmp_path: Path) -> None:
    play = ("run", "--benchmark", "toy", "--task", "short", "--policy", "toy_policies:Forward", "--episodes", "4")
    for name, gain in (("before", "0.5"), ("after", "0.9")):
        done = usage(*play, "--policy-arg", f"gain={gain}", "--metric", "return", "--in-process", "--output", name)
        assert done.returncode == 0, done.stderr
    said = " ".join(usage("compare", "before", "after").stdout.split())
    assert "by Student's t over pairs of the same episode" in said
    document = json.loads(usage("compare", "before", "after", "--json").stdout)
    assert (document["metric"], document["overall"]["n"]) == ("return", 4)
    assert usage("compare", "before", "after", "--metric", "success").returncode == 0
    page = usage("compare", "before", "after", "--html", "page.html", "--films", "1", "--in-process")
    assert page.returncode == 0, page.stderr
    assert page.stdout.splitlines()[-1] == "page.html"
    (one,) = page_content(tmp_path / "page.html")["comparisons"]
    assert (one["metric"], one["overall"]) == ("return", document["overall"])
    apart = [abs(episode["difference"]) for episode in one["flipped"]]
    assert apart == sorted(apart, reverse=True)
    first, *rest = one["flipped"]
    for side in first["sides"]:
        assert (tmp_path / unquote(side["film"])).stat().st_size > 0, side
    assert [side["film"] for episode in rest for side in episode["sides"]] == [""] * 2 * len(rest)


def test_a_page_shows_the_episodes_that_differ_most_with_the_plays_that_came_to_an_end() -> None:
    first, second = run_of(a=[1.0, 2.0, 3.0]), run_of(repeats=2, a=[1.0, 1.0, 9.0, 4.0, 3.0, 5.0])
    second = replace(second, rows=[replace(second.rows[0]), second.rows[1],
        replace(second.rows[2], outcome="error"), *second.rows[3:]])  # fmt: skip
    comparison = compare_returns(first, second)
    assert [(pair.number, pair.difference) for pair in comparison.episodes] == [(1, 2.0), (2, 1.0)]
    nothing = [FilmsOfRun(), FilmsOfRun()]
    (one,) = returns_content([comparison], [first, second], ["A", "B"], nothing)["comparisons"]
    assert [[side["return"] for side in episode["sides"]] for episode in one["flipped"]] == [[2.0, 4.0], [3.0, 3.0]]
    assert [episode["seed"] for episode in one["flipped"]] == [6, 7]
    assert one["left_out"] == 0
    many = compare_returns(run_of(a=[0.0] * 70), run_of(a=[float(n) for n in range(70)]))
    (one,) = returns_content([many], [run_of(a=[0.0] * 70)] * 2, ["A", "B"], nothing)["comparisons"]
    assert (len(one["flipped"]), one["left_out"]) == (60, 9)
    assert one["flipped"][0]["difference"] == 69.0

"""`sparring compare` and `sparring plan`: pairs, what is not comparable, and what is said aloud."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rows import ROW
from support import ROOT

from sparring.env_worker.benchmark import Task
from sparring.orchestrator.cli.main import main
from sparring.orchestrator.comparison.comparison import compare
from sparring.orchestrator.comparison.sequential import p_value
from sparring.orchestrator.display.comparison import sentences, verdict
from sparring.orchestrator.plan import Plan
from sparring.orchestrator.report.comparison import FilmsOfRun, comparison_content
from sparring.orchestrator.results.early_stop import EarlyStop
from sparring.orchestrator.results.makers import Maker
from sparring.orchestrator.results.results import Results
from sparring.protos.errors import UsageError
from sparring.protos.record import Outcome

FINISHED = ROOT / "tests" / "fixtures" / "release-0.1.0" / "finished"
WORDS: Mapping[str, Outcome] = {"+": "success", "-": "failure", "e": "error", "p": "played"}

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command in this process: its exit code, and what it said."""

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["sparring", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return int(str(ended.value.code)), said.out, said.err

    return run


def results(seed: int = 5, version: str = "1", settings: Mapping[str, Any] | None = None, **tasks: str) -> Results:
    """A run of some tasks; a sign per episode says how it ended."""
    names = [Task(name, "do it", name) for name in tasks]
    return Results(
        plan=Plan({"toy": names}, max(map(len, tasks.values())), seed),
        rows=[
            replace(ROW, task=name, index=index, seed=seed + index, outcome=WORDS[sign], maker=1)
            for name, signs in tasks.items()
            for index, sign in enumerate(signs)
        ],
        seconds=1.0,
        folder=None,
        makers={1: Maker(worker="w", host="h", versions={"worker": {"toy-simulator": version, "grpcio": version}})},
        settings={"benchmark": "toy", "benchmark_arg": {}, **(settings or {})},
    )


def test_pairs_are_of_the_same_episode() -> None:
    found = compare(results(a="++--+", b="--"), results(a="+-+++", b="++"))
    pairs = found.tasks["a"].pairs
    assert pairs is not None
    assert (pairs.both, pairs.only_first, pairs.only_second, pairs.neither) == (2, 1, 2, 0)
    assert [(str(id), won) for id, won in found.flipped] == [
        ("toy/a#1", False), ("toy/a#2", True), ("toy/a#3", True), ("toy/b#0", True), ("toy/b#1", True),
    ]  # fmt: skip
    assert found.overall.first == (3, 7)
    assert found.overall.second == (6, 7)
    assert found.overall.p_value == pytest.approx(0.375)  # 1 of 5: 2 * (1 + 5) / 32


def test_errors_are_nobodys_loss() -> None:
    found = compare(results(a="+e+-"), results(a="+-e+"))
    assert found.left_out == 2
    assert found.overall.first == (1, 2)
    assert found.overall.second == (2, 2)
    assert [id.index for id, _ in found.flipped] == [3]


def test_episodes_that_only_one_has_are_counted_and_left_out() -> None:
    found = compare(results(a="+-+"), results(a="+-+++"))
    assert found.unmatched == 2
    assert found.overall.first == (2, 3)


def test_other_seeds_are_no_pairs() -> None:
    found = compare(results(a="++++++++", seed=5), results(a="--------", seed=105))
    assert not found.paired
    assert found.flipped == []
    assert found.overall.p_value < 0.001
    assert found.is_decided
    assert verdict(found, ("A", "B")).startswith("B is worse than A: -100.0 points")


def test_what_cannot_be_told_apart_is_said_with_what_it_would_take() -> None:
    said = verdict(compare(results(a="+++++-----"), results(a="++++++----")), ("A", "B"))
    assert said.startswith("not distinguishable with these 10 episodes: +10.0 points (-20.5 to +40.4)")
    assert "To see a difference of 10.0 points you would need about 78 episodes." in said


def test_a_difference_of_nothing_asks_about_five_points() -> None:
    assert "a difference of 5.0 points" in verdict(compare(results(a="++++"), results(a="++++")), ("A", "B"))


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        (results(a="+-", version="2"), r"toy-simulator of toy: 1, 2\."),
        (results(a="+-", settings={"max_steps": 7}), r"max_steps: 0 \(the benchmark's own limit\) and 7\."),
        (results(a="+-", settings={"benchmark_arg": {"resolution": 64}}), r"toy, resolution: its default and 64\."),
    ],
)
def test_what_moves_a_score_is_not_compared(other: Results, sentence: str) -> None:
    mine = results(a="--")
    with pytest.raises(UsageError, match=sentence):
        compare(mine, other)
    assert len(compare(mine, other, force=True).obstacles) == 1


def test_a_package_that_moves_no_score_is_no_obstacle() -> None:
    assert compare(results(a="+-"), results(a="+-", settings={"slots": 3})).obstacles == []


def test_other_initial_states_are_not_compared() -> None:
    mine, other = results(a="+-"), results(a="+-")
    states = Plan({"toy": [replace(other.plan.tasks["toy"][0], initial_states=50)]}, 2, 5)
    with pytest.raises(UsageError, match="a: 0 and 50 initial states"):
        compare(mine, replace(other, plan=states))


def test_nothing_in_common() -> None:
    with pytest.raises(UsageError, match="no task in common: one is of a, and one is of b"):
        compare(results(a="+"), results(b="+"))
    with pytest.raises(UsageError, match="no rate to compare"):
        compare(results(a="+", seed=1), results(a="e", seed=9))


def test_a_run_that_goes_on_is_judged_by_whole_rounds() -> None:
    mine, other = results(a="-" * 20, b="-" * 20), results(a="+" * 12, b="+" * 9)
    going = replace(other, status="running", plan=replace(other.plan, episodes=20))
    found = compare(mine, going)
    assert found.rounds is not None
    assert found.rounds.n == 9, "of b there are nine"
    assert found.rounds.p_value == pytest.approx(p_value(0, 18))
    assert found.rounds.p_value > found.overall.p_value, "who may look at any time pays for it"
    assert found.rounds.chance == 1.0
    assert compare(mine, other).rounds is None
    errs = compare(mine, replace(results(a="+e+", b="+++"), status="unfinished"))
    assert errs.rounds is not None
    assert errs.rounds.n == 3
    assert errs.rounds.p_value == pytest.approx(min(p_value(0, 5), p_value(0, 3)))
    assert compare(results(a="+-", seed=1), replace(results(a="--", seed=9), status="running")).rounds is None


@pytest.mark.parametrize("how", ["running", "unfinished", "stopped early", "could stop early"])
def test_the_verdict_on_a_run_whose_length_was_not_settled_is_by_what_holds_whenever_one_looks(how: str) -> None:
    """Six pairs on one side are 0.03 by McNemar's test, which is for those who look once."""
    before, after = results(a="-" * 6, b="+" * 6), results(a="+" * 6, b="+" * 6)
    settled = compare(before, after)
    assert settled.is_decided
    assert settled.adjusted["a"] == pytest.approx(2 * 2 / 2**6)
    if how.endswith("early"):
        stopped = EarlyStop(reason="half-width", rounds=6, planned=20, alpha=0.05)
        whole = EarlyStop(rounds=6, planned=6, alpha=0.05)  # who has two ways to see a difference errs more often
        going = replace(after, early_stop=stopped if how == "stopped early" else whole)
    else:
        going = replace(after, status=how, plan=replace(after.plan, episodes=20))
    found = compare(before, going)
    assert found.overall.p_value == settled.overall.p_value <= 0.05 < found.p_value
    assert not found.is_decided
    assert found.p_value == pytest.approx(p_value(0, 6))
    assert found.adjusted == pytest.approx({"a": 2 * p_value(0, 6), "b": 1.0})
    assert verdict(found, ("A", "B")).startswith("not distinguishable with these 12 episodes")
    assert "p = 0.069" in verdict(found, ("A", "B"))
    (document, page) = found.to_json(), comparison_content([found], ["A", "B"], [FilmsOfRun(), FilmsOfRun()])
    assert (document["decided"], page["comparisons"][0]["decided"]) == (False, False)
    assert document["p_value"] == page["comparisons"][0]["p_value"] == found.p_value
    (said,) = [sentence for sentence, _ in sentences(found, ("A", "B")) if "whenever you look" in sentence]
    assert said.startswith(f"{how if how.endswith('early') else 'not finished'}: ")


def test_a_task_is_judged_by_the_rounds_of_its_own() -> None:
    mine, other = results(a="-" * 20, b="-" * 20), results(a="+" * 12, b="+" * 3)
    found = compare(mine, replace(other, status="running", plan=replace(other.plan, episodes=20)))
    assert found.rounds is not None
    assert found.rounds.n == 3
    assert found.adjusted["a"] == pytest.approx(2 * p_value(0, 12)), "that b is slow is not its fault"


def test_without_pairs_who_looks_early_is_warned() -> None:
    first, second = results(a="+" * 9, seed=1), results(a="-" * 9, seed=90)
    assert compare(first, second).cautions == []
    (said,) = compare(first, replace(second, status="running")).cautions
    assert "only if the number of episodes was fixed beforehand" in said


def test_outcomes_that_meet_only_errors_are_told() -> None:
    with pytest.raises(UsageError, match="no episode that has an outcome in both"):
        compare(results(a="+e"), results(a="e+"))


def test_another_renderer_is_told() -> None:
    mine, other = results(a="+-"), results(a="+-")
    there, here = (
        replace(run, rows=[replace(row, renderer=name) for row in run.rows])
        for run, name in ((mine, "a GPU"), (other, "llvmpipe"))
    )
    assert compare(there, here).cautions == ["images were drawn by a GPU, and by llvmpipe: their pixels differ."]
    assert compare(there, other).cautions == [], "nothing was drawn there"
    assert compare(there, there).cautions == []


def test_the_interval_over_tasks_is_scipys() -> None:
    from scipy import stats  # half a second of every worker that collects this file

    first = results(a="++--++--", b="--------", c="+-+-+-+-", d="++++++++")
    second = results(a="++++++--", b="+++++---", c="+-+-+-+-", d="+++++++-")
    expected = stats.ttest_1samp([0.25, 0.625, 0.0, -0.125], 0.0).confidence_interval(0.95)
    found = compare(first, second)
    assert found.such_tasks == pytest.approx((expected.low, expected.high))
    assert found.to_json()["interval_on_such_tasks"] == list(found.such_tasks or ())
    assert any("on tasks like these" in sentence for sentence, _ in sentences(found, ("A", "B")))
    low, high = found.such_tasks or (0.0, 0.0)
    assert high - low > found.overall.interval[1] - found.overall.interval[0], "a claim about a suite is less sure"
    assert compare(results(a="+-"), results(a="-+")).such_tasks is None, "one task says nothing of how tasks differ"


def test_tasks_that_got_better_and_worse_are_named() -> None:
    found = compare(results(a="-" * 9, b="+" * 9, c="+-"), results(a="+" * 9, b="-" * 9, c="-+"))
    told = [sentence for sentence, _ in sentences(found, ("A", "B"))]
    assert "tasks that got better (p by Holm at most 0.05): a" in told
    assert "tasks that got worse (p by Holm at most 0.05): b" in told


def test_holm_is_over_the_tasks_that_have_two_rates() -> None:
    found = compare(results(a="------", b="+", c="e"), results(a="++++++", b="+", c="+"))
    assert set(found.adjusted) == {"a", "b"}
    assert found.adjusted["a"] == pytest.approx(2 * 2 / 2**6)
    assert found.tasks["c"].difference is None


def test_the_command(command: Command, tmp_path: Path) -> None:
    other = shutil.copytree(FINISHED, tmp_path / "second")
    code, out, err = command("compare", FINISHED, other)
    assert (code, err) == (0, "")
    assert out.splitlines()[3].split()[:5] == ["task", "n", "finished", "second", "difference"]
    assert "not distinguishable with these 8 episodes" in out
    assert "4 episodes left out: not judged in both" in out
    document = json.loads(command("compare", FINISHED, other, "--json", "--tasks", "short")[1])
    assert document["overall"]["pairs"] == {"n": 4, "both": 2, "only_first": 0, "only_second": 0, "neither": 2}
    assert document["tasks"].keys() == {"short"}
    three = json.loads(command("compare", FINISHED, other, other, "--json")[1])
    assert [found["second"] for found in three] == [str(other), str(other)]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["compare", FINISHED], "two runs are needed"),
        (["compare", FINISHED, ROOT / "docs"], "is not the output folder of a run"),
        (["compare", FINISHED, FINISHED.parent / "unfinished"], "--force compares them all the same"),
        (["plan", "--rate", "0.8"], "say one of the two"),
        (["plan", "--rate", "0.8", "--half-width", "0.1", "--alpha", "0.01"], "--alpha goes with --difference"),
        (["plan", "--rate", "0.8", "--half-width", "0.1", "--discordant", "0.1"], "--discordant is about two"),
        (["plan", "--rate", "0.9", "--difference", "0.2"], "is not possible"),
        (["plan", "--rate", "0.9", "--difference", "0.05", "--discordant", "0.01"], "is not possible"),
    ],
)
def test_wrong_usage(command: Command, arguments: list[object], sentence: str) -> None:
    code, out, err = command(*arguments)
    assert (code, out) == (2, "")
    assert sentence in err


def test_a_plan_says_the_number_of_episodes(command: Command) -> None:
    _, out, _ = command("plan", "--rate", "0.8", "--difference", "0.05", "--tasks", "10")
    assert out.splitlines()[0].endswith(": 943 episodes of each")
    assert out.splitlines()[1] == "with 10 tasks: --episodes 95"
    assert command("plan", "--rate", "0.8", "--half-width", "0.05")[1].endswith("at 95 %: 245 episodes\n")

"""A run by several protocols where people look at it: each has its own rate, and all together have none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from rows import ROW
from support import Sparring
from toy_tracker import Diary

from sparring import compare, compare_returns
from sparring.orchestrator.results.results import Results
from sparring.orchestrator.run.listeners import RunStart
from sparring.orchestrator.run.make_plan import make_plan
from sparring.orchestrator.run.protocols import protocols_played
from sparring.orchestrator.settings import read_settings
from sparring.orchestrator.trackers.numbers import RunNumbers
from sparring.orchestrator.view.folder_watch import FolderWatch
from sparring.orchestrator.view.listener import LiveListener
from sparring.orchestrator.view.model import RunModel, SeenSoFar
from sparring.protos.errors import UsageError

BOTH = ["ours", "narrow"]
PLAY = (
    "run", "--benchmark", "toy", "--task", "short,long", "--policy", "toy_policies:Wanderer", "--in-process",
    "--protocols", "ours,narrow", "--episodes", "4", "--output", "out",
)  # fmt: skip


@pytest.fixture
def results() -> Results:
    """By ours every episode succeeds, by the other every second."""
    settings = read_settings(
        {"policy": "zero", "benchmark": "toy", "task": "short,long", "protocols": "ours,narrow", "episodes": 4}
    )
    plan = make_plan(settings)
    rows = [
        replace(
            ROW, benchmark=id.benchmark, task=id.task, index=id.index, seed=plan.seed_of(id),
            outcome="failure" if id.benchmark == "narrow" and id.index % 2 else "success",
        )
        for id in plan.ids()
    ]  # fmt: skip
    return Results(plan, rows, 1.0, None, settings=settings.flat(), protocols=protocols_played(settings))


def test_the_live_page_is_told_a_rate_and_a_curve_for_each(results: Results, tmp_path: Path) -> None:
    model = RunModel()
    heard = LiveListener(model, tmp_path)
    heard.on_start(RunStart(results.plan, results.rows[:3], results.settings, tmp_path, results.protocols))
    for row in results.rows[3:]:
        heard.on_result(row)
    news, seen = model.news(SeenSoFar())
    assert news is not None
    assert news["about"]["protocols"] == BOTH
    progress = news["progress"]
    assert [progress[name] for name in ("rate", "interval", "any_time", "mean")] == [None] * 4
    assert (progress["done"], progress["judged"], progress["successes"]) == (16, 16, 12)
    of_each = {name: results.benchmarks[name] for name in BOTH}
    assert {one["name"]: one["rate"] for one in progress["by"]} == {"ours": 1.0, "narrow": 0.5}
    assert [one["interval"] for one in progress["by"]] == [pytest.approx(found.interval) for found in of_each.values()]
    assert all(one["any_time"] for one in progress["by"])
    for number, rate in enumerate((1.0, 0.5)):
        own = [point for point in news["curve"] if point[4] == number]
        assert [point[0] for point in own] == list(range(1, 9))
        assert own[-1][1] == rate
    assert model.news(seen)[0] is None


def test_a_folder_that_is_followed_shows_the_same(usage: Sparring, tmp_path: Path) -> None:
    done = usage(*PLAY)
    assert done.returncode == 0, done.stderr
    model = RunModel()
    FolderWatch(model, tmp_path / "out").refresh()
    news, _ = model.news(SeenSoFar())
    assert news is not None
    found = Results.load(tmp_path / "out")
    rates = {name: found.benchmarks[name].success_rate for name in BOTH}
    assert {one["name"]: one["rate"] for one in news["progress"]["by"]} == rates
    assert news["progress"]["rate"] is None


def test_a_tracker_is_told_a_rate_for_each_on_the_way(
    results: Results, usage: Sparring, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = RunNumbers(results.plan, results.rows[:-1], BOTH)
    counted.add(results.rows[-1])
    assert counted.episodes == 16
    numbers = counted.numbers(results.rows[-1])
    assert "progress/success_rate" not in numbers
    assert numbers["progress/protocol/narrow/success_rate"] == 0.5
    assert numbers["progress/protocol/narrow/success_low"] == pytest.approx(results.benchmarks["narrow"].interval[0])
    monkeypatch.setattr(Diary, "pages", [])
    assert usage(*PLAY, "--track", "diary").returncode == 0
    told = {name for page in Diary.pages if page[0] == "log" for name in page[1]}
    assert {f"progress/protocol/{name}/success_rate" for name in BOTH} <= told
    assert "progress/success_rate" not in told


def test_a_plot_has_a_bar_for_each(results: Results) -> None:
    import matplotlib

    matplotlib.use("agg")
    axes = results.plot()
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels[-2:] == ["overall by ours", "overall by narrow"]
    assert "overall" not in labels
    assert [bar.get_width() for bar in axes.patches][-2:] == [1.0, 0.5]


def test_one_is_compared_at_a_time(results: Results, usage: Sparring) -> None:
    for made in (compare, compare_returns):
        with pytest.raises(UsageError, match=r"by several protocols \(ours, narrow\)"):
            made(results, results, force=True)
        made(results.select("narrow"), results.select("narrow"))
    assert usage(*PLAY).returncode == 0
    refused = usage("compare", "out", "out")
    assert refused.returncode == 2
    assert "Compare one at a time, such as --tasks ours." in " ".join(refused.stderr.split())
    assert usage("compare", "out", "out", "--tasks", "ours").returncode == 0

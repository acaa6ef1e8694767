"""What a live page is told: of a run as it goes, of a folder that others write to, of the runs in a folder."""

from __future__ import annotations

import json
import os
import random
import statistics
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from rows import ROW
from support import Sparring

from sparring.env_worker.benchmark import Task
from sparring.orchestrator.plan import EpisodeId, Plan
from sparring.orchestrator.results.early_stop import EarlyStop
from sparring.orchestrator.results.finite import finite
from sparring.orchestrator.results.intervals import student, t_quantile, wilson
from sparring.orchestrator.results.results import Results
from sparring.orchestrator.results.statistics import Summary
from sparring.orchestrator.run.listeners import FilmCount, RunEnd, RunStart, SlotActivity, SlotFrame
from sparring.orchestrator.serving.stats import ServerLoad
from sparring.orchestrator.view import listener as listener_module
from sparring.orchestrator.view.convergence import Convergence
from sparring.orchestrator.view.folder_watch import FolderWatch
from sparring.orchestrator.view.library import Library
from sparring.orchestrator.view.listener import LatestFrames, LiveListener
from sparring.orchestrator.view.model import RunFacts, RunModel, SeenSoFar
from sparring.protos.errors import SparringError, UsageError

PLAN = Plan({"toy": [Task("a", "go", "g"), Task("b", "go", "g")]}, 3, 5)
SETTINGS = {"policy": "forward", "metric": "success"}
RUN = ("run", "--in-process", "--benchmark", "toy", "--policy", "toy_policies:Forward", "--task", "short")


def row(task: str = "a", index: int = 0, outcome: str = "success", **more: Any) -> Any:
    return replace(ROW, task=task, index=index, outcome=outcome, **more)


def plan_of(tasks: int, episodes: int, repeats: int = 1) -> Plan:
    return Plan({"toy": [Task("ab"[number], "go", "g") for number in range(tasks)]}, episodes, 5, repeats=repeats)


def started(tmp_path: Path, *recorded: Any) -> tuple[RunModel, LiveListener]:
    model = RunModel()
    heard = LiveListener(model, tmp_path)
    heard.on_start(RunStart(PLAN, recorded, SETTINGS, tmp_path))
    return model, heard


def test_who_comes_late_sees_all_of_it_and_from_then_on_what_is_new(tmp_path: Path) -> None:
    model, heard = started(tmp_path, row(index=1))
    heard.on_result(row("b", 2, "failure"))
    news, seen = model.news(SeenSoFar())
    assert news is not None
    assert [task["name"] for task in news["about"]["tasks"]] == ["a", "b"]
    assert [cell[:3] for cell in news["cells"]] == [[0, 1, "success"], [1, 2, "failure"]]
    assert (news["status"], news["progress"]["done"], news["progress"]["rate"]) == ("running", 2, 0.5)
    assert news["progress"]["interval"] == list(wilson(1, 2))
    assert model.news(seen) == (None, seen), "nothing is new"
    heard.on_result(row("a", 0, "error", error="it broke"))
    news, seen = model.news(seen)
    assert news is not None
    assert set(news) == {"cells", "curve", "progress", "notes"}
    assert (len(news["cells"]), news["curve"], news["progress"]["errors"]) == (1, [], 1)
    heard.on_film(row("b", 2, "failure", video="videos/b.mp4"))
    news, seen = model.news(seen)
    assert news is not None
    assert (news["cells"][0][5], news["progress"]["judged"]) == ("videos/b.mp4", 2), "a film is no other episode"
    json.dumps(news, allow_nan=False)


def test_slots_films_servers_warnings_and_the_end(tmp_path: Path) -> None:
    model, heard = started(tmp_path)
    _, seen = model.news(SeenSoFar())
    heard.on_worker("w", 2)
    heard.on_activity(SlotActivity("w", 1, "a", 0, steps=7))
    heard.on_films(FilmCount(3, 1, 0))
    heard.on_stats(ServerLoad(2, 1, {1: 5, 2: 3}, {"batches": 8}))
    heard.on_warning("beware")
    news, seen = model.news(seen)
    assert news is not None
    assert [(slot["slot"], slot["task"], slot["steps"]) for slot in news["slots"]] == [(0, "", 0), (1, "a", 7)]
    assert news["films"] == {"wanted": 3, "made": 1, "missing": 0}
    assert (news["server"]["waiting"], news["server"]["sizes"]) == (1, [[1, 5], [2, 3]])
    assert [(note["kind"], note["sentence"]) for note in news["notes"]][-1] == ("warning", "beware")
    heard.on_worker("w", 0)
    heard.on_end(RunEnd(None, SparringError("the disk is full.")))
    news, _ = model.news(seen)
    assert news is not None
    assert (news["slots"], news["status"]) == ([], "unfinished")
    assert news["notes"][-1]["sentence"] == "the run has ended: the disk is full."


def test_after_an_early_stop_it_shows_what_the_results_say(tmp_path: Path) -> None:
    model, heard = started(tmp_path)
    heard.on_warning("it is warm in here.")
    come = [row("b", 0), row("a", 0, "failure"), row("a", 1, "failure"), row("a", 2, "failure")]
    for one in come:
        heard.on_result(one)
    _, seen = model.news(SeenSoFar())
    stop = EarlyStop(reason="half-width", rounds=1, planned=3, alpha=0.05)
    plan = replace(PLAN, episodes=1)
    results = Results(plan=plan, rows=[come[1], come[0]], seconds=1.0, folder=tmp_path, early_stop=stop)
    heard.on_end(RunEnd(results, None))
    news, _ = model.news(seen)
    assert news is not None
    assert (news["status"], news["status_told"]) == ("finished", "stopped early: 1 of 3 rounds")
    assert (news["about"]["planned"], news["about"]["title"]) == (2, "forward on toy: 2 tasks × 1 episode")
    assert (news["progress"]["done"], news["progress"]["rate"]) == (2, results.overall.success_rate)
    assert [cell[:2] for cell in news["cells"]] == [[1, 0], [0, 0]], "in the order in which they came"
    assert [note["sentence"] for note in news["notes"]] == ["it is warm in here."]


def test_the_same_error_is_told_once_with_how_often_it_came(tmp_path: Path) -> None:
    model, heard = started(tmp_path)
    for index in range(3):
        heard.on_retry(EpisodeId("toy", "a", index), f"a #{index}: the arm fell off")
    news, _ = model.news(SeenSoFar())
    assert news is not None
    (note,) = news["notes"]
    assert (note["kind"], note["n"], note["episodes"], note["last"]) == ("retry", 3, 3, "a #2")


def test_notes_have_a_limit(tmp_path: Path) -> None:
    model, heard = started(tmp_path)
    for number in range(500):
        heard.on_warning(f"warning {number}")
    news, _ = model.news(SeenSoFar())
    assert news is not None
    assert [note["sentence"] for note in news["notes"]] == [f"warning {number}" for number in range(300, 500)]


def test_a_curve_has_the_rate_after_each_episode_and_few_points_of_many() -> None:
    converging = Convergence(plan_of(1, 100_000), "success")
    for index in range(3):
        converging.add(row(index=index, outcome="failure" if index == 1 else "success"))
    assert converging.points == [(n, s / n, *wilson(s, n)) for s, n in ((1, 1), (1, 2), (2, 3))]
    for index in range(3, 20_000):
        converging.add(row(index=index))
    assert len(converging.points) < 6_000
    assert converging.points[-1][0] > 19_900


def test_a_mean_has_students_interval() -> None:
    converging = Convergence(plan_of(1, 4), "return")
    values = [1e9 + 1.0, 1e9 + 2.5, 1e9 + 2.0, 1e9 - 1.0]
    for index, value in enumerate(values):
        converging.add(row(index=index, outcome="played", reward_sum=value))
    told = converging.to_json()
    assert told["mean"] == pytest.approx(sum(values) / 4, rel=1e-15)
    assert told["mean_interval"] == pytest.approx(student(values), rel=1e-12)
    assert [point[0] for point in converging.points] == [1, 2, 3, 4]
    assert converging.points[0][2:] == (None, None)


def test_an_interval_for_any_time_is_of_whole_rounds_as_in_reports() -> None:
    converging = Convergence(plan_of(2, 2), "success")
    converging.add(row("a", 0))
    converging.add(row("a", 1))
    assert converging.to_json()["any_time"] is None, "task b has not been played: who ends early may be easy"
    converging.add(row("b", 0, "failure"))
    from sparring.orchestrator.comparison.sequential import rate_interval

    assert converging.to_json()["any_time"] == rate_interval(1, 2)


def test_plays_of_one_episode_are_not_episodes_of_their_own() -> None:
    """As in results and reports: intervals are of what the plays are worth, and rounds have all of an episode's."""
    plan = plan_of(1, 3, repeats=2)
    rows = [row(index=n, seed=5 + n // 2, outcome="failure" if n // 2 == 1 else "success") for n in range(6)]
    for metric in ("success", "return"):
        converging = Convergence(plan, metric)
        for one in rows[:5]:
            converging.add(one)
        told, summary = converging.to_json(), Summary.of(rows[:5])
        assert told["interval"] == pytest.approx(summary.interval)
        assert told["interval"] != pytest.approx(wilson(3, 5))
        assert summary.returns is not None
        assert told["mean_interval"] == pytest.approx(summary.returns.interval)
        from sparring.orchestrator.comparison.sequential import rate_interval

        assert told["any_time"] == rate_interval(1, 2), "two episodes have been played as often as they shall be"


def plays_in_any_order(plan: Plan, generator: random.Random) -> list[Any]:
    outcomes = ("success", "failure", "error")
    found = [
        row(id.task, id.index, generator.choices(outcomes, (1 + plan.round_of(id.index) % 4, 2, 0.5))[0],
            seed=5 + plan.round_of(id.index), reward_sum=generator.gauss(plan.round_of(id.index) % 7, 1.0))
        for id in plan.ids()
    ]  # fmt: skip
    generator.shuffle(found)
    return found


def test_what_is_counted_play_by_play_is_what_results_say_of_all_of_them() -> None:
    from sparring.orchestrator.comparison.sequential import rate_interval
    from sparring.orchestrator.comparison.shares import shares

    plan, generator = plan_of(2, 60, repeats=3), random.Random(4)
    converging, known = Convergence(plan, "success"), {}
    rows = plays_in_any_order(plan, generator)
    again = [replace(one, outcome="failure") for one in rows if one.outcome == "error"]
    for number, one in enumerate([*rows, *again]):
        converging.add(one, known.get(one.id))
        known[one.id] = one
        if number % 10 and one not in again:
            continue
        told, summary = converging.to_json(), Summary.of(known.values())
        assert told["interval"] == (None if summary.judged == 0 else pytest.approx(summary.interval, abs=1e-9))
        assert summary.returns is None or told["mean_interval"] == (
            None if summary.returns.interval is None else pytest.approx(summary.returns.interval, abs=1e-9)
        )
        played = Counter(plan.round_of(id.index) for id in known)
        whole = next((index for index in range(plan.episodes) if played[index] < 6), plan.episodes)
        found = [share.success for key, share in shares(known.values(), plan).items() if key[2] < whole]
        judged = [share for share in found if share is not None]
        expected = rate_interval(sum(judged), len(judged)) if judged else None
        assert told["any_time"] == (None if expected is None else pytest.approx(expected, abs=1e-9))
    assert len(again) > 10


@pytest.mark.parametrize("metric", ["success", "return"])
def test_a_play_costs_the_same_however_many_there_were(metric: str) -> None:
    """It is counted in the run's own loop: all rows at every point were minutes of 10,000 plays."""
    plan = plan_of(2, 200, repeats=2)
    for freedom in range(1, 400):
        t_quantile(freedom)  # which is worked out once for each number of episodes
    converging, calls = Convergence(plan, metric), []
    counted = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    for one in plays_in_any_order(plan, random.Random(2)):
        before = counted
        sys.setprofile(count)
        try:
            converging.add(one)
        finally:
            sys.setprofile(None)
        calls.append(counted - before)
    # Medians: the collector of garbage may come in between.
    assert statistics.median(calls[-100:]) < 1.5 * statistics.median(calls[100:200])


def test_a_grid_has_a_cell_for_each_play(tmp_path: Path) -> None:
    facts = RunFacts("t", tmp_path, plan_of(2, 3, repeats=2), "success", False)
    assert (facts.to_json()["per_task"], facts.to_json()["planned"]) == (6, 12)


def test_an_error_that_is_played_again_is_not_counted_twice() -> None:
    converging = Convergence(plan_of(1, 1), "success")
    broken = row(outcome="error")
    converging.add(broken)
    converging.add(row(), broken)
    assert (converging.to_json()["errors"], converging.to_json()["judged"]) == (0, 1)


def test_a_slot_is_watched_while_somebody_looks_and_a_frame_is_of_what_it_plays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr(listener_module.time, "monotonic", lambda: now)
    frames, image = LatestFrames(), SlotFrame("w", 0, "a", 0, 3, b"png")
    frames.add(image)
    assert (frames.look("w", 0), list(frames.watched("w")), list(frames.watched("x"))) == (None, [0], [])
    frames.add(image)
    assert frames.look("w", 0) == image
    frames.drop(SlotActivity("w", 0, "a", 0, 9))
    assert frames.look("w", 0) == image
    frames.drop(SlotActivity("w", 0, "a", 1))
    assert frames.look("w", 0) is None, "it plays another"
    frames.add(image)
    now = 104.5
    assert list(frames.watched("w")) == []
    assert frames.look("w", 0) is None, "nobody has looked for a while: it would be old"


def test_a_folder_is_followed_to_its_end_and_a_resume(usage: Sparring, tmp_path: Path) -> None:
    assert usage(*RUN, "--episodes", "2", "--output", "out").returncode == 0
    model = RunModel()
    watch = FolderWatch(model, tmp_path / "out")
    watch.refresh()
    news, seen = model.news(SeenSoFar())
    assert news is not None
    assert (len(news["cells"]), news["status"], news["about"]["has_slots"]) == (2, "finished", False)
    assert news["server"]["sizes"], "batches are in the journal"
    watch.refresh()
    assert model.news(seen) == (None, seen)
    assert usage(*RUN, "--episodes", "3", "--output", "out").returncode == 0
    watch._next = 0.0
    watch.refresh()
    news, _ = model.news(seen)
    assert news is not None
    assert (news["about"]["per_task"], len(news["cells"])) == (3, 3), "another plan: it is told from the start"


def test_what_cannot_be_read_is_told_and_not_raised(tmp_path: Path) -> None:
    model = RunModel()
    FolderWatch(model, tmp_path / "gone").refresh()
    news, seen = model.news(SeenSoFar())
    assert news is not None
    assert news["status"] == "unreadable"
    assert "there is no" in news["status_told"]
    assert model.news(seen) == (None, seen)


def test_rows_come_in_the_order_in_which_they_were_recorded(usage: Sparring, tmp_path: Path) -> None:
    assert usage(*RUN[:-1], "good", "--episodes", "2", "--output", "out").returncode == 0
    model = RunModel()
    FolderWatch(model, tmp_path / "out").refresh()
    news, _ = model.news(SeenSoFar())
    assert news is not None
    by_name = [(row.task, row.index) for row in Results.load(tmp_path / "out").rows]
    names = [task["name"] for task in news["about"]["tasks"]]
    told = [(names[cell[0]], cell[1]) for cell in news["cells"]]
    assert sorted(told) == by_name
    assert told[0][0] == "short", "the plan's first, and not the alphabet's"


def test_runs_are_found_in_folders_and_links_are_not_followed(usage: Sparring, tmp_path: Path) -> None:
    assert usage(*RUN, "--episodes", "1", "--output", "here/deep/run").returncode == 0
    assert usage(*RUN, "--episodes", "1", "--output", "elsewhere/secret").returncode == 0
    (tmp_path / "here" / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "here" / "bad").mkdir()
    (tmp_path / "here" / "bad" / "run.json").write_text("{}")
    (tmp_path / "here" / "newer").mkdir()
    (tmp_path / "here" / "newer" / "run.json").write_text('{"schema": 9999}')
    (tmp_path / "here" / "sham").mkdir()
    (tmp_path / "here" / "sham" / "run.json").symlink_to(tmp_path / "elsewhere" / "secret" / "run.json")
    library = Library([tmp_path / "here"])
    listed = {line["name"]: line for line in library.listed()}
    assert set(listed) == {os.path.join("deep", "run"), "bad", "newer"}
    assert (listed["deep/run"]["status"], listed["deep/run"]["recorded"]) == ("finished", 1)
    assert listed["deep/run"]["overall"]["success_rate"] == 1.0
    assert "a newer release" in listed["newer"]["problem"]
    assert "damaged" in listed["bad"]["problem"]
    assert library.only is None
    one = Library([tmp_path / "here" / "deep" / "run"])
    assert one.only is not None
    assert library.get(one.only.id) is not None, "the same run has the same address, whichever way it was named"
    assert library.get("nonsense") is None


def test_folders_that_are_none_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="is not a folder"):
        Library([tmp_path / "file"])
    with pytest.raises(UsageError, match="there is no"):
        Library([tmp_path / "nowhere"])
    assert Library([tmp_path]).listed() == [], "an empty one may have runs yet"


def test_who_looks_does_not_keep_the_run_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    model = RunModel()
    plan = Plan({"toy": [Task("x", "go", "g")]}, 4, 5)
    model.begin(RunFacts("t", Path("x"), plan, "success", True), [ROW])
    model.worker("w", 2)
    ready: list[bool] = []

    def told_meanwhile(value: object) -> object:
        teller = Thread(target=model.add, args=(replace(ROW, index=2),))
        teller.start()
        teller.join(60)
        ready.append(not teller.is_alive())
        return finite(value)

    monkeypatch.setattr("sparring.orchestrator.view.model.finite", told_meanwhile)
    monkeypatch.setattr(RunFacts, "to_json", lambda _: told_meanwhile({}))
    news, seen = model.news(SeenSoFar())
    assert ready == [True, True], "making JSON of it takes long, and nobody waits for that"
    assert news is not None
    assert (len(news["cells"]), len(news["slots"])) == (1, 2)
    later, _ = model.news(seen)
    assert later is not None
    assert (len(later["cells"]), later["progress"]["done"], later["progress"]["judged"]) == (1, 2, 2)


def test_a_plan_is_counted_without_its_episodes(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Plan({"toy": [Task("x", "go", "g"), Task("y", "go", "g")], "other": [Task("x", "go", "g")]}, 4, 5, repeats=3)
    some = replace(plan, only=frozenset(plan.ids()[::2]) | {EpisodeId("toy", "nothing", 0)})
    assert (plan.count, some.count) == (len(plan.ids()), len(some.ids())) == (36, 18)
    monkeypatch.setattr(Plan, "ids", lambda _: pytest.fail("a million of them take a second"))
    model = RunModel()
    model.begin(RunFacts("t", Path("x"), plan, "success", True), [ROW])
    news, _ = model.news(SeenSoFar())
    assert news is not None
    assert news["about"]["planned"] == 36

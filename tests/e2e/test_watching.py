"""Watching evaluations: what listeners hear of a real run, from its start to its end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from toy_policies import Forward, Raises, WantsTooMuch

from sparring import EpisodeRow, Evaluator, Results, RunEnd, RunListener, RunStart, SlotActivity
from sparring.orchestrator.plan import EpisodeId
from sparring.orchestrator.run.errors import Interrupted
from sparring.protos.errors import UsageError

TOY: dict[str, Any] = {"benchmark": "toy", "tasks": "good", "episodes": 3, "slots": 2}


@pytest.fixture(scope="module")
def evaluator() -> Iterator[Evaluator]:
    with Evaluator() as made:
        yield made


class Diary(RunListener):
    """Writes down all it hears."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, Any]] = []

    def of(self, kind: str) -> list[Any]:
        return [what for heard, what in self.heard if heard == kind]

    def on_start(self, start: RunStart) -> None:
        self.heard.append(("start", start))

    def on_worker(self, worker: str, slots: int) -> None:
        self.heard.append(("worker", (worker, slots)))

    def on_activity(self, activity: SlotActivity) -> None:
        self.heard.append(("activity", activity))

    def on_retry(self, episode: EpisodeId, reason: str) -> None:
        self.heard.append(("retry", (episode, reason)))

    def on_result(self, row: EpisodeRow) -> None:
        self.heard.append(("result", row))

    def on_warning(self, sentence: str) -> None:
        self.heard.append(("warning", sentence))

    def on_end(self, end: RunEnd) -> None:
        self.heard.append(("end", end))


def test_a_listener_hears_of_everything_from_start_to_end(evaluator: Evaluator, tmp_path: Path) -> None:
    diary, other = Diary(), Diary()
    results = evaluator.evaluate(Forward(), **TOY, output=tmp_path / "out", watchers=[diary, other])
    assert diary.heard == other.heard
    assert diary.heard[0][0] == "start"
    assert diary.heard[-1] == ("end", RunEnd(results, None))
    start: RunStart = diary.heard[0][1]
    assert (start.plan, start.recorded, start.folder) == (results.plan, [], tmp_path / "out")
    assert start.settings["episodes"] == 3
    assert sorted(diary.of("result"), key=lambda row: row.id) == list(results.rows)
    assert diary.of("worker") == [("toy-0", 2)]
    assert diary.of("retry") == []
    for row in results.rows:
        kinds = [
            kind
            for kind, what in diary.heard
            if (kind == "result" and what == row)
            or (kind == "activity" and (what.task, what.index) == (row.task, row.index))
        ]
        assert kinds[0] == "activity", "the episode begins"
        assert kinds[-1] == "result", "and nothing is heard of it when it is recorded"


def test_the_next_call_has_listeners_of_its_own(evaluator: Evaluator) -> None:
    first, second = Diary(), Diary()
    evaluator.evaluate(Forward(), **TOY, watchers=[first])
    heard = len(first.heard)
    results = evaluator.evaluate(Forward(), **TOY, seed=5, watchers=[second])
    assert len(first.heard) == heard
    assert len(second.of("result")) == 6
    assert second.of("worker") == [("toy-0", 2)], "the workers that stayed are told, too"
    assert second.of("start")[0].folder is None, "nothing is kept"
    assert second.of("end") == [RunEnd(results, None)]
    assert results.folder is None


def test_errors_and_retries_are_heard(evaluator: Evaluator) -> None:
    diary = Diary()
    evaluator.evaluate(Raises(), **TOY, retries=1, watchers=[diary])
    # Who shared a batch with one of these is tried again, too.
    broken = {(episode.task, episode.index) for episode, why in diary.of("retry") if "my knees are weak" in why}
    assert broken == {("short", 1), ("long", 1)}
    assert sorted(row.outcome for row in diary.of("result")) == ["error"] * 2 + ["success"] * 4


def test_a_run_that_fails_has_an_end_with_its_error(evaluator: Evaluator) -> None:
    diary = Diary()
    with pytest.raises(UsageError) as raised:
        evaluator.evaluate(WantsTooMuch(), **TOY, watchers=[diary])
    assert diary.heard[0][0] == "start"
    (end,) = diary.of("end")
    assert end.error is raised.value
    assert diary.heard[-1][0] == "end"


def test_a_run_that_is_interrupted_has_an_end_with_what_there_is(tmp_path: Path) -> None:
    diary, one = Diary(), threading.Event()

    class First(RunListener):
        def on_result(self, row: EpisodeRow) -> None:
            one.set()

    with Evaluator() as evaluator:

        def close() -> None:
            one.wait(60)
            evaluator.close()

        closing = threading.Thread(target=close)
        closing.start()
        slow = {**TOY, "benchmark_arg": {"step_seconds": 0.05}}
        with pytest.raises(Interrupted):
            evaluator.evaluate(Forward(), **slow, output=tmp_path / "out", watchers=[First(), diary])
        closing.join(60)
    (end,) = diary.of("end")
    assert diary.heard[-1] == ("end", end)
    assert isinstance(end.error, BaseException)
    assert end.results is not None
    assert end.results.status == "unfinished"
    assert 1 <= len(end.results.rows) < 6
    assert Results.load(tmp_path / "out") == end.results


class Warns(Forward):
    warnings = ("it is slow on Mondays",)


def test_a_warning_is_heard_once(evaluator: Evaluator) -> None:
    diary = Diary()
    results = evaluator.evaluate(Warns(), **TOY, watchers=[diary])
    assert diary.of("warning") == list(results.warnings) == ["it is slow on Mondays"]


class Bad(RunListener):
    def on_result(self, row: EpisodeRow) -> None:
        raise RuntimeError("the tracker is down")


def test_a_listener_that_raises_changes_no_number(evaluator: Evaluator, caplog: pytest.LogCaptureFixture) -> None:
    diary = Diary()
    results = evaluator.evaluate(Forward(), **TOY, watchers=[Bad(), diary])
    assert results.overall.n == 6
    assert len(diary.of("result")) == 6
    assert len([line for line in caplog.messages if "the tracker is down" in line]) == 1


def test_what_is_no_listener_is_refused_before_anything_starts(evaluator: Evaluator) -> None:
    with pytest.raises(UsageError, match="cannot watch a run"):
        evaluator.evaluate(Forward(), **TOY, watchers=[print])  # type: ignore[list-item] # what a user may do

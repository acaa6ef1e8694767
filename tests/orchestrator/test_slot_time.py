"""How long slots had nothing to do: counted while a run goes on, over all its executions."""

from __future__ import annotations

from pathlib import Path

import pytest
from toy_policies import Forward

from sparring import evaluate
from sparring.orchestrator.report.content import report_content
from sparring.orchestrator.results.document import read_document
from sparring.orchestrator.results.results import Results
from sparring.orchestrator.run import slot_time
from sparring.orchestrator.run.listeners import SlotActivity
from sparring.orchestrator.run.slot_time import SlotClock, SlotSeconds


class Clock:
    """Of nobody's machine."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(slot_time, "time", clock)
    return clock


def test_a_slot_is_idle_but_for_what_it_plays_and_films(clock: Clock) -> None:
    slots = SlotClock()
    clock.now += 50  # nobody is there yet
    slots.on_worker("w", 2)
    clock.now += 1
    slots.on_activity(SlotActivity("w", 0, "reach", 3))
    clock.now += 10
    slots.on_activity(SlotActivity("w", 0, "reach", 3, steps=20))
    slots.on_activity(SlotActivity("w", 1, "push", 0, replay=True))
    clock.now += 5
    slots.on_activity(SlotActivity("w", 0))
    slots.on_activity(SlotActivity("nobody", 0, "reach", 4))  # has left, or never came
    clock.now += 2
    slots.on_worker("w", 0)
    clock.now += 100
    assert SlotSeconds.noted(slots.to_json()) == SlotSeconds(playing=15.0, films=7.0, idle=1 + 1 + 10 + 2)


def test_more_slots_leave_what_the_others_do_alone(clock: Clock) -> None:
    slots = SlotClock()
    slots.on_worker("w", 1)
    slots.on_activity(SlotActivity("w", 0, "reach", 0))
    slots.on_worker("w", 2)
    clock.now += 4
    assert slots.to_json() == {"playing": 4.0, "films": 0.0, "idle": 4.0}


def test_it_goes_on_from_what_earlier_executions_have_noted(clock: Clock) -> None:
    noted = SlotClock({"playing": 1.0, "films": 2.0, "idle": 3.0}, is_first=False)
    noted.on_worker("w", 1)
    clock.now += 4
    assert noted.to_json() == {"playing": 1.0, "films": 2.0, "idle": 7.0}
    assert SlotClock(None, is_first=False).to_json() is None, "a release before 0.2 did not count: the rest is no whole"


@pytest.mark.parametrize(
    "note",
    [None, 3, [], {}, {"playing": 1}]
    + [{"playing": wrong, "films": 0, "idle": 0} for wrong in ("x", -1, 1e999, None, 10**400)],
)
def test_what_makes_no_sense_is_not_known(note: object) -> None:
    assert SlotSeconds.noted(note) is None


def test_a_report_says_how_long_slots_were_idle(tmp_path: Path) -> None:
    """The seconds that are told make up the time that the slot was there."""

    evaluate(Forward(), benchmark="toy", tasks="short", episodes=2, output=tmp_path / "run", in_process=True)
    results = Results.load(tmp_path / "run")
    content = report_content(results, read_document(tmp_path / "run"), tmp_path / "run")
    seconds = SlotSeconds.noted(results.notes["slot_seconds"])
    assert seconds is not None
    assert seconds.playing >= sum(row.physics_s + row.policy_s for row in results.rows) > 0
    assert list(content["time"]) == ["physics", "rendering", "policy", "transport", "other", "films", "idle"]
    assert sum(content["time"].values()) == pytest.approx(seconds.playing + seconds.films + seconds.idle)
    assert seconds.playing + seconds.films + seconds.idle <= results.seconds * 1.001
    assert sum(n for _, n in content["batches"]) == results.server_stats.batches  # type: ignore[union-attr]
    part = report_content(results.select("short"), read_document(tmp_path / "run"), tmp_path / "run")
    assert "idle" not in part["time"], "of some tasks nobody knows it"

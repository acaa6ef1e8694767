"""A run that somebody watches: frames come from where it is played, and its rows are the same, bit for bit."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict
from typing import Any

import pytest
from support import MAKER_COLUMNS, TIMING_COLUMNS
from toy_policies import Forward

from sparring import Evaluator, Results, RunListener, SlotFrame
from sparring.env_worker.episode import live_frames
from sparring.policy_server.policies import load_policy
from sparring.policy_server.policies.metaworld_expert import MetaworldExpert


class Looks(RunListener):
    """Looks at every slot, all the time."""

    def __init__(self) -> None:
        self.frames: list[SlotFrame] = []
        self.loads: list[Any] = []

    def watched(self, worker: str) -> Collection[int]:
        return range(8)

    def on_frame(self, frame: SlotFrame) -> None:
        self.frames.append(frame)

    def on_stats(self, load: Any) -> None:
        self.loads.append(load)


def rows(results: Results) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in asdict(row).items() if name not in TIMING_COLUMNS | MAKER_COLUMNS}
        for row in results.rows
    ]


@pytest.mark.parametrize("in_process", [False, True])
def test_rows_are_the_same_with_and_without_a_viewer(warm: Evaluator, in_process: bool) -> None:
    plan: dict[str, Any] = {"benchmark": "toy", "tasks": "long", "episodes": 4, "benchmark_arg": {"step_seconds": 0.03}}
    plan |= {"in_process": True} if in_process else {"slots": 2}
    looks = Looks()
    watched = warm.evaluate(Forward(), watchers=[looks], **plan)
    assert rows(watched) == rows(warm.evaluate(Forward(), **plan))
    assert looks.frames, "somebody has looked"
    assert {frame.task for frame in looks.frames} == {"long"}
    assert all(frame.image.startswith(b"\x89PNG") and frame.steps < 200 for frame in looks.frames)
    assert sum(row.renders for row in watched.rows) == 0
    assert looks.loads[-1].batches
    assert looks.loads[-1].summary["observations"] == sum(row.round_trips for row in watched.rows)


@pytest.mark.everything
def test_metaworld_is_the_same_with_and_without_a_viewer(warm: Evaluator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_frames, "_EVERY_SECONDS", 0.0)
    monkeypatch.setattr(live_frames, "_PAUSE", 0.0)
    plan: dict[str, Any] = {"benchmark": "metaworld", "tasks": "reach-v3", "episodes": 1, "in_process": True}
    plan |= {"max_steps": 12, "benchmark_arg": {"resolution": 64}, "actions": True}
    looks = Looks()
    watched = warm.evaluate(MetaworldExpert(), watchers=[looks], **plan)
    assert rows(watched) == rows(warm.evaluate(MetaworldExpert(), **plan))
    assert [frame.steps for frame in looks.frames] == list(range(13))
    assert len({frame.image for frame in looks.frames}) > 6, "they show what moves"
    (row,) = watched.rows
    assert (row.renders, row.renderer) == (0, "")


@pytest.mark.everything
@pytest.mark.requires("rendering")
def test_a_gymnasium_environment_that_renders_is_seen(warm: Evaluator) -> None:
    plan: dict[str, Any] = {"benchmark": "gym", "tasks": "HalfCheetah-v5", "episodes": 1, "in_process": True}
    plan |= {"max_steps": 10, "metric": "return"}
    looks, blind = Looks(), Looks()
    policy = load_policy("random", {}, experts={})
    watched = warm.evaluate(policy, watchers=[looks], benchmark_arg={"render": True}, **plan)
    assert looks.frames
    assert looks.frames[0].image.startswith(b"\x89PNG")
    assert len(looks.frames[0].image) > 2000, "there is something to see"
    assert (watched.rows[0].outcome, watched.rows[0].renders) == ("failure", 0)
    warm.evaluate(policy, watchers=[blind], **plan)
    assert blind.frames == [], "without `render` it has no camera"

"""Who looks at a slot is shown what it plays: asked for with heartbeats, and nothing that nobody asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
from coordinated import Hand, Run, Watcher

from sparring.orchestrator.coordination.bounds import OutOfBounds
from sparring.orchestrator.run.listeners import Listeners, RunListener, SlotFrame
from sparring.protos import evaluation_pb2 as pb
from sparring.protos.limits import MAX_FRAME

PNG = b"\x89PNG\r\n\x1a\n and so on"


def watches(hand: Hand) -> list[int]:
    return [message.watch.slot for message in hand.inbox if message.WhichOneof("message") == "watch"]


def test_a_slot_is_asked_to_show_what_it_plays_while_somebody_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: set[int] = set()
    frames: list[SlotFrame] = []
    monkeypatch.setattr(Watcher, "watched", lambda self, worker: looked_at)
    monkeypatch.setattr(Watcher, "on_frame", lambda self, frame: frames.append(frame))

    async def test() -> None:
        run = Run(tmp_path / "run")
        worker = Hand(run, slots=2)
        lease = worker.takes()
        right = {"slot": 0, "task": lease.task, "index": lease.index, "steps": 3, "image": PNG}

        def shows(**other: Any) -> int:
            worker.says(frame=pb.Frame(**{**right, **other}))
            return len(frames)

        worker.says(heartbeat=pb.Heartbeat())
        assert (watches(worker), shows()) == ([], 0), "nobody looks"
        looked_at.update({0, 2})
        worker.says(heartbeat=pb.Heartbeat())
        assert watches(worker) == [0], "a slot that it does not have is not asked"
        assert shows(index=1) == shows(slot=1) == shows(image=b"<svg/>") == shows(task="") == 0
        assert shows() == 1
        assert frames == [SlotFrame("w", 0, "short", 0, 3, PNG)]
        worker.finishes(lease)
        assert shows() == 1, "it plays nothing any more"
        run.journal.close()

    asyncio.run(test())


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({"slot": 1}, "slot 1"),
        ({"task": "x" * 201}, "a name of 201 characters"),
        ({"image": PNG + bytes(MAX_FRAME)}, "a frame has 1,048,"),
    ],
)
def test_what_a_worker_shows_has_bounds(tmp_path: Path, wrong: dict[str, Any], what: str) -> None:
    async def test() -> None:
        run = Run(tmp_path / "run")
        with pytest.raises(OutOfBounds, match=what):
            Hand(run).says(frame=pb.Frame(**wrong))
        run.journal.close()

    asyncio.run(test())


def test_of_several_listeners_each_says_what_it_looks_at(caplog: pytest.LogCaptureFixture) -> None:
    class Looks(RunListener):
        def __init__(self, *slots: Any) -> None:
            self._slots = slots

        def watched(self, worker: str) -> Collection[int]:
            return self._slots

    class Hears:
        def on_start(self, start: object) -> None:
            """One that is not derived from ours, and looks at nothing."""

    listeners = Listeners([Looks(0), Looks(3), Looks("x"), Hears()])  # type: ignore[list-item]
    assert set(listeners.watched("w")) == set(listeners.watched("w")) == {0, 3}
    assert len(caplog.messages) == 1
    assert "raised ValueError in watched" in caplog.messages[0]

"""Listeners: each hears everything, in order, and none can take a run down."""

from __future__ import annotations

import logging
from contextvars import Context, ContextVar
from pathlib import Path
from typing import Any

import pytest

from sparring.orchestrator.plan import EpisodeId, Plan
from sparring.orchestrator.run.listeners import Listeners, RunListener, RunStart, SlotActivity
from sparring.protos.errors import UsageError

EPISODE = EpisodeId("toy", "short", 0)


class Diary(RunListener):
    """Writes down what it hears."""

    def __init__(self, pages: list[Any], name: str) -> None:
        self._pages, self._name = pages, name

    def on_worker(self, worker: str, slots: int) -> None:
        self._pages.append((self._name, worker, slots))

    def on_retry(self, episode: EpisodeId, reason: str) -> None:
        self._pages.append((self._name, episode, reason))


class Raises(RunListener):
    def on_worker(self, worker: str, slots: int) -> None:
        raise RuntimeError("no network")


def test_all_listeners_hear_in_their_order() -> None:
    pages: list[Any] = []
    listeners = Listeners([Diary(pages, "first"), Diary(pages, "second")])
    listeners.on_worker("w", 2)
    listeners.on_retry(EPISODE, "why")
    assert pages == [("first", "w", 2), ("second", "w", 2), ("first", EPISODE, "why"), ("second", EPISODE, "why")]


def test_a_listener_that_raises_is_logged_once_and_dropped(caplog: pytest.LogCaptureFixture) -> None:
    pages: list[Any] = []
    listeners = Listeners([Raises(), Diary(pages, "other")])
    with caplog.at_level(logging.WARNING):
        listeners.on_worker("w", 1)
        listeners.on_worker("w", 0)
    assert pages == [("other", "w", 1), ("other", "w", 0)], "the others hear on"
    (line,) = caplog.messages
    assert "Raises" in line
    assert "RuntimeError" in line
    assert "no network" in line


def test_the_traceback_of_a_listener_is_in_the_folder_of_its_run(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    listeners = Listeners([Raises()])
    listeners.on_start(RunStart(Plan({}, 1, 0), [], {}, tmp_path))
    with caplog.at_level(logging.WARNING):
        listeners.on_worker("w", 1)
    (file,) = (tmp_path / "errors").iterdir()
    assert caplog.messages == [
        "the listener Raises raised RuntimeError in on_worker and hears nothing more of this run: no network "
        f"(traceback: {file})"
    ]
    (frame,) = [line for line in file.read_text().splitlines() if line.startswith("  File")]
    assert frame.endswith("in on_worker")


def test_without_a_folder_it_is_told_in_full(caplog: pytest.LogCaptureFixture) -> None:
    listeners = Listeners([Raises()])
    listeners.on_start(RunStart(Plan({}, 1, 0), [], {}, None))
    with caplog.at_level(logging.WARNING):
        listeners.on_worker("w", 1)
    (line,) = caplog.messages
    assert line.endswith("RuntimeError: no network")
    assert "in on_worker\n" in line


def test_a_listener_need_not_derive_from_ours_nor_hear_everything() -> None:
    class Foreign:
        steps = 0

        def on_activity(self, activity: SlotActivity) -> None:
            self.steps = activity.steps

    foreign = Foreign()
    listeners = Listeners([foreign])  # type: ignore[list-item] # the point of it
    listeners.on_worker("w", 1)
    listeners.on_activity(SlotActivity("w", 0, "short", 3, steps=7))
    assert foreign.steps == 7


@pytest.mark.parametrize("wrong", [Raises, print, None, "wandb"])
def test_what_cannot_listen_is_refused_with_a_sentence(wrong: Any) -> None:
    with pytest.raises(UsageError, match=r"cannot watch a run: give an object with some of the methods .*on_start"):
        Listeners([wrong])


def test_they_hear_in_the_context_of_whoever_listens() -> None:
    """A notebook puts what is printed under the cell that the context says."""
    cell: ContextVar[int] = ContextVar("cell")
    heard: list[int] = []

    class Prints(RunListener):
        def on_worker(self, worker: str, slots: int) -> None:
            heard.append(cell.get())

    cell.set(2)
    listeners = Listeners([Prints()])
    before = Context()
    before.run(cell.set, 1)
    before.run(listeners.on_worker, "w", 1)
    assert heard == [2]

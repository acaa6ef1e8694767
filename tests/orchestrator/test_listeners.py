"""Listeners: each hears everything, in order, and none can take a run down."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from sparring.orchestrator.run.listeners import Listeners, RunListener, SlotActivity
from sparring.orchestrator.run.plan import EpisodeId
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

"""What the live page and trackers keep of a run has limits, from both sides of each."""

from __future__ import annotations

import http.client
from pathlib import Path
from threading import Event

import pytest
from sites import own, serving
from support import wait_for

from sparring.orchestrator.trackers import tracking
from sparring.orchestrator.view import library, model, pages
from sparring.orchestrator.view.library import Library
from sparring.orchestrator.view.model import SeenSoFar
from sparring.orchestrator.view.pages import Pages


def runs(folder: Path, count: int) -> Path:
    for number in range(count):
        (folder / f"run{number}").mkdir(parents=True)
        (folder / f"run{number}" / "run.json").write_text("{}")
    return folder


def test_so_many_runs_are_listed_and_it_is_said_that_there_are_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "_MOST_RUNS", 2)
    enough, too_many = Library([runs(tmp_path / "two", 2)]), Library([runs(tmp_path / "three", 3)])
    assert (len(enough.entries()), enough.cut) == (2, False)
    assert (len(too_many.entries()), too_many.cut) == (2, True)


def test_so_many_folders_are_looked_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_MOST_FOLDERS", 3)  # the one that is named among them
    enough, too_many = Library([runs(tmp_path / "two", 2)]), Library([runs(tmp_path / "three", 3)])
    assert (len(enough.entries()), enough.cut) == (2, False)
    assert (len(too_many.entries()), too_many.cut) == (2, True)


def test_so_many_slots_are_shown_one_by_one_and_the_rest_is_counted(tmp_path: Path) -> None:
    shown = own(tmp_path)
    shown.model.worker("w", model._MOST_SLOTS)
    news, _ = shown.model.news(SeenSoFar())
    assert news is not None
    assert (len(news["slots"]), news["slots_left_out"]) == (model._MOST_SLOTS, 0)
    shown.model.worker("v", 2)
    news, _ = shown.model.news(SeenSoFar())
    assert news is not None
    assert (len(news["slots"]), news["slots_left_out"]) == (model._MOST_SLOTS, 2)


def test_so_many_pages_are_told_of_news_and_who_leaves_makes_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "_MOST_STREAMS", 2)
    monkeypatch.setattr(pages, "_ALIVE_SECONDS", 0.1)  # who has gone is noticed when something is said

    def listening(port: int) -> tuple[http.client.HTTPConnection, int]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("GET", "/run/this/events")
        return connection, connection.getresponse().status

    with serving(Pages(own=own(tmp_path))) as here:
        kept = [listening(here.port) for _ in range(2)]
        assert [status for _, status in kept] == [200, 200]
        wait_for(lambda: here.pages.streams == 2)
        refused, status = listening(here.port)
        assert status == 503
        refused.close()
        assert here.ask("/run/this/").status == 200, "the page itself is for everybody"
        kept[0][0].sock.close()
        kept[0][0].close()
        wait_for(lambda: here.pages.streams == 1)
        another, status = listening(here.port)
        assert status == 200
        for connection in (another, kept[1][0]):
            connection.close()


def test_a_tracker_that_is_slow_has_so_many_numbers_waiting_and_all_that_must_not_be_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tracking, "_MOST_WAITING", 3)
    go, entered = Event(), Event()
    told: list[str] = []

    def hold() -> None:
        entered.set()
        assert go.wait(60)

    sender = tracking._Sender("diary", lambda: told.append("end"))
    sender.start()
    sender.put(hold)
    assert entered.wait(60)
    for number in range(5):
        sender.put(lambda number=number: told.append(str(number)), may_be_left_out=True)  # type: ignore[misc]
    sender.put(lambda: told.append("table"))
    go.set()
    sender.close(60.0)
    assert told == ["0", "1", "2", "table", "end"]

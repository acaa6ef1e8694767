"""What the live page and trackers keep of a run has limits, from both sides of each."""

from __future__ import annotations

import http.client
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest
from certificates import write_secret
from rows import ROW
from sites import ANY_PORT, own, serving
from starlette.responses import PlainTextResponse
from support import wait_for

from sparring.orchestrator.trackers import tracking
from sparring.orchestrator.view import access, film, library, model, pages
from sparring.orchestrator.view.library import Library
from sparring.orchestrator.view.model import SeenSoFar
from sparring.orchestrator.view.pages import Pages
from sparring.orchestrator.view.server import ViewOptions


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


def test_folders_in_folders_are_looked_through(tmp_path: Path) -> None:
    inside = tmp_path.joinpath(*"abcdefgh"[: library._DEPTH - 1])
    runs(inside, 1)
    assert [entry.folder for entry in Library([tmp_path]).entries().values()] == [inside / "run0"]
    assert [entry.folder for entry in Library([tmp_path / "a"]).entries().values()] == [inside / "run0"]
    deeper = tmp_path / "deeper"
    runs(deeper.joinpath(*"abcdefgh"[: library._DEPTH]), 1)
    assert not Library([deeper]).entries()


def test_notes_that_are_kept(tmp_path: Path) -> None:
    shown = own(tmp_path).model
    for number in range(model._MOST_NOTES):
        shown.note("warning", f"look {number}")
    news, _ = shown.news(SeenSoFar())
    assert news is not None
    assert next(iter(news["notes"]))["sentence"] == "look 0"
    shown.note("warning", "one more")
    news, _ = shown.news(SeenSoFar())
    assert news is not None
    told = [note["sentence"] for note in news["notes"]]
    assert (len(told), told[0], told[-1]) == (model._MOST_NOTES, "look 1", "one more")


def test_a_token_that_is_brought_by_a_form(tmp_path: Path) -> None:
    options = ViewOptions(ANY_PORT, write_secret(tmp_path / "token", "t" * 32))
    with serving(Pages(own=own(tmp_path)), options) as here:
        form = {"Content_Type": "application/x-www-form-urlencoded"}
        for more, status in ((0, 401), (1, 413)):
            body = "token=".ljust(access._MOST_FORM + more, "x")
            assert here.ask("/login", "POST", body, **form).status == status


def test_runs_that_are_kept_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "_MOST_KEPT", 2)
    found = Library([runs(tmp_path / "runs", 3)])
    shown = Pages(found)
    first, second, third = (entry.id for entry in found.entries().values())
    kept = shown._shown(first)
    shown._shown(second)
    assert shown._shown(first) is kept
    shown._shown(third)
    assert list(shown._kept) == [first, third], "the one that was not looked at for longest makes room"


def test_runs_that_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []

    def counted(folders: Sequence[object], **_: object) -> PlainTextResponse:
        compared.append(len(folders))
        return PlainTextResponse("so many")

    monkeypatch.setattr(pages, "comparison_document", counted)
    found = Library([runs(tmp_path / "runs", pages._MOST_COMPARED + 1)])
    names = list(found.entries())
    with serving(Pages(found)) as here:
        for count in (pages._MOST_COMPARED, pages._MOST_COMPARED + 1):
            assert here.ask("/compare?" + "&".join(f"run={name}" for name in names[:count])).status == 200
    assert compared == [pages._MOST_COMPARED] * 2


def test_parts_of_a_film_in_one_answer(tmp_path: Path) -> None:
    run = own(tmp_path)
    run.model.add(replace(ROW, index=0, video="a.mp4"))
    (tmp_path / "a.mp4").write_bytes(b"0123456789" * 10)
    with serving(Pages(own=run)) as here:
        for count, status in ((film._MOST_PARTS, 206), (film._MOST_PARTS + 1, 200)):
            parts = "bytes=" + ",".join(f"{3 * number}-{3 * number}" for number in range(count))
            assert here.ask("/run/this/film/0/0.mp4", Range=parts).status == status


def test_digits_of_a_number_in_an_address() -> None:
    assert pages._number("9" * pages._MOST_DIGITS) == 10**pages._MOST_DIGITS - 1
    assert pages._number("0" * (pages._MOST_DIGITS + 1)) is None


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

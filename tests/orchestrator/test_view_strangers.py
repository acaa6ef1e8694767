"""The live page among strangers: those who can write in the folder that it shows, and those who can connect to it."""

from __future__ import annotations

import errno
import http.client
import json
import os
import resource
import shutil
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path, PurePath
from threading import Event, Lock
from time import sleep
from typing import Any

import pytest
from certificates import Certificates, write_secret
from rows import ROW
from sites import ANY_PORT, Site, own, serving
from starlette.responses import FileResponse, PlainTextResponse, Response
from support import Sparring, wait_for

from sparring.orchestrator.results.files import open_inside
from sparring.orchestrator.results.results import Results
from sparring.orchestrator.view import connections, pages
from sparring.orchestrator.view.folder_watch import FolderWatch
from sparring.orchestrator.view.library import Library
from sparring.orchestrator.view.model import RunModel, SeenSoFar
from sparring.orchestrator.view.pages import Pages
from sparring.orchestrator.view.server import ViewOptions

TOKEN = "a-token-that-nobody-guesses"


def test_a_film_is_the_file_that_was_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, run = tmp_path / "run", own(tmp_path / "run")
    film, secret = folder / "right.mp4", tmp_path / "secret"
    folder.mkdir()
    secret.write_bytes(b"secret")
    run.model.add(replace(ROW, index=0, video=film.name))
    answer = FileResponse.__call__

    async def swapped(response: FileResponse, *given: Any) -> None:
        film.unlink()
        film.symlink_to(secret)  # at the moment between the look and the answer
        await answer(response, *given)

    monkeypatch.setattr(FileResponse, "__call__", swapped)
    with serving(Pages(own=run)) as here:
        before = len(os.listdir("/dev/fd"))
        for headers, status, text in (
            ({}, 200, "a film"),
            ({"Range": "bytes=2-3"}, 206, "fi"),
            ({"Range": "bytes=0-0,2-3"}, 206, None),
            ({"Range": "bytes=99-"}, 416, ""),
        ):
            film.unlink(missing_ok=True)
            film.write_bytes(b"a film")
            answered = here.ask("/run/this/film/0/0.mp4", **headers)
            assert answered.status == status
            assert answered.text == text or text is None
            assert "secret" not in answered.text
        wait_for(lambda: len(os.listdir("/dev/fd")) <= before, seconds=30)


@pytest.mark.parametrize(
    ("inside", "number"),
    [
        ("link", errno.ELOOP),
        ("folder_link/file", errno.ENOTDIR),
        ("../outside", errno.EINVAL),
        ("folder/../folder/file", errno.EINVAL),
        ("pipe", errno.EINVAL),
        ("folder", errno.EINVAL),
        ("", errno.EINVAL),
        ("nothing", errno.ENOENT),
    ],
)
def test_what_is_opened_inside_a_folder_lies_in_there(tmp_path: Path, inside: str, number: int) -> None:
    folder = tmp_path / "named"
    (folder / "folder").mkdir(parents=True)
    (folder / "folder" / "file").write_text("right")
    (tmp_path / "outside").write_text("secret")
    (folder / "link").symlink_to("folder/file")
    (folder / "folder_link").symlink_to("folder")
    os.mkfifo(folder / "pipe")
    (tmp_path / "by_link").symlink_to("named")
    with open_inside(tmp_path / "by_link", PurePath("folder/file")) as file:  # its user has named this
        assert file.read() == b"right"
    with pytest.raises(OSError, match=rf"Errno {number}\b"):
        open_inside(folder, PurePath(inside))
    with pytest.raises(OSError, match="not in the folder"):
        open_inside(folder, folder / "folder" / "file")


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=30)


def is_closed(connection: socket.socket) -> bool:
    connection.settimeout(0.2)
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


@pytest.mark.parametrize("encrypted", [False, True])
def test_who_only_connects_takes_few_of_the_runs_file_descriptors(
    tmp_path: Path, certificates: Certificates, monkeypatch: pytest.MonkeyPatch, *, encrypted: bool
) -> None:
    monkeypatch.setattr(connections, "_MOST", 3)
    monkeypatch.setattr(connections, "_LEAST", 3)
    cert, key = certificates.pair() if encrypted else (None, None)
    options = ViewOptions(ANY_PORT, write_secret(tmp_path / "token", TOKEN), cert, key)
    with serving(Pages(own=own(tmp_path)), options) as here, ExitStack() as stack:
        came = [stack.enter_context(connect(here.port)) for _ in range(8)]
        wait_for(lambda: sum(map(is_closed, came)) == 5, seconds=30)
        if not encrypted:
            for one in came:
                one.close()
            wait_for(lambda: _status(here) == 401, seconds=30)


def _status(here: Site) -> int | None:
    try:
        return int(here.ask("/").status)
    except ConnectionError:  # those before it are being closed
        return None


def test_connections_are_a_share_of_what_may_be_open(monkeypatch: pytest.MonkeyPatch) -> None:
    for allowed, most in ((64, 16), (256, 32), (1024, 128), (1 << 20, 128), (resource.RLIM_INFINITY, 128)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, allowed=allowed: (allowed, allowed))
        assert connections.most_connections() == most


def test_a_connection_without_a_whole_request_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_REQUEST_SECONDS", 1.0)
    options = ViewOptions(ANY_PORT, write_secret(tmp_path / "token", TOKEN))
    with serving(Pages(own=own(tmp_path)), options) as here, ExitStack() as stack:
        said = (
            b"",
            b"GET / HTTP/1.1\r\nHost: localhost\r\n",
            b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nx",
            b"GET /web/live.css HTTP/1.1\r\nHost: localhost\r\n\r\nG",
        )
        slow = [stack.enter_context(connect(here.port)) for _ in said]
        stream = stack.enter_context(connect(here.port))
        stream.sendall(
            b"GET /run/this/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + TOKEN.encode() + b"\r\n\r\n"
        )
        for connection, request in zip(slow, said, strict=True):
            connection.sendall(request)
        for connection in slow:
            connection.settimeout(20)
            try:
                while connection.recv(1 << 16):
                    pass
            except ConnectionError:
                pass
        assert here.pages.streams == 1, "who listens to an answer may take long"


def test_a_tls_connection_that_does_not_shake_hands_is_not_kept(
    tmp_path: Path, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_HANDSHAKE_SECONDS", 0.5)
    cert, key = certificates.pair()
    options = ViewOptions(ANY_PORT, write_secret(tmp_path / "token", TOKEN), cert, key)
    with serving(Pages(own=own(tmp_path)), options) as here, ExitStack() as stack:
        silent, slow = (stack.enter_context(connect(here.port)) for _ in range(2))
        slow.sendall(b"\x16\x03\x01")  # as a handshake begins
        wait_for(lambda: is_closed(silent) and is_closed(slow), seconds=20)
        trusted = ssl.create_default_context(cafile=str(certificates.ca))
        browser = http.client.HTTPSConnection("localhost", here.port, timeout=30, context=trusted)
        browser.request("GET", "/")
        assert browser.getresponse().status == 401, "who does shake hands is served"
        browser.close()


@pytest.fixture
def shared(usage: Sparring, tmp_path: Path) -> Path:
    """A folder of folders that others can write to, and beside it a run that is not theirs."""
    run = ("run", "--in-process", "--benchmark", "toy", "--policy", "toy_policies:Forward", "--task", "short")
    assert usage(*run, "--episodes", "1", "--output", "private").returncode == 0
    for name in ("right", "swapped", "journal", "document", "other"):
        shutil.copytree(tmp_path / "private", tmp_path / "shared" / name)
    return tmp_path / "shared"


def test_runs_that_lie_elsewhere_are_not_shown(shared: Path) -> None:
    private = shared.parent / "private"
    for name, file in (("journal", "journal.sqlite"), ("document", "run.json")):
        (shared / name / file).unlink()
        (shared / name / file).symlink_to(private / file)
    document = json.loads((shared / "other" / "run.json").read_text())
    (shared / "other" / "run.json").write_text(json.dumps({**document, "id": None}))
    with serving(Pages(Library([shared]))) as here:
        runs = {run["name"]: run["id"] for run in json.loads(here.ask("/runs.json").text)["runs"]}
        assert set(runs) == {"right", "swapped", "other"}
        assert here.ask(f"/run/{runs['right']}/report").status == 200
        other = here.ask(f"/run/{runs['other']}/report")
        assert (other.status, "the journal of another run" in other.text) == (422, True)
        assert here.ask(f"/run/{runs['swapped']}/report").status == 200
        shutil.rmtree(shared / "swapped")
        (shared / "swapped").symlink_to(private)
        for page in ("", "report", "events", "film/0/0.mp4"):
            assert here.ask(f"/run/{runs['swapped']}/{page}").status == 404
        assert here.ask(f"/compare?run={runs['right']}&run={runs['swapped']}").status == 404
        assert {run["name"] for run in json.loads(here.ask("/runs.json").text)["runs"]} == {"right", "other"}


def test_who_looks_already_sees_nothing_of_a_link(shared: Path) -> None:
    model = RunModel()
    folder = shared / "swapped"
    shutil.rmtree(folder)
    folder.symlink_to(shared.parent / "private")
    FolderWatch(model, folder, shared).refresh()
    news, _ = model.news(SeenSoFar())
    assert news is not None
    assert (news["status"], "about" in news) == ("unreadable", False)
    named = RunModel()
    FolderWatch(named, folder).refresh()
    news, _ = named.news(SeenSoFar())
    assert news is not None
    assert news["status"] == "finished", "its user has named the link"


@pytest.mark.parametrize("page", ["report", "live"])
def test_a_folder_that_is_swapped_for_a_moment_is_not_shown(
    shared: Path, page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the two looks for links: who writes in the folder puts a link in its place, and the folder back."""
    folder, aside = shared / "swapped", shared / "aside"
    document = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**document, "id": "0" * 32}))
    load = Results.load

    def swapping(place: Path) -> Results:
        folder.rename(aside)
        folder.symlink_to(shared.parent / "private")
        try:
            return load(place)
        finally:
            folder.unlink()
            aside.rename(folder)

    monkeypatch.setattr(Results, "load", swapping)
    if page == "live":
        model = RunModel()
        FolderWatch(model, folder, shared).refresh()
        news, _ = model.news(SeenSoFar())
        assert news is not None
        assert (news["status"], "another run was there" in news["status_told"]) == ("unreadable", True)
        return
    with serving(Pages(Library([shared]))) as here:
        runs = {run["name"]: run["id"] for run in json.loads(here.ask("/runs.json").text)["runs"]}
        answer = here.ask(f"/run/{runs['swapped']}/report")
        assert (answer.status, "another run was there" in answer.text) == (422, True)


def test_numbers_of_any_length_name_nothing(tmp_path: Path) -> None:
    with serving(Pages(own=own(tmp_path))) as here:
        long = "9" * 5000
        for page in (f"film/0/{long}.mp4", f"film/{long}/0.mp4", f"frame?worker=w&slot={long}", "film/-1/0.mp4"):
            assert here.ask(f"/run/this/{page}").status == 404


def test_few_large_answers_are_made_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, most, now = own(tmp_path), [0], [0]
    lock, news = Lock(), run.model.news

    def counted(seen: SeenSoFar) -> Any:
        if seen.epoch >= 0:  # they have been told all, and hear of what is new
            return news(seen)
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        sleep(0.1)
        with lock:
            now[0] -= 1
        return news(seen)

    monkeypatch.setattr(run.model, "news", counted)
    with serving(Pages(own=run)) as here, ExitStack() as stack:
        came = [stack.enter_context(connect(here.port)) for _ in range(6)]
        for one in came:
            one.sendall(b"GET /run/this/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        for one in came:
            answer = stack.enter_context(one.makefile("rb"))
            assert any(line.startswith(b"data:") for line in answer)
        assert most[0] == pages._MOST_LARGE


def test_who_asks_for_a_large_answer_waits_its_turn_and_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = Event(), Event()

    def made(folder: Path, root: Path) -> Response:
        begun.set()
        go_on.wait(30)
        return PlainTextResponse("made")

    monkeypatch.setattr(pages, "_MOST_LARGE", 1)
    monkeypatch.setattr(pages, "report_document", made)
    for seconds, status in ((0.2, 503), (30.0, 200)):
        monkeypatch.setattr(pages, "_LARGE_SECONDS", seconds)
        begun.clear()
        go_on.clear()
        with serving(Pages(own=own(tmp_path))) as here, ThreadPoolExecutor(2) as threads:
            first = threads.submit(here.ask, "/run/this/report")
            assert begun.wait(30)
            second = threads.submit(here.ask, "/run/this/report")
            sleep(0.5)
            assert second.done() == (status == 503), "it waits, as long as it may"
            go_on.set()
            assert (first.result(30).status, second.result(30).status) == (200, status)

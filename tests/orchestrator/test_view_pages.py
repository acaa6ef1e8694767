"""The server of pages: whom it lets in, what it hands out, and what it does with whoever goes away."""

from __future__ import annotations

import http.client
import json
import logging
import os
import re
import signal
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from rows import ROW
from sites import ANY_PORT, Site, own
from support import Sparring, wait_for

from sparring.orchestrator.run.listeners import SlotFrame
from sparring.orchestrator.view.access import Access
from sparring.orchestrator.view.library import Library
from sparring.orchestrator.view.pages import Pages
from sparring.orchestrator.view.server import DEFAULT_LISTEN, ViewOptions, ViewServer
from sparring.protos.errors import UsageError
from sparring.protos.net.address import Address

TOKEN = "a-token-that-nobody-guesses"
RUN = ("run", "--in-process", "--benchmark", "toy", "--policy", "toy_policies:Forward", "--task", "short")
PAGE = "/run/this/"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Callable[..., Site]]:
    made: list[Site] = []

    def make(pages: Pages | None = None, options: ViewOptions | None = None) -> Site:
        made.append(Site(pages or Pages(own=own(tmp_path)), options or ViewOptions(ANY_PORT)))
        return made[-1]

    yield make
    for one in made:
        one.server.stop()


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(TOKEN)
    path.chmod(0o600)
    return path


def test_a_page_may_load_what_this_server_has_and_nothing_else(site: Callable[..., Site]) -> None:
    answer = site().ask(PAGE)
    assert answer.status == 200
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert (answer.headers["x-content-type-options"], answer.headers["cache-control"]) == ("nosniff", "no-store")
    assert "access-control-allow-origin" not in answer.headers
    assert re.findall(r"(?:src|href)=\"(?!/|report|data:,)", answer.text) == []


def test_every_file_of_the_pages_is_there_and_only_those(site: Callable[..., Site]) -> None:
    here = site()
    for page in (PAGE, "/run/this/report"):
        for name in re.findall(r'(?:src|href)="(/web/[^"]+)"', here.ask(page).text):
            assert here.ask(name).status == 200, name
    for path in ("/web/nothing.js", "/web/..%2fmodel.py", "/web/", "/nothing", "/run/other/", "/run/other/events"):
        assert here.ask(path).status == 404, path


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:1234", "127.0.0.1:99", "[::1]:8737", "LOCALHOST.", "a.localhost"]
)
def test_any_port_of_this_machine_will_do_as_through_a_tunnel(site: Callable[..., Site], host: str) -> None:
    assert site().ask(PAGE, Host=host).status == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8737", "localhost.evil.example", "10.1.2.3", "", "x y", "a:b:c"]
)
def test_other_names_are_refused(site: Callable[..., Site], host: str) -> None:
    answer = site().ask(PAGE, Host=host)
    assert answer.status in (400, 403)
    assert "forward" not in answer.text


def test_names_where_it_listens_for_others() -> None:
    every = Access(Address("tcp", "0.0.0.0", 80))
    assert every.is_known_host("10.1.2.3:80")
    assert every.is_known_host(socket.gethostname())
    assert not every.is_known_host("evil.example")
    assert Access(Address("tcp", "gpu-box", 80)).is_known_host("GPU-box:80")
    assert Access(Address("tcp", "0.0.0.0", 80), token=TOKEN).is_known_host("whatever.example"), "the token keeps out"


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "no-cors"},
        {"Sec_Fetch_Site": "same-site", "Sec_Fetch_Mode": "cors"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
    ],
)
def test_what_pages_of_others_ask_for_is_refused(site: Callable[..., Site], headers: dict[str, str]) -> None:
    assert site().ask("/run/this/frame?worker=w&slot=0", **headers).status == 403


def test_links_from_elsewhere_and_the_pages_own_requests_are_welcome(site: Callable[..., Site]) -> None:
    here = site()
    assert here.ask(PAGE, Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate").status == 200
    origin = f"http://127.0.0.1:{here.port}"
    assert here.ask("/run/this/frame?worker=w&slot=0", Sec_Fetch_Site="same-origin", Origin=origin).status == 204


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_can_be_done_but_looking(site: Callable[..., Site], method: str) -> None:
    assert site().ask(PAGE, method).status == 405


def test_a_token_is_asked_for_and_a_browser_keeps_what_it_is_given_for_it(
    site: Callable[..., Site], token_file: Path
) -> None:
    here = site(options=ViewOptions(ANY_PORT, token_file))
    for path in (PAGE, "/", "/run/this/events", "/run/this/report", "/runs.json", "/compare?run=a&run=b"):
        answer = here.ask(path)
        assert answer.status == 401, path
        assert "forward" not in answer.text
        assert TOKEN not in answer.text
    assert here.ask("/web/live.css").status == 200
    assert here.ask(PAGE, Authorization=f"Bearer {TOKEN}").status == 200
    assert here.ask(PAGE, Authorization="Bearer wrong").status == 401
    form = {"Content_Type": "application/x-www-form-urlencoded"}
    wrong = here.ask("/login", "POST", "token=wrong", **form)
    assert (wrong.status, "set-cookie" in wrong.headers) == (401, False)
    assert here.ask("/login", "POST", "token=" + "x" * 9000, **form).status == 413
    foreign = here.ask("/login", "POST", f"token={TOKEN}", Origin="http://evil.example", **form)
    assert foreign.status == 403
    right = here.ask("/login", "POST", f"token={TOKEN}", **form)
    assert right.status == 303
    cookie = right.headers["set-cookie"]
    assert TOKEN not in cookie
    assert "httponly" in cookie.lower()
    assert "samesite=strict" in cookie.lower()
    assert here.ask(PAGE, Cookie=cookie.partition(";")[0]).status == 200
    assert here.ask(PAGE, Cookie=cookie.partition("=")[0] + "=wrong").status == 401


def test_listening_for_others_needs_a_token_or_a_word(token_file: Path) -> None:
    with pytest.raises(UsageError, match=r"the live page would listen at 0\.0\.0\.0:0 and let in everybody"):
        ViewServer(ViewOptions(Address("tcp", "0.0.0.0", 0)))
    for options in (
        ViewOptions(Address("tcp", "0.0.0.0", 0), token_file),
        ViewOptions(Address("tcp", "0.0.0.0", 0), insecure=True),
    ):
        server = ViewServer(options)
        assert server.url == f"http://127.0.0.1:{server.address.port}/"
        server.stop()
    with pytest.raises(UsageError, match="no unix sockets"):
        ViewServer(ViewOptions(Address("unix", path="/tmp/x")))


def test_a_port_that_is_taken_is_told_unless_nobody_asked_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = Address("tcp", "127.0.0.1", other.getsockname()[1])
        with pytest.raises(UsageError) as raised:
            ViewServer(ViewOptions(taken, prefix="view_"))
        assert raised.value.sentence.startswith(f"the live page cannot be served at '{taken}': the port is taken.")
        assert "view_listen" in raised.value.sentence
        monkeypatch.setattr("sparring.orchestrator.view.server.DEFAULT_LISTEN", taken)
        server = ViewServer(ViewOptions())
        assert server.address.port not in (taken.port, 0)
        server.stop()
    assert DEFAULT_LISTEN.port == 8737


def test_what_is_not_installed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(UsageError, match=r"the live page needs uvicorn; install it: pip install"):
        ViewServer(ViewOptions(ANY_PORT))


def test_a_browser_is_told_what_happens_and_one_that_goes_away_is_forgotten(
    site: Callable[..., Site], tmp_path: Path
) -> None:
    pages = Pages(own=own(tmp_path))
    here = site(pages)
    connection = http.client.HTTPConnection("127.0.0.1", here.port, timeout=30)
    connection.request("GET", "/run/this/events")
    answer = connection.getresponse()
    assert answer.headers["content-type"].startswith("text/event-stream")
    told = json.loads(answer.readline().decode().removeprefix("data: "))
    assert told["about"]["title"].startswith("<b>forward</b> on toy")
    assert (told["cells"][0][:3], told["progress"]["done"]) == ([0, 0, "success"], 1)
    assert pages.streams == 1
    answer.close()
    connection.close()
    wait_for(lambda: pages.streams == 0, seconds=30)


def test_who_looks_when_it_ends_sees_the_last_of_it(site: Callable[..., Site], tmp_path: Path) -> None:
    run = own(tmp_path)
    here = site(Pages(own=run))
    connection = http.client.HTTPConnection("127.0.0.1", here.port, timeout=30)
    connection.request("GET", "/run/this/events")
    answer = connection.getresponse()
    answer.readline()
    run.model.add(replace(ROW, index=3, outcome="failure"))
    run.model.status("finished", "finished")
    here.server.stop()
    rest = answer.read().decode()
    assert '[0,3,"failure"' in rest
    assert '"status":"finished"' in rest
    assert rest.endswith("event: end\ndata: {}\n\n")


def test_a_frame_is_asked_of_slots_that_there_are(site: Callable[..., Site], tmp_path: Path) -> None:
    run = own(tmp_path)
    assert run.frames is not None
    here = site(Pages(own=run))
    for path in (
        "frame",
        "frame?worker=w&slot=1",
        "frame?worker=x&slot=0",
        "frame?worker=w&slot=-1",
        "frame?worker=w&slot=x",
    ):
        assert here.ask(f"/run/this/{path}").status == 404
    assert list(run.frames.watched("w")) == []
    assert here.ask("/run/this/frame?worker=w&slot=0").status == 204
    assert list(run.frames.watched("w")) == [0]
    run.frames.add(SlotFrame("w", 0, "x", 1, 7, b"\x89PNG"))
    answer = here.ask("/run/this/frame?worker=w&slot=0")
    assert (answer.status, answer.headers["content-type"], answer.headers["x-steps"]) == (200, "image/png", "7")


def test_films_are_those_of_episodes_and_lie_in_the_folder(site: Callable[..., Site], tmp_path: Path) -> None:
    folder, run = tmp_path / "run", own(tmp_path / "run")
    (folder / "videos").mkdir(parents=True)
    (folder / "videos" / "right.mp4").write_bytes(bytes(range(100)))
    (tmp_path / "secret.mp4").write_bytes(b"secret")
    (folder / "videos" / "link.mp4").symlink_to(tmp_path / "secret.mp4")
    (folder / "run.json").write_text("secret")
    names = ["videos/right.mp4", "../secret.mp4", "videos/link.mp4", "run.json"]
    for index, video in enumerate(names):
        run.model.add(replace(ROW, index=index, video=video))
    here = site(Pages(own=run))
    assert [here.ask(f"/run/this/film/0/{index}.mp4").status for index in range(4)] == [200, 404, 404, 404]
    part = here.ask("/run/this/film/0/0.mp4", Range="bytes=10-19")
    assert (part.status, part.text, part.headers["content-type"]) == (
        206,
        "".join(map(chr, range(10, 20))),
        "video/mp4",
    )
    for path in ("film/0/9.mp4", "film/7/0.mp4", "film/0/x.mp4", "film/0/..%2frun.json", "videos/right.mp4"):
        assert here.ask(f"/run/this/{path}").status == 404


def test_runs_reports_and_comparisons_of_a_folder(site: Callable[..., Site], usage: Sparring, tmp_path: Path) -> None:
    others = (("c", ("--seed", "7")), ("d", ("--max-steps", "3")), ("<img src=x>", ("--task", "long")))
    for name, more in (("a", ()), ("b", ()), *others):
        done = usage(*RUN, "--episodes", "2", *more, "--output", f"runs/{name}")
        assert done.returncode == 0, done.stderr
    (tmp_path / "runs" / "newer").mkdir()
    (tmp_path / "runs" / "newer" / "run.json").write_text('{"schema": 9999}')
    here = site(Pages(Library([tmp_path / "runs"])))
    assert "<img" not in here.ask("/").text
    runs = {run["name"]: run for run in json.loads(here.ask("/runs.json").text)["runs"]}
    assert set(runs) == {"a", "b", "c", "d", "<img src=x>", "newer"}
    report = here.ask(f"/run/{runs['a']['id']}/report")
    assert report.status == 200
    (rewards,) = re.findall(r'"rewards":(\[\[.*?\]\])', report.text)
    assert json.loads(rewards)[0], "each episode has its rewards over its steps"
    assert "'sha256-" in report.headers["content-security-policy"]
    assert "script-src 'unsafe-inline'" not in report.headers["content-security-policy"]
    newer = here.ask(f"/run/{runs['newer']['id']}/report")
    assert newer.status == 422
    assert "a newer release" in newer.text
    pair = here.ask(f"/compare?run={runs['a']['id']}&run={runs['b']['id']}")
    assert pair.status == 200, pair.text
    assert '"metric":"success"' in pair.text
    by_return = here.ask(f"/compare?run={runs['a']['id']}&run={runs['b']['id']}&metric=return")
    assert (by_return.status, '"metric":"return"' in by_return.text) == (200, True)
    assert here.ask(f"/compare?run={runs['a']['id']}&run={runs['b']['id']}&metric=luck").status == 400
    limits = here.ask(f"/compare?run={runs['a']['id']}&run={runs['d']['id']}&metric=return")
    assert (limits.status, "metric=return&amp;force=1" in limits.text) == (422, True), "the way on is by the same"
    seeds = here.ask(f"/compare?run={runs['a']['id']}&run={runs['c']['id']}&metric=return")
    assert (seeds.status, "force=1" in seeds.text) == (422, False), "no insisting gives them episodes in common"
    assert here.ask(f"/compare?run={runs['a']['id']}").status == 400
    other = here.ask(f"/compare?run={runs['a']['id']}&run={runs['<img src=x>']['id']}")
    assert "<img" not in other.text
    before = sorted(path for path in (tmp_path / "runs").rglob("*"))
    page = here.ask(f"/run/{runs['a']['id']}/")
    assert page.status == 200
    assert sorted(path for path in (tmp_path / "runs").rglob("*")) == before, "nothing is changed there"


def test_a_run_with_a_page_is_the_same_run(usage: Sparring, tmp_path: Path) -> None:
    from support import read_csv

    watched = usage(*RUN, "--episodes", "2", "--output", "watched", "--view-listen", "127.0.0.1:0")
    assert watched.returncode == 0, watched.stderr
    assert re.search(r"live page: http://127\.0\.0\.1:\d+/", watched.stderr)
    assert usage(*RUN, "--episodes", "2", "--output", "alone").returncode == 0
    assert read_csv(tmp_path / "watched") == read_csv(tmp_path / "alone")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--view", "--dry-run"), "--view is of no use here"),
        (("--view-listen", "0.0.0.0:0"), "give --view-token-file"),
        (("--view-listen", "nonsense"), "nonsense"),
        (("--view-token-file", "nowhere"), "cannot be read"),
    ],
)
def test_flags_that_cannot_be_end_a_run_before_it_begins(
    usage: Sparring, tmp_path: Path, flags: tuple[str, ...], said: str
) -> None:
    done = usage(*RUN, "--episodes", "1", "--output", "out", *flags)
    assert done.returncode == 2, done.stderr
    assert said in " ".join(done.stderr.split())
    assert not (tmp_path / "out").exists()


def test_view_refuses_what_is_no_folder(usage: Sparring) -> None:
    done = usage("view", "nowhere")
    assert (done.returncode, done.stderr.strip()) == (2, "error: there is no folder 'nowhere'.")


def test_view_of_a_folder_without_runs_says_so(
    usage: Sparring, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def interrupt(record: logging.LogRecord) -> bool:
        if record.getMessage() == "Ctrl-C ends it":
            os.kill(os.getpid(), signal.SIGINT)
        return True

    (tmp_path / "empty").mkdir()
    monkeypatch.setattr(logging.getLogger("sparring.orchestrator.cli.commands.view"), "filters", [interrupt])
    done = usage("view", "empty", "--listen", "127.0.0.1:0")
    assert done.returncode == 0, done.stderr
    assert "there is no run in 'empty' yet: the page shows runs as they come" in done.stderr + caplog.text

"""The live page in a real browser, while real runs go on, end, and are gone on with."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser.conftest import OpenPage
from browser.films import write_film
from chaos.proxy import Proxy
from playwright.sync_api import Page, expect
from rows import ROW
from support import Sparring, StartSparring, free_port, orphans, sampled, wait_for

from sparring.env_worker.benchmark import Task
from sparring.env_worker.episode.live_frames import png
from sparring.orchestrator.plan import EpisodeId, Plan
from sparring.orchestrator.run.listeners import FilmCount, RunStart, SlotActivity, SlotFrame
from sparring.orchestrator.run.make_plan import make_plan
from sparring.orchestrator.run.protocols import protocols_played
from sparring.orchestrator.serving.stats import ServerLoad
from sparring.orchestrator.settings import read_settings
from sparring.orchestrator.view.library import Library
from sparring.orchestrator.view.listener import LiveListener
from sparring.orchestrator.view.model import RunModel
from sparring.orchestrator.view.pages import Pages, ShownRun
from sparring.orchestrator.view.server import ViewOptions, ViewServer
from sparring.protos.net.address import Address

pytestmark = [pytest.mark.processes, pytest.mark.requires("chromium")]

HOSTILE = '</script><img src=x onerror="alert(1)"><!-- & "'
RUN = ("run", "--benchmark", "toy", "--task", "long", "--policy", "toy_policies:Forward", "--slots", "2")
SLOW = ("--benchmark-arg", "step_seconds=0.05")

Serve = Callable[..., ViewServer]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Serves pages in this process."""
    servers: list[ViewServer] = []

    def start(pages: Pages, **options: Any) -> ViewServer:
        server = ViewServer(ViewOptions(Address("tcp", "127.0.0.1", 0), **options))
        servers.append(server)
        server.start(pages)
        return server

    yield start
    for server in servers:
        server.stop()


def cells(page: Page) -> int:
    return page.locator(".cell:not(.none)").count()


def ended(process: subprocess.Popen[str], code: int = 0) -> None:
    _, said = process.communicate(timeout=120)
    assert process.returncode == code, said


def test_the_page_of_a_run_fills_shows_a_slot_and_goes_on_with_its_resume(
    start_sparring: StartSparring, open_page: OpenPage, tmp_path: Path
) -> None:
    where = f"127.0.0.1:{free_port()}"
    command = (*RUN, *SLOW, "--output", "out", "--view-listen", where)
    run = start_sparring(*command, "--episodes", "6")
    assert run.stderr is not None
    wait_for(lambda: "live page" in run.stderr.readline())  # type: ignore[union-attr]
    page = open_page(f"http://{where}/", server_goes_away=True)
    expect(page.locator(".badge.running")).to_be_visible()
    expect(page.locator(".slot .doing").first).to_have_text(re.compile(r"long #\d"))
    page.locator("button.watch").first.click()
    wait_for(lambda: page.locator("img.frame").first.evaluate("image => image.naturalWidth") == 16)
    wait_for(lambda: 0 < cells(page) < 6, seconds=60)
    page.evaluate("window.notReloaded = true")
    ended(run)
    expect(page.locator(".badge.finished")).to_be_visible()
    expect(page.locator("#link")).to_have_text("the server has ended")
    assert cells(page) == 6
    expect(page.locator(".headline b")).to_have_text("100.0 %")
    again = start_sparring(*command, "--episodes", "8")
    expect(page.locator("#done")).to_contain_text("of 8 episodes", timeout=60_000)
    expect(page.locator(".badge.running")).to_be_visible()
    ended(again)
    expect(page.locator(".badge.finished")).to_be_visible()
    wait_for(lambda: cells(page) == 8)
    assert page.evaluate("window.notReloaded"), "it was the same page all the time"
    assert orphans(tmp_path) == []


def test_a_folder_is_followed_while_another_process_writes_to_it(
    start_sparring: StartSparring, open_page: OpenPage, serve: Serve, tmp_path: Path
) -> None:
    server = serve(Pages(Library([tmp_path])))
    page = open_page(server.url)
    expect(page.locator("#runs")).to_contain_text("There is no run in this folder yet")
    run = start_sparring(*RUN, *SLOW, "--output", "runs/first", "--episodes", "30")
    page.locator("a", has_text="runs/first").click(timeout=60_000)
    expect(page.locator(".badge.running")).to_be_visible()
    wait_for(lambda: cells(page) >= 2)
    run.send_signal(signal.SIGINT)
    ended(run, 130)
    expect(page.locator(".badge.unfinished")).to_be_visible()
    expect(page.locator("#head .caution")).to_contain_text("go on with: sparring resume")
    before = cells(page)
    again = start_sparring("resume", "runs/first")
    expect(page.locator(".badge.running")).to_be_visible()
    wait_for(lambda: cells(page) > before)
    again.send_signal(signal.SIGKILL)
    again.communicate(timeout=60)
    expect(page.locator(".badge.unfinished")).to_be_visible()
    wait_for(lambda: orphans(tmp_path) == [])
    expect(page.locator("#slots")).to_be_empty()


def fed(folder: Path, hostile: str = "") -> tuple[LiveListener, ShownRun]:
    """A run with something of everything."""
    model = RunModel()
    heard = LiveListener(model, folder)
    plan = Plan(
        {"toy": [Task(f"a-rather-long-name-of-a-task-{n}{hostile}", "put it there", "g") for n in range(6)]}, 8, 5
    )
    heard.on_start(RunStart(plan, [], {"policy": f"my_module:MyPolicy{hostile}"}, folder))
    heard.on_worker("worker-0", 3)
    for number, episode in enumerate(plan.ids()[:30]):
        outcome = "error" if number == 7 else "failure" if number % 5 == 2 else "success"
        error = f"the arm fell off {hostile}" if outcome == "error" else ""
        heard.on_result(replace(ROW, task=episode.task, index=episode.index, outcome=outcome, error=error))
    heard.on_activity(SlotActivity("worker-0", 1, plan.ids()[31].task, 7, steps=120))
    heard.on_retry(EpisodeId("toy", plan.ids()[8].task, 1), f"it fell over {hostile}")
    heard.on_warning(f"the policy is shown what it may not be made for {hostile}")
    spread = {"mean": 0.01, "p50": 0.01, "p99": 0.02}
    summary = {"batch_size": {"mean": 1.5, "max": 4}, "batches": 90, "observations_per_second": 31.0}
    heard.on_stats(ServerLoad(3, 2, {1: 50, 2: 30, 4: 10}, {**summary, "queue_wait_s": spread, "inference_s": spread}))
    heard.on_films(FilmCount(4, 1, 1))
    return heard, ShownRun(model, folder, frames=heard.frames)


@pytest.mark.parametrize(
    ("width", "scheme"),
    sampled([(400, "light"), (400, "dark"), (1920, "light"), (1920, "dark")], (400, "dark")),
)
def test_it_is_readable_at_every_width_in_both_schemes(
    tmp_path: Path, open_page: OpenPage, serve: Serve, width: int, scheme: str
) -> None:
    _, run = fed(tmp_path)
    page = open_page(serve(Pages(own=run)).url, width=width, scheme=scheme)
    expect(page.locator("#curve svg")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    back = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", back)[:3])) > 3 * 128) == (scheme == "light")
    letters = page.evaluate(
        "(() => { const text = document.querySelector('#curve text'); return text.getBoundingClientRect().height; })()"
    )
    assert 9 <= letters < 20, "what stands beside the curve can be read, and is not blown up"
    page.keyboard.press("d")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != back


def test_of_several_protocols_each_has_its_rate_and_its_line(tmp_path: Path, open_page: OpenPage, serve: Serve) -> None:
    settings = read_settings(
        {"policy": "zero", "benchmark": "toy", "task": "short", "protocols": "ours,narrow", "episodes": 6}
    )
    plan, model = make_plan(settings), RunModel()
    heard = LiveListener(model, tmp_path)
    heard.on_start(RunStart(plan, [], settings.flat(), tmp_path, protocols_played(settings)))
    for episode in plan.ids():
        outcome = "failure" if episode.benchmark == "narrow" and episode.index % 2 else "success"
        heard.on_result(
            replace(ROW, benchmark=episode.benchmark, task=episode.task, index=episode.index, outcome=outcome)
        )
    page = open_page(serve(Pages(own=ShownRun(model, tmp_path))).url)
    expect(page.locator(".headline b")).to_have_text(["100.0 %", "50.0 %"])
    expect(page.locator(".headline")).to_contain_text("success by narrow")
    expect(page.locator("#curve polyline")).to_have_count(2)
    box = page.locator("#curve svg").bounding_box()
    assert box is not None
    assert box["height"] < 250, "it is drawn for the width that it has, the first time, too"
    expect(page.locator("#curve .legend span")).to_have_text(["ours", "narrow"])
    expect(page.locator("#done")).to_have_text("12 of 12 episodes")


def test_names_and_sentences_with_html_in_them_are_text(tmp_path: Path, open_page: OpenPage, serve: Serve) -> None:
    _, run = fed(tmp_path, HOSTILE)
    page = open_page(serve(Pages(own=run)).url)
    expect(page.locator("h1")).to_contain_text(HOSTILE)
    expect(page.locator("#notes")).to_contain_text(f"the arm fell off {HOSTILE}")
    page.locator(".cell.error").click()
    expect(page.locator("#episode .caution")).to_have_text(f"the arm fell off {HOSTILE}")
    page.keyboard.press("Escape")
    expect(page.locator("#episode")).not_to_be_visible()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator("#episode h2")).to_contain_text("task-1")
    expect(page.locator("#episode h2")).to_contain_text("#6")
    expect(page.locator('.cell[tabindex="0"]')).to_have_count(1)
    assert page.locator("img").count() == 0


def test_films_play_and_newer_frames_take_the_place_of_older(tmp_path: Path, open_page: OpenPage, serve: Serve) -> None:
    heard, run = fed(tmp_path)
    (tmp_path / "videos").mkdir()
    write_film(tmp_path / "videos" / "a film #1.mp4")
    page = open_page(serve(Pages(own=run)).url)
    expect(page.locator(".slot")).to_have_count(3)
    plan_task = page.locator("#grid .name").first.inner_text()
    heard.on_film(replace(ROW, task=plan_task, index=0, video="videos/a film #1.mp4"))
    page.locator("#films button").click()
    wait_for(lambda: page.locator("video").evaluate("film => film.currentTime") > 0.1)
    page.keyboard.press("Escape")
    assert list(heard.watched("worker-0")) == [], "nobody looks"
    page.locator("button.watch").nth(1).click()
    wait_for(lambda: list(heard.watched("worker-0")) == [1])
    for side in (8, 16):
        heard.on_frame(SlotFrame("worker-0", 1, "x", 7, side, png(np.zeros((side, side, 3), np.uint8))))
        wait_for(lambda side=side: page.locator("img.frame").evaluate("image => image.naturalWidth") == side)
        expect(page.locator(".screen p")).to_have_text(f"step {side}")
    heard.on_activity(SlotActivity("worker-0", 1, plan_task, 8, steps=1))
    expect(page.locator(".screen.old p")).to_have_text("waiting for a frame")  # what was seen is of another episode
    heard.on_frame(SlotFrame("worker-0", 1, plan_task, 8, 2, png(np.zeros((4, 4, 3), np.uint8))))
    expect(page.locator(".screen p")).to_have_text("step 2")
    expect(page.locator(".screen.old")).to_have_count(0)
    page.locator("button.watch").nth(1).click()
    expect(page.locator("img.frame")).to_have_count(0)
    wait_for(lambda: list(heard.watched("worker-0")) == [])


def test_runs_are_searched_and_compared_and_their_reports_opened(
    tmp_path: Path, open_page: OpenPage, serve: Serve, usage: Sparring
) -> None:
    plan = ("run", "--in-process", "--benchmark", "toy", "--task", "short", "--episodes", "3")
    for name, policy in (("first", "toy_policies:Forward"), ("second", "zero"), ("<b>third</b>", "random")):
        done = usage(*plan, "--policy", policy, "--output", f"runs/{name}")
        assert done.returncode == 0, done.stderr
    usage(*plan, "--policy", "toy_policies:Raises", "--retries", "0", "--output", "runs/broken")
    page = open_page(serve(Pages(Library([tmp_path / "runs"]))).url, width=400)
    expect(page.locator(".run")).to_have_count(4)
    expect(page.locator(".run", has_text="broken").locator(".caution")).to_have_text("1 error")
    assert page.locator(".run", has_text="broken").locator(".much").inner_text().count("error") == 1
    expect(page.locator(".run", has_text="second").locator(".caution")).to_have_count(0)
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    expect(page.locator(".run a", has_text="<b>third</b>")).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("second zero")
    expect(page.locator(".run")).to_have_count(1)
    page.locator("#filter").fill("nothing like that")
    expect(page.locator("#runs")).to_have_text("no run matches")
    page.locator("#filter").fill("")
    for name in ("first", "second"):
        page.get_by_label(f"choose {name}").check()
    with page.context.expect_page() as opened:
        page.locator("#compare").click()
    expect(opened.value.locator("h1").first).to_contain_text("second against first")
    assert opened.value.url.count("run=") == 2
    page.select_option("#metric", "return")
    with page.context.expect_page() as opened:
        page.locator("#compare").click()
    expect(opened.value.locator(".headline span").first).to_have_text("of the mean return")
    with page.context.expect_page() as opened:
        page.locator(".run", has_text="first").locator("a.button").click()
    expect(opened.value.locator(".headline b")).to_have_text("100.0 %")


def test_it_is_live_through_a_tunnel(tmp_path: Path, open_page: OpenPage, serve: Serve) -> None:
    """What `ssh -L` makes of it: another port of this machine that passes on what comes, and may break off."""
    heard, run = fed(tmp_path)
    tunnel = Proxy(serve(Pages(own=run)).address.port)
    try:
        page = open_page(f"http://localhost:{tunnel.port}/", server_goes_away=True)
        expect(page.locator("#done")).to_contain_text("30 of 48")
        task = page.locator("#grid .name").first.inner_text()
        page.locator("button.watch").nth(1).click()
        wait_for(lambda: list(heard.watched("worker-0")) == [1])
        heard.on_frame(SlotFrame("worker-0", 1, "x", 7, 3, png(np.zeros((8, 8, 3), np.uint8))))
        wait_for(lambda: page.locator("img.frame").evaluate("image => image.naturalWidth") == 8)
        tunnel.cut()
        heard.on_result(replace(ROW, task=task.replace("task-0", "task-5"), index=7))
        expect(page.locator("#done")).to_contain_text("31 of 48")
        expect(page.locator("#link")).to_have_count(0)
    finally:
        tunnel.close()


def test_a_token_is_asked_for_once(tmp_path: Path, open_page: OpenPage, serve: Serve) -> None:
    (tmp_path / "token").write_text("a-token-that-nobody-guesses")
    (tmp_path / "token").chmod(0o600)
    _, run = fed(tmp_path)
    page = open_page(serve(Pages(own=run), token_file=tmp_path / "token").url, is_refused=True)
    page.locator("#token").fill("wrong")
    page.keyboard.press("Enter")
    expect(page.locator(".caution")).to_have_text("That is not the token of this page.")
    page.locator("#token").fill("a-token-that-nobody-guesses")
    page.keyboard.press("Enter")
    expect(page.locator("#done")).to_contain_text("30 of 48")

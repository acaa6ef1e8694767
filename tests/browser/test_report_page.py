"""The report in a real browser: what is shown, what clicks and keys do, and that it needs nothing else."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from browser.conftest import OpenPage
from browser.films import write_film
from playwright.sync_api import expect
from rows import ROW
from support import Sparring, sampled, wait_for
from toy_policies import Forward

from sparring import evaluate
from sparring.env_worker.benchmark import Task
from sparring.orchestrator.plan import Plan
from sparring.orchestrator.report.content import report_content
from sparring.orchestrator.report.page import embed_films, report_page
from sparring.orchestrator.results.document import RunDocument, tasks_of
from sparring.orchestrator.results.document_parts import RunHost, ServerStats
from sparring.orchestrator.results.results import Results
from sparring.orchestrator.serving.stats import summarized
from sparring.protos import policy_pb2 as pb
from sparring.protos.trace import Trace

pytestmark = [pytest.mark.processes, pytest.mark.requires("chromium")]

PIXEL = "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"
HOSTILE = '</script><img src=x onerror="alert(1)"><!-- & "'


def a_run(folder: Path, tasks: int = 3, episodes: int = 4, name: str = "task-{}") -> tuple[Results, RunDocument]:
    """A run with successes, failures and an error, of which one episode has not been run."""
    names = [Task(name.format(number), "put it there", "group") for number in range(tasks)]
    plan = Plan({"toy": names}, episodes, 5)
    rows = []
    for number, task in enumerate(names):
        for index in range(episodes):
            outcome = "error" if (number, index) == (1, 1) else "failure" if index < number else "success"
            error = {"error": f"the arm fell off {HOSTILE}", "error_kind": "simulator"} if outcome == "error" else {}
            row = replace(ROW, task=task.name, index=index, seed=5 + index, outcome=outcome, steps=10 + index, **error)
            rows.append(replace(row, reward_sum=float(index), metrics={"distance": 0.1 * index}))
    rows.pop()
    results = Results(plan=plan, rows=rows, seconds=12.0, folder=folder, status="unfinished")
    document = RunDocument(
        status="unfinished", settings={"seed": 5}, seed=5, episodes=episodes, tasks=tasks_of(plan), policy=None,
        versions={}, host=RunHost.here(), seconds=12.0, server_stats=None, out_of_range=0,
    )  # fmt: skip
    return results, document


def a_trace(steps: int) -> Trace:
    """Rewards that grow, and a task that is done at the fifth step."""
    rewards = [0.0, *(0.123456 * step for step in range(steps))]
    return Trace(rewards, [float(step >= 5) for step in range(steps + 1)], [0.0] * (steps + 1))


def written(folder: Path, results: Results, document: RunDocument, *, embed: bool = False) -> Path:
    traces = {row.id: a_trace(row.steps).pack() for row in results.rows if row.outcome != "error"}
    frames = {results.rows[0].id: PIXEL}
    content = report_content(results, document, folder, traces, frames)
    if embed:
        embed_films(content, folder)
    path = folder / "report.html"
    path.write_text(report_page(content))
    return path


def test_it_shows_what_came_of_the_run(tmp_path: Path, open_page: OpenPage) -> None:
    page = open_page(written(tmp_path, *a_run(tmp_path)))
    expect(page.locator(".headline b")).to_have_text("70.0 %")  # 7 of 10: one error, and one not run yet
    expect(page.locator(".badge").first).to_have_text("unfinished")
    assert page.locator(".cell.success").count() == 7
    assert page.locator(".cell.failure").count() == 3
    assert page.locator(".cell.error").count() == 1
    assert page.locator(".cell.none").count() == 1
    expect(page.locator("#errors h3")).to_have_text("simulator: 1 episode")
    expect(page.locator("#errors .wrong span").nth(1)).to_have_text(f"the arm fell off {HOSTILE}")
    expect(page.locator("#spread figcaption")).to_have_text(
        [re.compile("^steps"), re.compile("^return"), "largest reward", re.compile("^distance")]
    )


def test_it_shows_where_time_went_and_errors_by_kind(tmp_path: Path, open_page: OpenPage) -> None:
    results, document = a_run(tmp_path)
    errors = [
        replace(row, outcome="error", error=f"{row.task}: no step {5 + row.index}", error_kind="limit")
        for row in results.rows[:2]
    ]
    counts = {"hosted": {"seconds": 2.0, "observations": "9", "batches": {"1": "3", "2": "3"}}}
    notes = {"slot_seconds": {"playing": 300.0, "films": 20.0, "idle": 80.0}, "server_counts": counts}
    stats = ServerStats.model_validate({"servers": {}, **summarized(pb.ServerStats())})
    page = open_page(
        written(
            tmp_path, replace(results, rows=[*errors, *results.rows[2:]], notes=notes, server_stats=stats), document
        )
    )
    expect(page.locator("#errors h3")).to_have_text(["limit: 2 episodes", "simulator: 1 episode"])
    expect(page.locator("#errors .wrong").first).to_have_text("2 ×task-0: no step 5")  # what differs is a number
    expect(page.locator("#time .legend")).to_contain_text("idle 80.0 s (20 %)")
    expect(page.locator("#time .legend")).to_contain_text("films 20.0 s (5 %)")
    assert page.locator("#time .sizes div").count() == 2, "batches by their size"
    page.locator(".cell.error").nth(1).click()
    expect(page.locator("#episode")).to_contain_text("limit: task-0: no step 6")  # its own sentence


def test_it_says_what_made_the_run(tmp_path: Path, open_page: OpenPage, usage: Sparring) -> None:
    run = ("--benchmark", "toy", "--task", "short", "--policy", "toy_policies:Forward", "--policy-arg", "gain=0.5")
    assert usage("run", *run, "--episodes", "2", "--in-process", "--output", "out").returncode == 0
    assert usage("report", "out", "--format", "html").returncode == 0
    about = open_page(tmp_path / "out" / "report.html").locator("#about")
    expect(about.locator("pre")).to_have_text(re.compile("^sparring run --benchmark toy .* --output out$"))
    (policy,) = [r for r in about.locator("> div tr").all_inner_texts() if r.startswith("its arguments")]
    assert '{"gain":0.5}' in policy
    about.locator("summary", has_text="all settings").click()
    expect(about.locator("details").first).to_contain_text("toy_policies:Forward")
    about.locator("summary", has_text="versions").click()
    expect(about.locator("details").nth(1)).to_contain_text(re.compile(r"numpy \d+\.\d+"))
    evaluate(Forward(), benchmark="toy", tasks="short", episodes=1, in_process=True, output=tmp_path / "called")
    assert usage("report", "called", "--format", "html").returncode == 0
    about = open_page(tmp_path / "called" / "report.html").locator("#about")
    expect(about).to_contain_text("made by evaluate() in a program, with the settings below")
    page = open_page(written(tmp_path, *a_run(tmp_path)))
    expect(page.locator("#about")).to_contain_text("the command that made it is not known")


def test_it_can_be_printed_from_the_dark(tmp_path: Path, open_page: OpenPage) -> None:
    page = open_page(written(tmp_path, *a_run(tmp_path)), scheme="dark")
    page.keyboard.press("d")
    page.keyboard.press("d")  # chosen, and not the system's
    page.emulate_media(media="print")
    for name, is_light in (("backgroundColor", True), ("color", False)):
        colour = page.evaluate(f"getComputedStyle(document.body).{name}")
        assert (sum(map(int, re.findall(r"\d+", colour)[:3])) > 3 * 128) == is_light, name
    assert page.locator("nav").is_hidden()
    assert page.locator("#about details table").first.is_visible(), "on paper nobody opens anything"


def test_a_run_of_errors_alone_has_no_rate_and_no_interval(tmp_path: Path, open_page: OpenPage) -> None:
    results, document = a_run(tmp_path)
    rows = [replace(row, outcome="error", error="it fell", error_kind="simulator") for row in results.rows]
    page = open_page(written(tmp_path, replace(results, rows=rows), document))
    expect(page.locator(".headline")).to_contain_text("no success rate")
    expect(page.locator(".headline")).not_to_contain_text("interval")


def test_names_with_html_in_them_are_text(tmp_path: Path, open_page: OpenPage) -> None:
    page = open_page(written(tmp_path, *a_run(tmp_path, name="{} " + HOSTILE)))
    expect(page.locator("#rates .name").first).to_have_text(f"0 {HOSTILE}")
    assert page.locator("img").count() == 0


def test_the_filter_and_the_order(tmp_path: Path, open_page: OpenPage) -> None:
    page = open_page(written(tmp_path, *a_run(tmp_path)))
    page.keyboard.press("/")
    page.keyboard.type("task-2")
    expect(page.locator("#grid .name")).to_have_text(["task-2"])
    page.locator("#filter").fill("fell off")
    expect(page.locator("#grid .name")).to_have_text(["task-1"])
    page.locator("#filter").fill("failure")
    expect(page.locator("#grid .name")).to_have_text(["task-1", "task-2"])
    page.locator("#filter").fill("nothing like that")
    expect(page.locator("#rates")).to_contain_text("no task matches")
    page.locator("#filter").fill("")
    page.locator("#sort").select_option("worst")
    expect(page.locator("#grid .name")).to_have_text(["task-2", "task-1", "task-0"])


def test_an_episode_opens_by_click_and_by_keys(tmp_path: Path, open_page: OpenPage) -> None:
    page = open_page(written(tmp_path, *a_run(tmp_path)))
    page.locator(".cell.error").click()
    dialog = page.locator("#episode")
    expect(dialog).to_contain_text("task-1 #1")
    expect(dialog).to_contain_text("simulator: the arm fell off")
    expect(dialog).to_contain_text("sparring film")
    page.keyboard.press("ArrowRight")
    expect(dialog).to_contain_text("task-1 #2")
    page.keyboard.press("n")
    expect(dialog).to_contain_text("task-2 #0")
    page.keyboard.press("Escape")
    expect(dialog).not_to_be_visible()
    expect(page.locator(":focus")).to_have_attribute("title", "task-2 #0: failure")
    page.keyboard.press("ArrowUp")
    expect(page.locator(":focus")).to_have_attribute("title", "task-1 #0: failure")
    page.keyboard.press("Enter")
    expect(dialog).to_contain_text("task-1 #0")


@pytest.mark.parametrize("embed", sampled([False, True], False))
def test_a_film_plays(tmp_path: Path, open_page: OpenPage, embed: bool) -> None:
    results, document = a_run(tmp_path)
    (tmp_path / "videos").mkdir()
    write_film(tmp_path / "videos" / "a film #1.mp4")
    rows = [results.rows[0], replace(results.rows[1], video="videos/a film #1.mp4"), *results.rows[2:]]
    page = open_page(written(tmp_path, replace(results, rows=rows), document, embed=embed))
    if embed:
        (tmp_path / "videos" / "a film #1.mp4").unlink()
    page.locator(".cell.film").click()
    wait_for(lambda: page.locator("video").evaluate("film => film.currentTime") > 0.1)
    assert page.evaluate("document.querySelector('video').error") is None
    first = page.locator("#episode figure.frame canvas")
    assert first.evaluate("canvas => canvas.width") == 64, "the first frame stands still beside it"


def test_an_episode_shows_its_rewards_and_what_it_began_with(tmp_path: Path, open_page: OpenPage) -> None:
    page = open_page(written(tmp_path, *a_run(tmp_path)))
    page.locator(".cell").first.click()
    expect(page.locator("#episode figure.rewards span.done")).to_have_text("done at step 5")
    expect(page.locator("#episode figure.rewards figcaption")).to_contain_text("reward of each step: 0 to 1.11")
    expect(page.locator("#episode figure.rewards polyline")).to_have_count(1)
    expect(page.locator("#episode figure.frame img")).to_have_count(1)
    page.keyboard.press("ArrowRight")
    expect(page.locator("#episode figure.frame")).to_have_count(0)
    page.keyboard.press("Escape")
    page.locator(".cell.error").click()
    expect(page.locator("#episode")).to_contain_text("fell off")
    expect(page.locator("#episode figure.rewards")).to_have_count(0)


def test_a_film_that_is_gone_is_not_shown(tmp_path: Path, open_page: OpenPage) -> None:
    results, document = a_run(tmp_path)
    rows = [replace(results.rows[0], video="videos/gone.mp4"), *results.rows[1:]]
    page = open_page(written(tmp_path, replace(results, rows=rows), document))
    assert page.locator(".cell.film").count() == 0


def test_a_film_that_goes_while_the_page_is_open_is_said_to_be_gone(tmp_path: Path, open_page: OpenPage) -> None:
    results, document = a_run(tmp_path)
    film = tmp_path / "a.mp4"
    write_film(film)
    rows = [replace(results.rows[0], video=film.name), *results.rows[1:]]
    page = open_page(written(tmp_path, replace(results, rows=rows), document), server_goes_away=True)
    film.unlink()
    page.locator(".cell.film").click()
    expect(page.locator("#episode .nofilm")).to_contain_text("its file is gone")
    expect(page.locator("#episode")).to_contain_text("seed")


def test_values_of_very_many_episodes_are_drawn(tmp_path: Path, open_page: OpenPage) -> None:
    page = open_page(written(tmp_path, *a_run(tmp_path)))
    drawn = "parts.histogram('steps', { success: Array.from({ length: 300000 }, (_, n) => n % 70) }).textContent"
    assert "up to" in page.evaluate(drawn), "a function of a browser takes no more than some 100,000 arguments"


@pytest.mark.parametrize(
    ("width", "scheme"),
    sampled([(400, "light"), (400, "dark"), (1920, "light"), (1920, "dark")], (400, "dark")),
)
def test_it_is_readable_at_every_width_in_both_schemes(
    tmp_path: Path, open_page: OpenPage, width: int, scheme: str
) -> None:
    page = open_page(
        written(tmp_path, *a_run(tmp_path, name="a-rather-long-name-of-a-task-{}")), width=width, scheme=scheme
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    back = page.evaluate("getComputedStyle(document.body).backgroundColor")
    light = sum(map(int, re.findall(r"\d+", back)[:3])) > 3 * 128
    assert light == (scheme == "light")
    page.keyboard.press("d")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != back


@pytest.mark.everything
def test_two_thousand_episodes_open_in_under_two_seconds(tmp_path: Path, open_page: OpenPage) -> None:
    results, document = a_run(tmp_path, tasks=50, episodes=40)
    results = replace(results, rows=[replace(row, steps=400) for row in results.rows])
    path = written(tmp_path, results, document)
    assert path.stat().st_size < 5_000_000
    page = open_page(path)
    assert page.locator(".cell.success").count() > 500
    # Time in the page's own thread, by the browser: it does not count what other programs of a busy machine take.
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    page.reload()
    found = {entry["name"]: entry["value"] for entry in session.send("Performance.getMetrics")["metrics"]}
    assert found["TaskDuration"] < 2.0

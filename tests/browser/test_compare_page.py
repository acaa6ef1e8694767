"""The page of `sparring compare --html` in a real browser: differences, flipped episodes, and films side by side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from browser.conftest import OpenPage
from browser.films import write_film
from playwright.sync_api import expect
from rows import ROW
from support import sampled, wait_for

from sparring.env_worker.benchmark import Task
from sparring.orchestrator.comparison.comparison import compare
from sparring.orchestrator.comparison.returns import compare_returns
from sparring.orchestrator.plan import EpisodeId, Plan
from sparring.orchestrator.report.compared_returns import returns_content
from sparring.orchestrator.report.comparison import FilmsOfRun, comparison_content, comparison_page
from sparring.orchestrator.report.page import Embedding
from sparring.orchestrator.results.results import Results

pytestmark = [pytest.mark.processes, pytest.mark.requires("chromium")]

HOSTILE = '</script><img src=x onerror="alert(1)"><!-- & "'


def a_run(folder: Path, seed: int = 5, **tasks: str) -> Results:
    """A run of some tasks; a sign per episode says how it ended."""
    names = [Task(name.replace("_", "-"), f"do it {HOSTILE}", "group") for name in tasks]
    rows = [
        replace(ROW, task=task.name, index=index, seed=seed + index, outcome="success" if sign == "+" else "failure")
        for task, signs in zip(names, tasks.values(), strict=True)
        for index, sign in enumerate(signs)
    ]
    plan = Plan({"toy": names}, max(map(len, tasks.values())), seed)
    settings = {"benchmark": "toy", "policy": f"{folder.name} {HOSTILE}"}
    return Results(plan=plan, rows=rows, seconds=1.0, folder=folder, settings=settings)


def written(folder: Path, *, films: bool = True, embed: bool = False) -> Path:
    first = a_run(folder / "a", push_v3="+++---------", reach_v3="+-+-+-+-+-+-", shut_v3="++++++++++++")
    second = a_run(folder / "b", push_v3="++++++++++--", reach_v3="-+-+++++++++", shut_v3="++++++++++++")
    addresses = {}
    if films:
        write_film(folder / "film 1.mp4")
        addresses = {EpisodeId("toy", "reach-v3", 0): "film%201.mp4"}
    found = [
        FilmsOfRun(addresses, {None: f"it cannot be played again here: {HOSTILE}"}),
        FilmsOfRun(addresses),
    ]
    content = comparison_content([compare(first, second)], ["before", f"after {HOSTILE}"], found)
    if embed:
        embedding = Embedding(folder)
        for side in (side for episode in content["comparisons"][0]["flipped"] for side in episode["sides"]):
            side["film"] = embedding.of(side["film"])
    path = folder / "compare.html"
    path.write_text(comparison_page(content))
    return path


def written_returns(folder: Path) -> Path:
    """Two runs by their returns: one task of large ones that differs, one of small ones, one that is the same."""
    first = a_run(folder / "a", push_v3="+" * 6, reach_v3="+" * 6, shut_v3="+" * 6)
    moved = {"push-v3": (100.0, 12.0), "reach-v3": (1.0, -0.1), "shut-v3": (5.0, 0.0)}
    runs = [
        replace(
            first,
            folder=folder / name,
            rows=[
                replace(
                    row, reward_sum=moved[row.task][0] + row.index + side * moved[row.task][1] * (1 + row.index % 3)
                )
                for row in first.rows
            ],
        )
        for side, name in enumerate(("a", f"b {HOSTILE}"))
    ]
    write_film(folder / "film 1.mp4")
    films = [FilmsOfRun({EpisodeId("toy", "push-v3", 2): "film%201.mp4"}), FilmsOfRun()]
    content = returns_content([compare_returns(*runs)], runs, ["before", f"after {HOSTILE}"], films)
    path = folder / "returns.html"
    path.write_text(comparison_page(content))
    return path


def test_returns_are_shown_by_their_own_scale(tmp_path: Path, open_page: OpenPage) -> None:
    page = open_page(written_returns(tmp_path))
    expect(page.locator(".headline b")).to_have_text("+7.933")
    expect(page.locator(".headline span").first).to_have_text("of the mean return")
    assert page.locator(".tasks .change").count() == 4
    widths = page.locator(".tasks .change i").evaluate_all("bars => bars.map(bar => parseFloat(bar.style.width))")
    assert 0 < widths[1] < widths[0] <= 50, "one that differs by little is short, and none sticks out"
    assert widths[2] == 0
    expect(page.locator(".flip h3").first).to_have_text("push-v3 #2 +36")
    assert page.locator(".flip").count() == 12, "what is the same is not shown"
    page.select_option("#which", "lost")
    expect(page.locator(".flip")).to_have_count(6)
    expect(page.locator("#which option").nth(2)).to_have_text("lower")
    assert page.locator("img[src=x]").count() == 0


def test_it_shows_what_differs(tmp_path: Path, open_page: OpenPage) -> None:
    page = open_page(written(tmp_path))
    expect(page.locator(".headline b")).to_have_text("+30.6")
    expect(page.locator(".headline b")).to_have_class("won")
    assert page.locator(".tasks .change").count() == 4, "three tasks, and all of them"
    expect(page.locator(".tasks .change.won")).to_have_count(2)
    expect(page.locator(".tasks .name").first).to_have_text("push-v3")
    assert page.locator(".flip").count() == 15
    expect(page.locator("section p").first).to_contain_text("is better than before: +30.6 points")
    assert page.locator("img[src=x]").count() == 0, "names and sentences stay text"
    expect(page.locator(".flipped > p").first).to_contain_text(HOSTILE)
    expect(page.locator(".flipped > p").first).to_contain_text("films of")


def test_what_is_compared_by_force_says_so_before_all_else(tmp_path: Path, open_page: OpenPage) -> None:
    first = a_run(tmp_path / "a", push_v3="+-")
    second = replace(first, settings={**first.settings, "max_steps": 7})
    for write in (
        lambda: comparison_content([compare(first, second, force=True)], ["a", "b"], [FilmsOfRun(), FilmsOfRun()]),
        lambda: returns_content(
            [compare_returns(first, second, force=True)], [first, second], ["a", "b"], [FilmsOfRun(), FilmsOfRun()]
        ),
    ):
        (tmp_path / "forced.html").write_text(comparison_page(write()))
        page = open_page(tmp_path / "forced.html")
        box = page.locator("main section").first.locator(":scope > *").first
        expect(box).to_contain_text("Not comparable, and compared all the same")
        expect(box.locator("li")).to_have_text("max_steps: 0 (the benchmark's own limit) and 7.")
        expect(page.locator("pre")).to_contain_text("--force")


def test_a_run_that_goes_on_is_not_said_to_be_better_by_a_p_for_who_looks_once(
    tmp_path: Path, open_page: OpenPage
) -> None:
    first, second = a_run(tmp_path / "a", push_v3="-" * 6), a_run(tmp_path / "b", push_v3="+" * 6)
    going = replace(second, status="running", plan=replace(second.plan, episodes=20))
    for run, p, tone in ((second, "p = 0.031", "won"), (going, "p = 0.069", "")):
        content = comparison_content([compare(first, run)], ["a", "b"], [FilmsOfRun(), FilmsOfRun()])
        (tmp_path / "going.html").write_text(comparison_page(content))
        page = open_page(tmp_path / "going.html")
        expect(page.locator(".headline")).to_contain_text(p)
        expect(page.locator(".headline b")).to_have_class(tone)
        expect(page.locator(".change.won")).to_have_count(1 if tone else 0)
    expect(page.locator(".caution")).to_contain_text("holds whenever you look, p = 0.069 after 6 whole rounds")


def test_filter_and_choice(tmp_path: Path, open_page: OpenPage) -> None:
    page = open_page(written(tmp_path))
    page.keyboard.press("/")
    page.keyboard.type("reach")
    expect(page.locator(".flip")).to_have_count(8)
    expect(page.locator(".tasks .name")).to_have_text(["reach-v3"])
    page.keyboard.press("Escape")
    page.select_option("#which", "lost")
    expect(page.locator(".flip h3")).to_have_text(["reach-v3 #0 ✓ → ✗", "reach-v3 #2 ✓ → ✗"])
    page.fill("#filter", "nothing like it")
    expect(page.locator(".tasks p")).to_have_text("no task matches the filter")
    page.locator("#keys").focus()
    page.keyboard.press("?")
    expect(page.locator("#help")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("d")
    assert page.evaluate("document.documentElement.dataset.scheme") == "dark"


@pytest.mark.parametrize("embed", sampled([False, True], False))
def test_both_films_play_together(tmp_path: Path, open_page: OpenPage, embed: bool) -> None:
    path = written(tmp_path, embed=embed)
    if embed:
        (tmp_path / "film 1.mp4").unlink()
    page = open_page(path)
    films = page.locator(".flip video")
    expect(films).to_have_count(2)
    page.click("#play")
    wait_for(lambda: all(films.nth(side).evaluate("film => film.currentTime") > 0.2 for side in (0, 1)))
    boxes = [films.nth(side).bounding_box() for side in (0, 1)]
    assert boxes[0] is not None
    assert boxes[1] is not None
    assert boxes[0]["y"] == boxes[1]["y"]
    assert boxes[0]["x"] + boxes[0]["width"] < boxes[1]["x"], "side by side"
    page.keyboard.press("p")
    wait_for(lambda: films.first.evaluate("film => film.paused"))


@pytest.mark.parametrize(
    ("width", "scheme"),
    sampled([(400, "light"), (400, "dark"), (1920, "light"), (1920, "dark")], (400, "dark")),
)
@pytest.mark.parametrize("write", [written, written_returns])
def test_it_is_readable_on_a_phone_and_on_a_wall(
    tmp_path: Path, open_page: OpenPage, width: int, scheme: str, write: Callable[[Path], Path]
) -> None:
    page = open_page(write(tmp_path), width=width, scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for selector in (".headline b", ".tasks .name >> nth=0", ".flip >> nth=0", "#filter"):
        box = page.locator(selector).bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
    lit = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, lit[4:-1].split(","))) > 600) == (scheme == "light")

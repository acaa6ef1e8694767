"""`sparring compare --html`: a page with the episodes that flipped, with films, by replay where there are none."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

import pytest
from support import Sparring, page_content

from sparring.orchestrator.cli.compared_films import films_name

PLAY = ("--benchmark", "toy", "--task", "good", "--policy", "toy_policies:Forward", "--episodes", "8", "--in-process")


@pytest.fixture
def runs(usage: Sparring) -> None:
    """Of task `short`, what succeeds only with the larger gain flips."""
    for name, gain, more in (("before", "0.6", ()), ("after", "1", ("--video", "short:0"))):
        done = usage("run", *PLAY, "--policy-arg", f"gain={gain}", "--output", name, *more)
        assert done.returncode == 0, done.stderr


@pytest.mark.usefixtures("runs")
def test_what_flipped_has_both_films(usage: Sparring, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    page = tmp_path / "pages" / "compare.html"
    compared = ("compare", "before", "after", "--html", str(page), "--in-process", "--films", "2")
    done = usage(*compared)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == str(page)
    assert "before: 2 episodes are played again to be filmed for the page; --films 0 makes it without" in caplog.text
    assert "after: 1 episode is played again" in done.stderr, "through the display of the first one"
    (one,) = page_content(page)["comparisons"]
    flipped = one["flipped"]
    assert [episode["won"] for episode in flipped] == [True] * len(flipped)
    assert len(flipped) >= 3
    for episode in flipped[:2]:
        for side in episode["sides"]:
            assert (page.parent / unquote(side["film"])).stat().st_size > 0, side
    assert flipped[0]["index"] == 0
    assert flipped[0]["sides"][1]["film"].endswith("after/videos/short_0000_success.mp4"), "the run has made one"
    assert flipped[-1]["sides"][0]["film"] == ""
    assert flipped[-1]["sides"][0]["why_no_film"] == "only the first 2 are filmed (--films 2)"
    made = {path: path.stat().st_mtime_ns for path in page.parent.rglob("*.mp4")}
    assert len(made) == 3, "two of the first, and of the second the one that there was not"
    assert usage(*compared).returncode == 0
    assert {path: path.stat().st_mtime_ns for path in page.parent.rglob("*.mp4")} == made, "they are not made again"

    assert (
        usage("compare", "before", "after", "before", "--html", "three.html", "--films", "0", "--json").returncode == 0
    )
    three = page_content(tmp_path / "three.html")["comparisons"]
    assert [len(each["flipped"]) for each in three] == [len(flipped), 0]
    assert usage("compare", "before", "after", "--html", "whole.html", "--films", "0", "--embed").returncode == 0
    sides = [
        side
        for each in page_content(tmp_path / "whole.html")["comparisons"]
        for e in each["flipped"]
        for side in e["sides"]
    ]
    assert [side["film"][:22] for side in sides if side["film"]] == ["data:video/mp4;base64,"]


@pytest.mark.parametrize(
    "id", ["/tmp/elsewhere", "../../..", "..", "a/b", ".", "x" * 40, "\0", "\ud800", "0123456789A"]
)
def test_films_are_beside_the_page_whatever_a_run_calls_itself(tmp_path: Path, id: str) -> None:
    assert re.fullmatch("[0-9a-f]{12}", films_name(id, tmp_path))
    assert films_name("0123456789abcdef", tmp_path) == "0123456789ab"
    assert films_name(None, tmp_path / "a:b") == "a_b"


def test_without_actions_the_page_says_why_there_are_no_films(usage: Sparring, tmp_path: Path) -> None:
    for name, gain in (("before", "0.6"), ("after", "1")):
        run = ("run", *PLAY, "--episodes", "2", "--policy-arg", f"gain={gain}", "--no-actions", "--output", name)
        assert usage(*run).returncode == 0
    done = usage("compare", "before", "after", "--html", "compare.html", "--in-process")
    assert done.returncode == 0, done.stderr
    assert "there are no films of before by replay" in done.stderr
    (one,) = page_content(tmp_path / "compare.html")["comparisons"]
    assert one["flipped"]
    for episode in one["flipped"]:
        for side in episode["sides"]:
            assert side["why_no_film"].startswith("it cannot be played again here: the run in")


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (("--embed",), "--embed is for the page"),
        (("--films", "0"), "--films is for the page"),
        (("--html", "file/page.html"), "cannot be made"),
    ],
)
@pytest.mark.usefixtures("runs")
def test_wrong_usage(more: tuple[str, ...], sentence: str, usage: Sparring, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = usage("compare", "before", "after", *more)
    assert done.returncode == 2
    assert sentence in " ".join(done.stderr.split())

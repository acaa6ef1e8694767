"""`sparring report`: what it writes, and what it says of what cannot be."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from pyarrow import parquet
from rows import ROW
from sites import serving
from support import ROOT, Sparring

from sparring.env_worker.benchmark import Task
from sparring.orchestrator.cli.main import main
from sparring.orchestrator.plan import EpisodeId, Plan
from sparring.orchestrator.replay.derived_files import derived_problems
from sparring.orchestrator.report.content import report_content
from sparring.orchestrator.report.formats import write_table
from sparring.orchestrator.report.markdown import report_markdown
from sparring.orchestrator.report.page import report_page, script_json
from sparring.orchestrator.report.timelines import MOST_POINTS, timelines
from sparring.orchestrator.results.document import read_document
from sparring.orchestrator.results.results import Results
from sparring.orchestrator.trackers.numbers import final_numbers, table_rows
from sparring.orchestrator.view.folder_watch import FolderWatch
from sparring.orchestrator.view.library import Library
from sparring.orchestrator.view.model import RunModel, SeenSoFar
from sparring.orchestrator.view.pages import Pages
from sparring.protos.trace import Trace

OLD = ROOT / "tests" / "fixtures" / "release-0.1.0"

Report = Callable[..., tuple[int, str, str]]


@pytest.fixture
def report(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Report:
    """The command in this process: its exit code, and what it said."""

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["sparring", "report", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return int(str(ended.value.code)), said.out, said.err

    return run


def test_a_page_and_a_text_are_made_in_the_folder(report: Report, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(OLD / "finished", tmp_path / "out"))
    code, out, err = report(folder)
    assert (code, err) == (0, "")
    assert out.split() == [str(folder / "report.html"), str(folder / "report.md")]
    page = (folder / "report.html").read_text()
    assert "{{" not in page
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", page), "asks somebody else"
    content = json.loads(re.findall(r'<script id="content" type="application/json">(.*?)</script>', page, re.DOTALL)[0])
    assert content["overall"]["success_rate"] == 0.75
    assert len(content["episodes"]["index"]) == content["recorded"] == 12
    assert content["status"] == "finished"
    text = (folder / "report.md").read_text()
    assert "**75.0 % success** (95 % interval 40.9 – 92.9 %), 12 of 12 episodes, finished." in text
    assert "| short | 4 | 0 | 50.0 % | 15.0 – 85.0 % |" in text


def test_an_unfinished_run_is_marked_so(report: Report) -> None:
    content = json.loads(report(OLD / "unfinished", "--format", "json", "--output", "-")[1])
    assert (content["status"], content["recorded"], content["planned"]) == ("unfinished", 17, 24)
    low, high = content["any_time"]
    assert 0.0 <= low < content["overall"]["success_rate"] < high <= 1.0


def test_tables_for_programs(report: Report, tmp_path: Path) -> None:
    formats = [argument for name in ("csv", "parquet", "junit") for argument in ("--format", name)]
    assert report(OLD / "finished", *formats, "--output", tmp_path / "new" / "folder")[0] == 0
    folder = tmp_path / "new" / "folder"
    with (folder / "report.csv").open() as file:
        rows = list(csv.DictReader(file))
    table = parquet.read_table(folder / "report.parquet").to_pylist()
    assert [row["outcome"] for row in rows] == [row["outcome"] for row in table]
    assert [float(row["reward_sum"]) for row in rows] == [row["reward_sum"] for row in table]
    suites = ElementTree.parse(folder / "report.xml").getroot()
    assert {suite.get("name"): (suite.get("failures"), suite.get("errors")) for suite in suites} == {
        "toy/long": ("0", "0"), "toy/raises": ("0", "4"), "toy/short": ("2", "0"),
    }  # fmt: skip
    assert len(suites.findall(".//testcase")) == 12


def test_junit_has_what_was_not_run_as_errors(report: Report) -> None:
    suites = ElementTree.fromstring(report(OLD / "unfinished", "--format", "junit", "--output", "-")[1])
    assert len(suites.findall(".//testcase")) == 24
    assert len(suites.findall(".//error[@type='missing']")) == 7


def test_junit_can_be_read_whatever_names_are() -> None:
    name = "a\ufffe\x00<&"
    plan = Plan({"toy": [Task(name, "", "group")]}, 1, 5)
    target = io.BytesIO()
    write_table(Results(plan=plan, rows=[replace(ROW, task=name)], seconds=1.0, folder=None), "junit", target)
    assert len(ElementTree.fromstring(target.getvalue()).findall(".//testcase")) == 1


def test_a_link_in_a_strangers_folder_is_not_followed(report: Report, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_text("untouched")
    folder = Path(shutil.copytree(OLD / "finished", tmp_path / "out"))
    for name in ("report.md", "report.md.new", "report.csv.new", "report.csv"):
        (folder / name).symlink_to(mine)
    assert report(folder, "--format", "md", "--format", "csv")[0] == 0
    assert mine.read_text() == "untouched"
    assert (folder / "report.md").read_text().startswith("# ")
    assert not (folder / "report.md").is_symlink()


@pytest.mark.parametrize("how", ["by a path", "by a link", "no film"])
def test_no_file_from_elsewhere_comes_into_a_page(tmp_path: Path, how: str) -> None:
    secret = tmp_path / ("secret.txt" if how == "no film" else "secret.mp4")
    folder = tmp_path / "out"
    (folder / "videos").mkdir(parents=True)
    secret.write_text("secret")
    (folder / "videos" / "link.mp4").symlink_to(secret)
    (folder / "videos" / "notes.txt").write_text("secret")
    video = {"by a path": "../secret.mp4", "by a link": "videos/link.mp4", "no film": "videos/notes.txt"}[how]
    plan = Plan({"toy": [Task("x", "", "group")]}, 1, 5)
    results = Results(plan=plan, rows=[replace(ROW, video=video)], seconds=1.0, folder=folder)
    content = report_content(results, read_document(OLD / "finished"), tmp_path)
    assert content["episodes"]["film"] == [""]


def test_what_stands_for_something_else_in_the_page_is_text(tmp_path: Path) -> None:
    document = read_document(OLD / "finished")
    content = report_content(Results.load(OLD / "finished"), document, tmp_path)
    page = report_page({**content, "title": "{{content}} {{script}} \x1b"})
    assert "<title>{{content}} {{script}} " in page
    assert "\x1b" not in page
    assert page.count('"schema":1') == 1


def test_markdown_of_a_stranger_is_text(tmp_path: Path) -> None:
    content = report_content(Results.load(OLD / "finished"), read_document(OLD / "finished"), tmp_path)
    content["policy"]["checkpoint_sha256"] = "<img src=x>\n\n@everybody"
    command = "sparring run\n```\n# out\n~~~~~~~"
    content["executions"] = [{"command": given} for given in (command, None, "sparring resume out", command)]
    text = report_markdown(content)
    assert "<img" not in text.replace("\\<img", "")
    assert "\n@" not in text
    assert text.endswith("````sh\nsparring run ``` # out ~~~~~~~\nsparring resume out\n````\n"), "each command once"


def test_standard_output_makes_no_folder(report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert report(OLD / "finished", "--format", "md", "--output", "-")[0] == 0
    assert list(tmp_path.iterdir()) == []


def test_one_format_may_go_to_a_file(report: Report, tmp_path: Path) -> None:
    assert report(OLD / "finished", "--format", "md", "--output", tmp_path / "here.md")[0] == 0
    assert (tmp_path / "here.md").read_text().startswith("# toy\\_policies:Wanderer on toy")
    assert report(OLD / "finished", "--format", "md", "--tasks", "short", "--output", "-")[1].count("| short |") == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([ROOT / "docs"], "is not the output folder of a run"),
        ([OLD / "finished", "--format", "html", "--format", "md", "--output", "-"], "place for one format"),
        ([OLD / "finished", "--format", "md", "--embed"], "--embed is for the page"),
        ([OLD / "finished", "--output", "/dev/null/x"], "cannot be made"),
        ([OLD / "finished", "--format", "doc"], "'doc' is not one of"),
        ([OLD / "finished", "--tasks", "nothing"], "nothing"),
    ],
)
def test_wrong_usage(report: Report, arguments: list[object], sentence: str) -> None:
    code, out, err = report(*arguments)
    assert (code, out) == (2, "")
    assert sentence in err


def test_a_run_without_an_episode_has_a_report_and_no_interval(tmp_path: Path) -> None:
    results = replace(Results.load(OLD / "unfinished"), rows=[])
    content = report_content(results, read_document(OLD / "unfinished"), tmp_path)
    assert (content["any_time"], content["suite"], content["recorded"]) == (None, None, 0)
    assert report_page(content)
    assert "no success rate, 0 of 24 episodes, unfinished." in report_markdown(content)


def test_a_journal_of_a_newer_release_is_a_sentence_wherever_it_is_looked_at(usage: Sparring, tmp_path: Path) -> None:
    for name in ("newer", "known"):
        shutil.copytree(OLD / "finished", tmp_path / "runs" / name)
    with contextlib.closing(sqlite3.connect(tmp_path / "runs" / "newer" / "journal.sqlite")) as journal, journal:
        journal.execute("UPDATE meta SET value = '99' WHERE key = 'schema'")
    sentence = "was written by a newer release (journal version 99"
    for command in (("report", "runs/newer"), ("compare", "runs/known", "runs/newer", "--html", "page.html")):
        done = usage(*command)
        assert (done.returncode, done.stdout) == (2, "")
        assert sentence in done.stderr
    assert not (tmp_path / "page.html").exists()
    assert not (tmp_path / "runs" / "newer" / "report.html").exists()
    library = Library([tmp_path / "runs"])
    ids = {entry.folder.name: id for id, entry in library.entries().items()}
    with serving(Pages(library)) as here:
        for path in (f"/run/{ids['newer']}/report", f"/compare?run={ids['known']}&run={ids['newer']}"):
            answer = here.ask(path)
            assert answer.status == 422
            assert sentence in answer.text
        assert here.ask(f"/run/{ids['newer']}/").status == 200
    model = RunModel()
    FolderWatch(model, tmp_path / "runs" / "newer").refresh()
    news, _ = model.news(SeenSoFar())
    assert news is not None
    assert news["status"] == "unreadable"
    assert sentence in news["status_told"]


def test_a_run_of_errors_only(report: Report, tmp_path: Path) -> None:
    text = report(OLD / "finished", "--tasks", "raises", "--format", "md", "--output", "-")[1]
    assert "no success rate, 4 of 4 episodes" in text
    assert report(OLD / "finished", "--tasks", "raises", "--output", tmp_path)[0] == 0


def test_errors_that_differ_in_numbers_are_told_once(tmp_path: Path) -> None:
    plan = Plan({"toy": [Task("x", "go", "g")]}, 4, 5)
    sentences = ("stuck at 0.31 m", "stuck at 0.7 m", "stuck at 0.31 m", "lost x #3")
    rows = [
        replace(ROW, task="x", index=index, outcome="error", error=told, error_kind="simulator")
        for index, told in enumerate(sentences)
    ]
    results = Results(plan=plan, rows=rows, seconds=1.0, folder=None)
    content = report_content(results, read_document(OLD / "finished"), tmp_path)
    assert [(error["n"], error["alike"]) for error in content["errors"]] == [(2, 0), (1, 0), (1, 2)]
    assert content["episodes"]["error"] == [0, 1, 0, 2], "each episode has its own sentence"
    assert [line.split("|")[1:4] for line in report_markdown(content).splitlines() if "simulator" in line] == [
        [" 3 ", " simulator ", " stuck at 0.31 m "],
        [" 1 ", " simulator ", " lost x \\#3 "],
    ]


def test_markdown_cannot_be_broken_by_names(tmp_path: Path) -> None:
    name = "a|b <img> `x`\n# title"
    results = Results(
        plan=Plan({"toy": [Task(name, "", "group")]}, 1, 5), rows=[replace(ROW, task=name)], seconds=1.0, folder=None
    )
    text = report_markdown(report_content(results, read_document(OLD / "finished"), tmp_path))
    line = next(line for line in text.splitlines() if line.startswith("| a"))
    assert line.startswith(r"| a\|b \<img\> \`x\`")
    assert len(re.findall(r"(?<!\\)\|", line)) == 6
    assert "\n# title" not in text


def test_json_in_a_script_cannot_end_it() -> None:
    text = script_json({"</script>": "<!-- \u2028 &"})
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == {"</script>": "<!-- \u2028 &"}


def test_an_episode_has_its_rewards_and_what_it_began_with(usage: Sparring, tmp_path: Path) -> None:
    run = ("run", "--benchmark", "toy", "--task", "short", "--policy", "toy_policies:Wanderer", "--in-process")
    assert usage(*run, "--episodes", "3", "--output", "out", "--video", "short:0").returncode == 0
    done = usage("report", "out", "--first-frames", "--in-process", "--format", "json", "--format", "html")
    assert done.returncode == 0, done.stderr
    episodes = json.loads((tmp_path / "out" / "report.json").read_text())["episodes"]
    results = Results.load(tmp_path / "out")
    for at, row in enumerate(results.rows):
        assert len(episodes["rewards"][at]) == row.steps
        assert sum(episodes["rewards"][at]) == pytest.approx(row.reward_sum, abs=0.01 * row.steps)
        assert (episodes["success_at"][at] > 0) == (row.outcome == "success")
        assert episodes["frame"][at].startswith("data:image/jpeg;base64,/9j/"), "of its film, or played again"
        assert len(episodes["frame"][at]) < 20_000
    assert sum(bool(film) for film in episodes["film"]) == 1
    done = usage("report", "out", "--in-process")
    assert done.returncode == 2
    assert "--first-frames" in done.stderr


def test_a_long_episode_is_told_in_parts_and_a_strange_trace_not_at_all() -> None:
    rewards = [0.0, *(float(step) for step in range(1, 101))]
    trace = Trace(rewards, [0.0] * 60 + [1.0] * 41, [0.0] * 101)
    known, strange = EpisodeId("toy", "a", 0), EpisodeId("toy", "a", 1)
    found = timelines({known: trace.pack(), strange: b"nonsense"})
    assert list(found) == [known]
    assert len(found[known].rewards) == MOST_POINTS
    assert found[known].success_at == 60
    assert found[known].rewards[0] == pytest.approx(1.5)
    assert sum(found[known].rewards) / MOST_POINTS == pytest.approx(50.5, rel=0.01)


def test_rules_are_in_every_format_and_several_protocols_have_no_rate_together(
    usage: Sparring, report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = ("--policy", "toy_policies:Wanderer", "--benchmark", "toy", "--task", "short,long", "--in-process")
    done = usage("run", *plan, "--episodes", "3", "--protocols", "ours,narrow", "--output", "run")
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "run"
    results = Results.load(folder)
    assert report(folder, "--format", "json", "--format", "md", "--format", "junit", "--format", "html")[0] == 0
    content = json.loads((folder / "report.json").read_text())
    assert (content["overall"], content["suite"], content["any_time"]) == (None, None, None)
    rates = {whole["name"]: (whole["n"], whole["success_rate"]) for whole in content["overall_by"]}
    assert rates == {name: (6, results.benchmarks[name].success_rate) for name in ("ours", "narrow")}
    text, xml = (folder / "report.md").read_text(), ElementTree.parse(folder / "report.xml")
    kept = {found.get("value") for found in xml.iter("property")}
    for name, protocol in results.protocols.items():
        assert f"success by {name}**" in text
        assert protocol.sha256 in text
        assert {protocol.label, protocol.sha256} <= kept
        assert protocol.sha256 in (folder / "report.html").read_text()
    assert json.loads((folder / "run.json").read_text())["overall"] is None
    assert list(derived_problems(folder)) == []  # nor does verify miss it
    numbers = final_numbers(results)
    assert "eval/success_rate" not in numbers
    assert numbers["eval/protocol/narrow/success_rate"] == rates["narrow"][1]
    assert [row[0] for row in table_rows(results)][-2:] == ["overall by ours", "overall by narrow"]


def test_a_film_that_was_made_later_is_in_the_next_report(usage: Sparring, tmp_path: Path) -> None:
    run = ("run", "--benchmark", "toy", "--task", "short", "--policy", "toy_policies:Wanderer", "--in-process")
    assert usage(*run, "--episodes", "3", "--output", "out", "--video", "short:0").returncode == 0

    def films() -> tuple[list[str], list[int]]:
        assert usage("report", "out", "--format", "json").returncode == 0
        episodes = json.loads((tmp_path / "out" / "report.json").read_text())["episodes"]
        return episodes["film"], episodes["film_gone"]

    (first, *others), gone = films()
    assert (bool(first), others, gone) == (True, ["", ""], [0, 0, 0])
    # The very command that the page tells where an episode has no film.
    assert usage("film", "out", "--episodes", "short:1", "--in-process").returncode == 0
    (_, second, _), _ = films()
    assert second.startswith("films/short_0001_")
    assert (tmp_path / "out" / second).is_file()
    (tmp_path / "out" / first).unlink()
    assert films() == (["", second, ""], [1, 0, 0])
    with serving(Pages(Library([tmp_path / "out"]))) as here:
        (id,) = Library([tmp_path / "out"]).entries()
        page = here.ask(f"/run/{id}/report").text
        assert '"film":["","film/0/1.mp4",""]' in page
        assert here.ask(f"/run/{id}/film/0/1.mp4").status == 200
        assert here.ask(f"/run/{id}/film/0/0.mp4").status == 404

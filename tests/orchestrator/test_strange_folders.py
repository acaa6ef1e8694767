"""Folders that no run has written: a sentence, soon, and never a traceback, a wait without end or all of the memory."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
import tempfile
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support import Sparring

from sparring.orchestrator.results.damage import DamagedJournal
from sparring.orchestrator.results.document import read_document
from sparring.orchestrator.results.files import open_to_lock
from sparring.orchestrator.results.journal import Journal
from sparring.orchestrator.results.reading import is_running, read_journal
from sparring.orchestrator.results.results import Results
from sparring.protos.errors import UsageError

HERE = "--in-process"


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of four episodes."""
    from toy_policies import Wanderer

    from sparring import Evaluator

    folder = tmp_path_factory.mktemp("pristine") / "run"
    with Evaluator() as evaluator:
        evaluator.evaluate(Wanderer(), benchmark="toy", tasks="short,long", episodes=2, in_process=True, output=folder)
    return folder


@pytest.fixture
def folder(pristine: Path, tmp_path: Path) -> Path:
    """A copy of it, to be changed."""
    return Path(shutil.copytree(pristine, tmp_path / "run"))


def change(folder: Path, edit: Callable[[dict[str, Any]], Any]) -> None:
    document = json.loads((folder / "run.json").read_text())
    edit(document)
    (folder / "run.json").write_text(json.dumps(document))


def execute(folder: Path, *statements: str) -> None:
    with closing(sqlite3.connect(folder / "journal.sqlite", isolation_level=None)) as journal:
        for statement in statements:
            journal.execute(statement)


def problems(usage: Sparring, folder: Path) -> tuple[int, str]:
    done = usage("verify", str(folder), HERE, "--json", "--all")
    assert done.stdout, done.stderr
    return done.returncode, " ".join(json.loads(done.stdout)["problems"])


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda d: d["settings"].update(episodes=5), "has the episodes 5 in its settings, and 2 in its plan"),
        (lambda d: d["settings"].update(seed=4), "has the seed 4 in its settings, and 1000 in its plan"),
        (lambda d: d["settings"].update(task="short"), "other tasks of toy than its settings select (short): long"),
        (lambda d: d["settings"].update(max_steps=9), "another plan than the journal: max_steps"),
    ],
)
def test_the_plan_is_what_settings_and_journal_say(
    usage: Sparring, folder: Path, edit: Callable[[dict[str, Any]], Any], said: str
) -> None:
    assert problems(usage, folder) == (0, "")
    change(folder, edit)
    code, told = problems(usage, folder)
    assert code == 1
    assert said in told


def test_a_plan_that_was_cut_is_found_by_the_journal(usage: Sparring, folder: Path) -> None:
    identity = read_journal(folder).meta["identity"]
    execute(folder, f"UPDATE meta SET value = '{json.dumps({**identity, 'episodes': 9})}' WHERE key = 'identity'")
    assert "another plan than the journal: episodes" in problems(usage, folder)[1]


def test_films_do_not_go_through_a_link_of_the_folder(usage: Sparring, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (folder / "films").symlink_to(tmp_path / "elsewhere")
    done = usage("film", str(folder), HERE, "--episodes", "all")
    assert done.returncode == 2
    assert "is a link, and leads elsewhere" in done.stderr
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("episodes", [2_000_000_000, 0, -3])
def test_a_plan_has_its_limits(folder: Path, episodes: int) -> None:
    change(folder, lambda document: document.update(episodes=episodes))
    with pytest.raises(UsageError, match=r"run\.json' is damaged: .*episodes"):
        read_document(folder)


@pytest.mark.parametrize("kind", ["pipe", "device"])
@pytest.mark.parametrize("name", ["run.json", "journal.sqlite", "journal.sqlite-wal"])
def test_what_is_no_file_is_not_read(folder: Path, name: str, kind: str) -> None:
    (folder / name).unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(folder / name)
    else:
        (folder / name).symlink_to("/dev/zero")
    with pytest.raises(UsageError, match="it is no regular file"):
        Results.load(folder)


@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "link"])
@pytest.mark.parametrize("name", ["journal.sqlite", "journal.sqlite-wal", "journal.sqlite-shm", "journal.lock"])
def test_nothing_but_files_is_written_to(usage: Sparring, folder: Path, tmp_path: Path, name: str, kind: str) -> None:
    """A pipe that nobody reads would be waited for without end, by resume as by salvage; what a link leads to is yours.

    The lock was emptied.
    """
    mine = tmp_path / "mine"
    mine.write_text("untouched")
    (folder / name).unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(folder / name)
    elif kind == "device":
        (folder / name).symlink_to("/dev/zero")
    elif kind == "link":
        (folder / name).symlink_to(mine)
    else:
        (folder / name).mkdir()
    with pytest.raises(UsageError, match=f"{name}' is no regular file, so no run has written it"):
        Journal(folder)
    done = usage("salvage", str(folder))
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{name}' is no regular file, so no run has written it" in done.stderr
    assert mine.read_text() == "untouched"


def test_a_lock_that_becomes_a_link_meanwhile_is_not_followed(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_text("untouched")
    (tmp_path / "lock").symlink_to(mine)
    with pytest.raises(OSError, match="symbolic link"):
        open_to_lock(tmp_path / "lock")
    with open_to_lock(mine):
        assert mine.read_text() == "untouched"


def test_a_bundle_says_nothing_of_files_elsewhere_and_overwrites_none(
    usage: Sparring, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever has made the folder would know by the hash whether a file of yours has the content that they think."""
    mine = folder.parent / "mine"
    mine.write_text("untouched")
    (folder / "videos").mkdir(exist_ok=True)
    (folder / "videos" / "film.mp4").write_bytes(b"a film")
    (folder / "videos" / "link.mp4").symlink_to(mine)
    for name in (".run.sparring.zip.part", "run.sparring.zip.new"):
        (folder.parent / name).symlink_to(mine)
    done = usage("bundle", str(folder))
    assert done.returncode == 0, done.stderr
    assert "videos/link.mp4 is a link, so the bundle says nothing of it" in caplog.text
    with zipfile.ZipFile(folder.parent / "run.sparring.zip") as archive:
        files = json.loads(archive.read("bundle.json"))["files"]
    assert files["videos/film.mp4"] == hashlib.sha256(b"a film").hexdigest()
    assert "videos/link.mp4" not in files
    assert mine.read_text() == "untouched"


def test_a_lock_that_is_a_pipe_is_locked_by_nobody(folder: Path) -> None:
    (folder / "journal.lock").unlink()
    os.mkfifo(folder / "journal.lock")
    assert not is_running(folder)


def test_a_table_that_is_a_device_is_a_problem(usage: Sparring, folder: Path) -> None:
    (folder / "episodes.csv").unlink()
    (folder / "episodes.csv").symlink_to("/dev/zero")
    code, told = problems(usage, folder)
    assert code == 1
    assert "episodes.csv cannot be read" in told


@pytest.mark.parametrize(
    "statements",
    [
        ["ALTER TABLE meta ADD COLUMN long AS (hex(zeroblob(1000000)))"],
        ["CREATE VIEW more AS SELECT * FROM meta"],
        ["ALTER TABLE meta RENAME TO other", "CREATE VIEW meta AS SELECT * FROM other"],
        ["CREATE TRIGGER some AFTER INSERT ON meta BEGIN DELETE FROM meta; END"],
        ["CREATE INDEX slow ON meta (length(value))"],
    ],
)
def test_a_journal_has_nothing_that_is_computed(folder: Path, statements: list[str]) -> None:
    execute(folder, *statements)
    with pytest.raises(DamagedJournal, match="which no journal has so"):
        read_journal(folder)


def test_a_copy_of_a_journal_is_gone_while_it_is_read(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a process that is killed leaves none."""
    from sparring.orchestrator.results import reading

    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    seen: list[list[Path]] = []
    whole = reading.check_whole

    def look(connection: sqlite3.Connection) -> None:
        seen.append(list((tmp_path / "temporary").iterdir()))
        whole(connection)

    monkeypatch.setattr(reading, "check_whole", look)  # where it is in the middle of reading
    assert len(read_journal(folder).rows) == 4
    assert seen == [[]]


def test_what_takes_for_ever_has_a_deadline(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sparring.orchestrator.results import reading

    monkeypatch.setattr(reading, "_MOST_SECONDS", -1.0)
    monkeypatch.setattr(reading, "_INSTRUCTIONS", 1)
    with pytest.raises(UsageError, match="cannot be read: interrupted"):
        read_journal(folder)


@pytest.mark.parametrize(
    "settings",
    [
        {"benchmark": 5, "evaluations": 7, "metric": [1], "seed": "x"},
        {},
        {"evaluations": [5]},
        {"benchmark": "toy", "task": {"a": 1}},
        {"benchmark": "toy", "task": "short", "benchmark_arg": [1]},
    ],
)
def test_settings_of_wrong_types_are_damage(usage: Sparring, folder: Path, settings: dict[str, Any]) -> None:
    change(folder, lambda document: document.update(settings=settings))
    done = usage("verify", str(folder), HERE)
    assert (done.returncode, "damaged" in done.stderr) == (2, True), done.stderr


def test_a_document_that_is_too_deep_is_damage(folder: Path) -> None:
    text = (folder / "run.json").read_text()

    def nest(deep: int) -> None:  # below the document and its key
        nested = '{"a":' * deep + "1" + "}" * deep
        (folder / "run.json").write_text(text.replace("{", f'{{"a key of later": {nested},', 1))

    nest(98)
    assert Results.load(folder).status == "finished"
    for deep in (99, 900, 100_000):
        nest(deep)
        with pytest.raises(UsageError, match="damaged"):
            Results.load(folder)


@pytest.mark.parametrize("key", ["seconds", "program:a", "schema"])
def test_notes_of_wrong_types_are_damage(folder: Path, key: str) -> None:
    for value in ('{"a": [1, 2, 3]}', "[" * 5000 + "]" * 5000):
        execute(folder, f"INSERT OR REPLACE INTO meta VALUES ('{key}', '{value}')")
        with pytest.raises(DamagedJournal):
            Results.load(folder)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [("tasks", {}, "its plan has no task"), ("episodes", 0, "episodes: Input should be greater than or equal to 1")],
)
def test_an_empty_plan_is_no_run(
    field: str, value: object, said: str, folder: Path, pristine: Path, usage: Sparring
) -> None:
    document = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**document, field: type(document[field])() if value == {} else value}))
    for command in (
        ("show", str(folder)),
        ("report", str(folder)),
        ("compare", str(pristine), str(folder)),
        ("verify", str(folder), HERE),
        ("resume", str(folder)),
    ):
        done = usage(*command)
        assert (done.returncode, said in " ".join(done.stderr.split())) == (2, True), (command, done.stderr)
    assert usage("run", "--benchmark", "toy", "--task", "", "--policy", "zero", HERE).returncode == 2
    assert usage("run", "--benchmark", "toy", "--task", "short", "--episodes", "0", "--policy", "zero").returncode == 2


def test_a_run_without_an_episode_yet_says_so_everywhere(folder: Path, pristine: Path, usage: Sparring) -> None:
    with closing(sqlite3.connect(folder / "journal.sqlite", isolation_level=None)) as journal:
        journal.execute("DELETE FROM episodes")
    document = json.loads((folder / "run.json").read_text())
    left = {"status": "unfinished", "recorded": 0, "overall": None, "task_rates": {}, "group_rates": {}}
    (folder / "run.json").write_text(json.dumps({**document, **left}))
    assert "unfinished: 0 of 4 episodes" in usage("show", str(folder)).stdout
    report = usage("report", str(folder), "--format", "md", "--output", "-")
    assert "no success rate, 0 of 4 episodes, unfinished." in report.stdout
    assert usage("report", str(folder)).returncode == 0
    for more, said in (((), "there is no rate to compare"), (("--metric", "return"), "there is no round")):
        done = usage("compare", str(pristine), str(folder), *more)
        assert (done.returncode, said in " ".join(done.stderr.split())) == (2, True), done.stderr
    plotted = Results.load(folder)
    assert (plotted.overall.success_rate, len(plotted.to_dataframe())) == (None, 0)
    assert plotted.plot().get_xlabel() == "success, with 95 % intervals"
    assert "<table" in plotted._repr_html_()

"""Journals that are gone, empty, of another run or damaged: told apart, told in a sentence, and saved from."""

from __future__ import annotations

import json
import random
import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rows import ROW
from support import ROOT, Sparring

from sparring.orchestrator.execution.run_files import RunFiles, output_folder
from sparring.orchestrator.results import pages
from sparring.orchestrator.results.damage import DamagedJournal
from sparring.orchestrator.results.journal import Journal
from sparring.orchestrator.results.makers import Maker
from sparring.orchestrator.results.pages import StoredRow
from sparring.orchestrator.results.results import Results
from sparring.orchestrator.results.row import EpisodeRow
from sparring.orchestrator.results.salvage import _layouts, salvage
from sparring.orchestrator.run.listeners import Listeners
from sparring.orchestrator.run.make_plan import make_plan
from sparring.orchestrator.settings import read_settings
from sparring.policy_server.client import Description
from sparring.protos.action_list import pack
from sparring.protos.errors import UsageError
from sparring.protos.spec import PolicySpec

OLD = ROOT / "tests" / "fixtures" / "release-0.1.0"
EPISODES = 300
POLICY = Description("zero", {}, "", "1", PolicySpec({}, action_dim=1))
SETTINGS = read_settings({"benchmark": "toy", "task": "short", "policy": "zero", "episodes": EPISODES, "seed": 5})
PLAN = make_plan(SETTINGS)
PAGE = 4096


def rows() -> list[EpisodeRow]:
    made = []
    for index in range(EPISODES):
        error = "it raised " * (700 if index == 50 else 2)  # one that does not fit on a page
        outcome = "error" if index % 50 == 0 else "failure" if index % 3 else "success"
        made.append(
            replace(
                ROW,
                task="short",
                index=index,
                seed=5 + index,
                outcome=outcome,
                error=error if outcome == "error" else "",
                reward_sum=index / 7,
                reward_max=float(index),
                metrics={"distance": -index / 3},
                worker="toy-0",
                host="here",
                maker=1,
            )
        )
    return made


ROWS = rows()


def actions_of(row: EpisodeRow) -> bytes:
    """What was executed; of every tenth, more than fits on a page."""
    width = 300 if row.index % 10 == 0 else 4
    return pack(np.random.default_rng(row.index).normal(size=(row.steps, width)))


def go(folder: Path, some: list[EpisodeRow]) -> list[EpisodeRow]:
    """A run that has these rows to record, and is interrupted then; returns what there was before."""
    with output_folder(folder) as journal:
        journal._connection.execute("PRAGMA synchronous=OFF")  # no power is cut here, and hundreds of rows are written
        files = RunFiles(SETTINGS, PLAN, folder, journal, Listeners())
        before = journal.rows()
        with suppress(KeyboardInterrupt), files.saved():
            files.claim(POLICY)
            journal.maker(Maker(worker="toy-0", host="here", versions={}))
            for row in some:
                if row.outcome == "error":
                    journal.note("error", row.error, episode=row.id, worker="toy-0")
                journal.record(row, b"" if row.outcome == "error" else actions_of(row))
            raise KeyboardInterrupt
    return before


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run, with a row for every episode."""
    folder = tmp_path_factory.mktemp("recorded") / "out"
    go(folder, ROWS)
    return folder


@pytest.fixture
def folder(recorded: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(recorded, tmp_path / "out"))


@pytest.mark.parametrize(
    ("content", "told"), [(None, "journal.sqlite is not there"), (b"", r"journal.sqlite is empty \(0 bytes\)")]
)
def test_a_journal_that_is_gone_or_empty_is_told_and_none_is_made(
    folder: Path, content: bytes | None, told: str
) -> None:
    if content is None:
        (folder / "journal.sqlite").unlink()
    else:
        (folder / "journal.sqlite").write_bytes(content)
    before = {path: path.read_bytes() for path in folder.iterdir()}
    for _ in range(2):  # and not only the first time
        with pytest.raises(UsageError, match=f"{told}.* of which 300 episodes were recorded.*remove run.json"):
            go(folder, [])
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    (folder / "run.json").unlink()  # as it says
    assert go(folder, ROWS[:1]) == []


def test_a_database_without_anything_in_it_is_told(folder: Path) -> None:
    (folder / "journal.sqlite").unlink()
    with closing(sqlite3.connect(folder / "journal.sqlite")) as connection:
        connection.execute("CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)")
    with pytest.raises(UsageError, match=r"journal\.sqlite is empty, but run.json tells of a run"):
        go(folder, [])


def test_the_journal_of_another_run_is_told_though_its_plan_is_the_same(folder: Path, tmp_path: Path) -> None:
    go(tmp_path / "other", ROWS[:3])
    shutil.copy(tmp_path / "other" / "journal.sqlite", folder / "journal.sqlite")
    with pytest.raises(UsageError, match=r"is the journal of another run than run\.json beside it\. Put back"):
        go(folder, [])


def test_an_older_copy_of_the_journal_goes_on_and_says_what_is_played_again(
    recorded: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    go(tmp_path / "out", ROWS[:5])
    shutil.copy(tmp_path / "out" / "journal.sqlite", tmp_path / "copy")
    go(tmp_path / "out", ROWS[5:10])
    shutil.copy(tmp_path / "copy", tmp_path / "out" / "journal.sqlite")
    caplog.clear()
    assert go(tmp_path / "out", []) == ROWS[:5]
    assert "has 5 episodes, run.json tells of 10: what is missing is played again" in caplog.text


def test_a_log_without_its_journal_is_not_thrown_away(folder: Path) -> None:
    (folder / "journal.sqlite").write_bytes(b"")
    (folder / "journal.sqlite-wal").write_bytes(b"something")
    with pytest.raises(DamagedJournal, match=r"it is empty, and journal.sqlite-wal is not"):
        go(folder, [])
    assert (folder / "journal.sqlite-wal").read_bytes() == b"something"


Harm = Callable[[Path], None]


def zeroed(page: int) -> Harm:
    def harm(path: Path) -> None:
        with path.open("r+b") as file:
            file.seek(page * PAGE)
            file.write(bytes(PAGE))

    return harm


def truncated(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) * 2 // 3])


def another_outcome(path: Path) -> None:
    content = path.read_bytes()
    assert content.count(b"failure") > 10
    path.write_bytes(content.replace(b"failure", b"success", 1))  # SQLite has no quarrel with this


def not_text(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"failure", b"fail\xff\xfee", 1))


def random_bytes(path: Path) -> None:
    path.write_bytes(random.Random(1).randbytes(path.stat().st_size))


HARMS: dict[str, Harm] = {
    "the first page is zeroed": zeroed(0),
    "a page in the middle is zeroed": zeroed(9),
    "the root of the episodes is zeroed": zeroed(3),
    "the end is cut off": truncated,
    "an outcome is another": another_outcome,
    "a text is none": not_text,
}


@pytest.mark.parametrize("name", HARMS)
def test_a_damaged_journal_is_told_in_a_sentence_and_what_can_be_read_is_saved(folder: Path, name: str) -> None:
    journal = folder / "journal.sqlite"
    HARMS[name](journal)
    damaged = journal.read_bytes()
    for use in (lambda: go(folder, []), lambda: Results.load(folder), lambda: Journal(folder)):
        with pytest.raises(DamagedJournal, match=f"it is damaged.*sparring salvage {re.escape(str(folder))}"):
            use()
    assert journal.read_bytes() == damaged, "whoever only looks changes nothing"

    done = salvage(folder)
    assert done.kept == folder / "journal-damaged.sqlite"
    assert done.kept.read_bytes() == damaged
    assert done.planned == EPISODES
    saved = go(folder, [])
    assert done.saved == len(saved)
    assert all(row == ROWS[row.index] for row in saved), "a row is not what was recorded"
    judged = [row for row in saved if row.outcome != "error"]
    with closing(Journal(folder)) as whole:
        kept = {row.id: whole.actions(row.id) for row in judged}
    assert all(kept[row.id] in (b"", actions_of(row)) for row in judged), "actions are not those that were recorded"
    assert sum(map(bool, kept.values())) >= 0.5 * len(judged)
    least = {"the end is cut off": 0.3, "a page in the middle is zeroed": 0.9, "the first page is zeroed": 1}
    assert len(saved) >= least.get(name, 0.9) * EPISODES - 1
    assert done.again == EPISODES - sum(row.outcome != "error" for row in saved)
    go(folder, [row for row in ROWS if row not in saved])
    assert list(Results.load(folder).rows) == ROWS


def test_a_journal_that_is_damaged_while_it_is_written_is_told_and_kept(tmp_path: Path) -> None:
    folder = tmp_path / "out"

    def run() -> None:
        with output_folder(folder) as journal:
            files = RunFiles(SETTINGS, PLAN, folder, journal, Listeners())
            with files.saved():
                files.claim(POLICY)
                journal._connection.execute("PRAGMA synchronous=OFF")
                for row in ROWS:
                    journal.record(row)
                journal._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                truncated(journal.path)
                journal._connection.execute("PRAGMA shrink_memory")  # nothing is known by heart any more
                journal.rows()

    with pytest.raises(DamagedJournal):
        run()
    assert salvage(folder).saved > 50


def test_nothing_is_made_of_a_file_of_random_bytes(folder: Path) -> None:
    random_bytes(folder / "journal.sqlite")
    done = salvage(folder)
    assert (done.saved, done.again) == (0, EPISODES)
    assert go(folder, ROWS[:2]) == [], "but the run can be resumed"


def test_whatever_bytes_are_flipped_no_row_is_saved_that_was_not_recorded(recorded: Path, tmp_path: Path) -> None:
    content = (recorded / "journal.sqlite").read_bytes()
    told = 0
    for seed in range(15):
        rng = random.Random(seed)
        out = Path(shutil.copytree(recorded, tmp_path / str(seed)))
        flipped = bytearray(content)
        for _ in range(rng.choice([1, 5, 200])):
            flipped[rng.randrange(len(flipped))] ^= 1 << rng.randrange(8)
        (out / "journal.sqlite").write_bytes(flipped)
        try:
            found = Results.load(out).rows
            assert salvage(out).kept is None
        except DamagedJournal:
            told += 1
            salvage(out)
            found = Results.load(out).rows
        assert all(row == ROWS[row.index] for row in found), f"seed {seed}"
    assert told >= 6, "what is flipped in unused bytes is no damage, but not every time"


def test_what_is_only_in_the_log_is_saved(folder: Path, tmp_path: Path) -> None:
    """As after a power cut with a broken disk: the run was killed, and what it wrote last is not in the file yet."""
    (tmp_path / "killed").mkdir()
    shutil.copy(folder / "run.json", tmp_path / "killed")
    running = Journal(tmp_path / "running")
    running._connection.execute("PRAGMA synchronous=OFF")
    for row in ROWS:
        running.record(row)
    for suffix in ("", "-wal"):
        shutil.copy(tmp_path / "running" / f"journal.sqlite{suffix}", tmp_path / "killed")
    running.close()
    log = (tmp_path / "killed" / "journal.sqlite-wal").stat().st_size
    assert log > EPISODES * 100
    (tmp_path / "killed" / "journal.sqlite").write_bytes(b"")
    done = salvage(tmp_path / "killed")
    assert done.saved == EPISODES
    assert done.kept is not None
    assert done.kept.with_name("journal-damaged.sqlite-wal").stat().st_size == log
    assert list(Results.load(tmp_path / "killed").rows) == ROWS


def test_a_row_that_is_said_to_be_longer_than_any_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE t (content BLOB)")
        database.executemany("INSERT INTO t VALUES (?)", [(bytes(9000),), (bytes(9001),)])
        database.commit()
    header = 4  # bytes of a row that say what is in it
    for most, read in ((9001 + header, [9000, 9001]), (9000 + header, [9000])):
        monkeypatch.setattr(pages, "_LONGEST_ROW", most)
        rows = [row.values[0] for row in pages.stored_rows(path)]
        assert [len(found) for found in rows if isinstance(found, bytes)] == read


def test_a_journal_of_the_first_release_is_saved_from_too(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(OLD / "unfinished", tmp_path / "out"))
    before = Results.load(folder).rows
    with (folder / "journal.sqlite").open("r+b") as file:
        file.write(bytes(16))  # it does not begin as a database any more
    assert salvage(folder).saved == len(before) == 17
    assert Results.load(folder).rows == before


def test_events_notes_and_makers_are_saved_too(folder: Path) -> None:
    zeroed(9)(folder / "journal.sqlite")
    salvage(folder)
    with closing(Journal(folder)) as journal:
        assert journal.makers() == {1: Maker(worker="toy-0", host="here", versions={})}
        assert journal.meta("identity")["seed"] == 5
        assert journal.meta("run") == json.loads((folder / "run.json").read_text())["id"]
        assert journal.failed_attempts()


def test_a_whole_journal_is_left_alone(folder: Path) -> None:
    before = {path: path.read_bytes() for path in folder.iterdir()}
    done = salvage(folder)
    assert (done.saved, done.kept) == (EPISODES, None)
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_what_is_being_written_is_not_salvaged(folder: Path) -> None:
    with closing(Journal(folder)), pytest.raises(UsageError, match="another run is writing"):
        salvage(folder)


@pytest.mark.parametrize(("content", "told"), [(None, "is not there"), (b"", "is empty")])
def test_of_nothing_there_is_nothing_to_save(folder: Path, content: bytes | None, told: str) -> None:
    (folder / "journal.sqlite").unlink()
    if content is not None:
        (folder / "journal.sqlite").write_bytes(content)
    with pytest.raises(UsageError, match=f"nothing to save: .* {told}"):
        salvage(folder)


def test_a_second_time_the_first_damaged_journal_is_kept_as_well(folder: Path) -> None:
    for name in ("journal-damaged.sqlite", "journal-damaged-2.sqlite"):
        zeroed(9)(folder / "journal.sqlite")
        assert salvage(folder).kept == folder / name
    assert (folder / "journal-damaged.sqlite").exists()


def test_a_link_in_the_place_of_the_copy_is_not_written_through(folder: Path, tmp_path: Path) -> None:
    """One that leads nowhere looks like a free name, and a file of yours would be made with what a stranger wrote."""
    for name in ("journal-damaged.sqlite", "journal-damaged-2.sqlite-wal"):
        (folder / name).symlink_to(tmp_path / "mine")
    zeroed(9)(folder / "journal.sqlite")
    assert salvage(folder).kept == folder / "journal-damaged-3.sqlite"
    assert not (tmp_path / "mine").exists()


def test_what_a_damaged_journal_says_of_its_columns_is_not_computed(folder: Path) -> None:
    """It is asked of SQLite, which would do whatever stands there: this has no end."""
    endless = "CREATE TABLE episodes AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n"
    strange = StoredRow(1, ("table", "episodes", "episodes", 2, endless))
    plain = StoredRow(1, ("table", "episodes", "episodes", 2, "CREATE TABLE episodes (benchmark TEXT, task TEXT)"))
    assert list(_layouts([strange, plain])) == [("benchmark", "task")]


def test_the_commands_say_it_and_what_to_do(usage: Sparring, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(OLD / "unfinished", tmp_path / "out"))
    whole = (folder / "journal.sqlite").read_bytes()
    (folder / "journal.sqlite").unlink()
    gone = usage("resume", "out", "--in-process")
    assert gone.returncode == 2
    assert "the journal of the run in 'out' is gone: journal.sqlite is not there" in gone.stderr
    assert not (folder / "journal.sqlite").exists()

    (folder / "journal.sqlite").write_bytes(b"no database" + whole[11:])
    damaged = usage("resume", "out", "--in-process")
    assert damaged.returncode == 2
    assert "it is damaged (file is not a database). Save what can be read of it with: sparring salvage out" in (
        damaged.stderr
    )
    saved = usage("salvage", "out")
    assert saved.returncode == 0
    assert saved.stdout.splitlines() == [
        "Saved: 17 of the plan's 24 episodes.",
        "The damaged journal is kept: out/journal-damaged.sqlite",
        "sparring resume out plays 7 episodes again.",
    ]
    assert usage("salvage", "out").stdout == "The journal is whole: it has 17 episodes, and nothing was changed.\n"
    assert usage("salvage", "none").returncode == 2

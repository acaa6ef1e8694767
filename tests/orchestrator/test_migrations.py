"""Journals of earlier releases, and of later ones."""

from __future__ import annotations

import csv
import shutil
import sqlite3
from contextlib import closing
from dataclasses import MISSING, fields, replace
from pathlib import Path

import pytest
from rows import ROW
from support import ROOT

from sparring.orchestrator.plan import Plan
from sparring.orchestrator.results import migrations, row
from sparring.orchestrator.results.journal import Journal
from sparring.orchestrator.results.makers import Maker
from sparring.orchestrator.results.reading import KeptEpisode, read_journal, read_kept
from sparring.orchestrator.results.results import Results, write_results
from sparring.orchestrator.results.row import CHECKSUM, COLUMNS, EpisodeRow
from sparring.protos.errors import UsageError
from sparring.protos.record import EpisodeRecord

OLD = ROOT / "tests" / "fixtures" / "release-0.1.0"
VERSION_2 = (OLD / "finished" / "episodes.csv").read_text().splitlines()[0].split(",")


@pytest.fixture(params=["finished", "unfinished"])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder that release 0.1.0 wrote."""
    return Path(shutil.copytree(OLD / request.param, tmp_path / "out"))


def listed(folder: Path) -> list[dict[str, str]]:
    with (folder / "episodes.csv").open() as file:
        return list(csv.DictReader(file))


def shown(rows: list[EpisodeRow]) -> list[dict[str, str]]:
    return [{name: str(value) for name, value in zip(COLUMNS, row.csv(), strict=True)} for row in rows]


def schema_of(folder: Path) -> str:
    with sqlite3.connect(folder / "journal.sqlite") as connection:
        return str(connection.execute("SELECT value FROM meta WHERE key = 'schema'").fetchone()[0])


def test_a_journal_of_the_first_release_opens_with_all_that_is_in_it(old: Path) -> None:
    blank = EpisodeRow(benchmark="", task="", index=0, seed=0, attempts=0, video="", outcome="error")
    unknown = {name: value for name, value in shown([blank])[0].items() if name not in VERSION_2}
    assert unknown.items() >= {"error_kind": "", "metrics": "", "worker": "", "maker": "0", "renderer": ""}.items()
    expected = [{**line, **unknown} for line in listed(old)]
    journal = Journal(old)
    assert shown(journal.rows()) == expected
    assert journal.meta("identity")["seed"] == 7
    journal.close()
    assert schema_of(old) == str(migrations.SCHEMA_VERSION)
    assert shown(Journal(old).rows()) == expected, "what was brought up to date does not open again"


def test_it_can_be_read_without_being_touched(old: Path) -> None:
    before = {path.name: path.read_bytes() for path in old.iterdir() if path.is_file()}
    assert len(read_journal(old).rows) == len(listed(old))
    assert {path.name: path.read_bytes() for path in old.iterdir() if path.is_file()} == before


def test_a_journal_can_be_read_while_a_run_writes_to_it(tmp_path: Path) -> None:
    writer = Journal(tmp_path)
    written = EpisodeRow(
        benchmark="toy", task="x", index=0, seed=5, outcome="success", attempts=1, video="", metrics={"a": 0.5}
    )
    writer.record(written)
    assert read_journal(tmp_path).rows == [written]


def test_a_journal_of_a_newer_release_is_refused_and_left_alone(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.set_meta("schema", migrations.SCHEMA_VERSION + 1)
    journal.close()
    with pytest.raises(UsageError, match="newer release"):
        Journal(tmp_path)
    with pytest.raises(UsageError, match="newer release"):
        read_journal(tmp_path)
    assert schema_of(tmp_path) == str(migrations.SCHEMA_VERSION + 1)


def test_version_3_has_kinds_of_errors_and_metrics(tmp_path: Path) -> None:
    shutil.copy(OLD / "finished" / "journal.sqlite", tmp_path)
    connection = sqlite3.connect(tmp_path / "journal.sqlite", isolation_level=None)
    assert migrations.columns_of(connection) == set(VERSION_2)
    migrations.MIGRATIONS[0](connection)
    assert migrations.columns_of(connection) == {*VERSION_2, "error_kind", "metrics"}
    assert set(connection.execute("SELECT error_kind, metrics FROM episodes")) == {("", "{}")}


def test_version_4_says_who_has_made_a_row_and_whether_it_is_still_what_was_recorded(tmp_path: Path) -> None:
    shutil.copy(OLD / "finished" / "journal.sqlite", tmp_path)
    connection = sqlite3.connect(tmp_path / "journal.sqlite", isolation_level=None)
    for migrate in migrations.MIGRATIONS[:2]:
        migrate(connection)
    new = {"error_kind", "metrics", "worker", "host", "maker", "checksum"}
    assert migrations.columns_of(connection) == {*VERSION_2, *new}
    assert set(connection.execute("SELECT worker, host, maker, checksum FROM episodes")) == {("", "", 0, 0)}
    connection.close()


def test_a_journal_of_the_first_release_that_is_brought_up_to_date_has_makers(old: Path) -> None:
    assert read_journal(old).makers == {}
    journal = Journal(old)
    maker = Maker(worker="toy-0", host="here", versions={"worker": {"numpy": "2"}})
    other = Maker(worker="toy-1", host="here", versions={})
    assert journal.maker(maker) == journal.maker(maker) == 1
    assert journal.makers() == {}, "a maker is written with a row"
    assert journal.maker(other) == 2
    assert journal.record(replace(ROW, task="not there yet", maker=2))
    assert journal.makers() == {1: maker, 2: other}
    assert (journal.maker(maker), journal.maker(other.model_copy(update={"worker": "toy-2"}))) == (1, 3)
    journal.close()
    assert read_journal(old).makers == {1: maker, 2: other}


def test_a_migration_that_fails_changes_nothing(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(connection: sqlite3.Connection) -> None:
        raise RuntimeError("half way")

    # A migration that fails, which none of ours does; that is why one is put there.
    monkeypatch.setattr(migrations, "MIGRATIONS", (*migrations.MIGRATIONS, broken))
    monkeypatch.setattr(migrations, "SCHEMA_VERSION", migrations.SCHEMA_VERSION + 1)
    with pytest.raises(RuntimeError):
        Journal(old)
    assert schema_of(old) == "2"
    with sqlite3.connect(old / "journal.sqlite") as connection:
        assert migrations.columns_of(connection) == set(VERSION_2)


def test_a_journal_that_was_never_quite_made_is_made(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "journal.sqlite") as connection:  # release 0.1.0, killed in its first millisecond
        connection.execute("CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)")
        columns = ", ".join(f'"{name}" TEXT NOT NULL' for name in VERSION_2)
        connection.execute(f'CREATE TABLE episodes ({columns}, PRIMARY KEY (benchmark, task, "index"))')
    assert Journal(tmp_path).rows() == []


def test_a_field_of_the_record_is_a_column_everywhere(tmp_path: Path) -> None:
    names = {f.name for f in fields(EpisodeRecord)}
    assert names < set(COLUMNS)
    Journal(tmp_path).close()
    with sqlite3.connect(tmp_path / "journal.sqlite") as connection:
        assert migrations.columns_of(connection) == {*COLUMNS, CHECKSUM}
    write_results(Results(Plan({}, 1, 0), [], 0.0, tmp_path))
    assert (tmp_path / "episodes.csv").read_text() == ",".join(COLUMNS) + "\n"


def test_a_new_field_of_the_record_needs_no_migration(old: Path) -> None:
    # As if the last two fields were new: a journal that has gone through all migrations, but has not these columns.
    journal = Journal(old)
    journal._connection.execute('ALTER TABLE episodes DROP COLUMN "metrics"')
    journal._connection.execute('ALTER TABLE episodes DROP COLUMN "out_of_range"')
    journal.close()
    before = read_journal(old).rows
    assert {(r.out_of_range, tuple(r.metrics)) for r in before} == {(0, ())}
    reopened = Journal(old)
    assert reopened.rows() == before
    assert {row.column_definition(name) for name in ("metrics", "out_of_range")} == {
        """"metrics" TEXT NOT NULL DEFAULT '{}'""",
        '"out_of_range" INTEGER NOT NULL DEFAULT 0',
    }


def test_a_new_field_has_a_default_for_the_rows_that_are_there() -> None:
    for f in fields(EpisodeRecord):
        assert f.default is not MISSING or f.default_factory is not MISSING or f.name in VERSION_2


def test_actions_of_a_journal_that_kept_no_traces_are_there_and_their_traces_are_empty(tmp_path: Path) -> None:
    episode = EpisodeRow(benchmark="toy", task="x", index=0, seed=5, outcome="success", attempts=1, video="", steps=1)
    journal = Journal(tmp_path)
    journal.record(episode, b"actions", b"trace")
    assert (journal.actions(episode.id), journal.trace(episode.id)) == (b"actions", b"trace")
    journal.close()
    with closing(sqlite3.connect(tmp_path / "journal.sqlite")) as connection:  # as version 7 had it
        connection.execute("ALTER TABLE actions DROP COLUMN trace")
        connection.execute("UPDATE meta SET value = '7' WHERE key = 'schema'")
        connection.commit()
    assert read_kept(tmp_path, [episode.id]) == {episode.id: KeptEpisode(b"actions", b"")}
    journal = Journal(tmp_path)
    assert (journal.actions(episode.id), journal.trace(episode.id)) == (b"actions", b"")
    journal.close()
    assert schema_of(tmp_path) == str(migrations.SCHEMA_VERSION)

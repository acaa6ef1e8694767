"""The journal: recorded once, whole after anything."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from rows import ROW
from support import ROOT

from sparring.orchestrator.results.journal import Journal, JournalError
from sparring.orchestrator.results.row import COLUMNS
from sparring.protos.advice import FLAGS
from sparring.protos.errors import UsageError


def test_columns_are_the_contract() -> None:
    assert ",".join(COLUMNS).startswith(
        "benchmark,task,index,seed,outcome,reward_sum,reward_max,steps,seconds,physics_s,render_s,policy_s,"
        "transport_s,renders,round_trips,attempts,video,error,out_of_range,error_kind,metrics,worker,host,maker"
    )


def test_an_episode_is_recorded_once(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    assert journal.record(ROW)
    assert not journal.record(replace(ROW, outcome="failure", reward_sum=9.0)), "a late duplicate changed the row"
    assert journal.rows() == [ROW]


def test_an_error_may_be_replaced_by_an_outcome_but_not_the_other_way_round(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    assert journal.record(replace(ROW, outcome="error", error="boom"))
    assert journal.record(ROW)
    assert not journal.record(replace(ROW, outcome="error", error="boom"))
    assert journal.rows() == [ROW]


def test_actions_are_those_of_the_attempt_that_counts(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    assert journal.actions(ROW.id) == b""
    journal.record(replace(ROW, outcome="error", error="boom"))
    journal.record(ROW, b"counts")
    journal.record(replace(ROW, reward_sum=9.0), b"a late duplicate")
    journal.record(replace(ROW, index=1))
    journal.close()
    again = Journal(tmp_path)
    assert again.actions(ROW.id) == b"counts"
    assert again.actions(replace(ROW, index=1).id) == b""


def test_a_row_whose_actions_cannot_be_written_is_not_written_either(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal._connection.execute("DROP TABLE actions")
    with pytest.raises(JournalError):
        journal.record(ROW, b"some")
    assert journal.rows() == []


def test_rows_are_sorted_and_survive_reopening(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    for task, index in (("y", 10), ("x", 1), ("y", 9), ("x", 0)):
        journal.record(replace(ROW, task=task, index=index))
    journal.close()
    assert [(r.task, r.index) for r in Journal(tmp_path).rows()] == [("x", 0), ("x", 1), ("y", 9), ("y", 10)]


def test_another_plan_is_refused_with_the_difference(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.claim({"seed": 1, "tasks": ["x"]})
    journal.claim({"seed": 1, "tasks": ["x"]})
    with pytest.raises(UsageError, match=r"seed: 1 there, 2 now"):
        journal.claim({"seed": 2, "tasks": ["x"]})


def test_another_plan_is_told_by_what_differs_not_by_all_there_is(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    many = [f"task-{n}" for n in range(50)]
    journal.claim({"tasks": {"a": many, "b": ["y"]}, "policy": {"name": "p", "arguments": {}}})
    with pytest.raises(UsageError) as told:
        journal.claim(
            {"tasks": {"a": [*many[:40], "z"], "b": ["y"]}, "policy": {"name": "p", "arguments": {"gain": 2}}}
        )
    assert told.value.told(FLAGS).splitlines()[1:] == [
        "  tasks a: task-40, task-41, task-42, task-43 and 6 more only there, z only now",
        "  policy arguments gain: not given there, 2 now",
        "Give another --output.",
    ]
    with pytest.raises(UsageError, match="tasks a: in another order"):
        journal.claim({"tasks": {"a": many[::-1], "b": ["y"]}})


def test_one_writer(tmp_path: Path) -> None:
    first = Journal(tmp_path)
    with pytest.raises(UsageError, match="another run is writing"):
        Journal(tmp_path)
    first.close()
    Journal(tmp_path).close()


def test_a_full_disk_is_told_and_loses_nothing(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.record(ROW)
    pages = journal._connection.execute("PRAGMA page_count").fetchone()[0]
    journal._connection.execute(f"PRAGMA max_page_count = {pages + 1}")  # SQLite's own disk-full, without filling one

    def fill() -> None:
        for index in range(1, 10_000):
            journal.record(replace(ROW, index=index))

    with pytest.raises(JournalError, match="Is the disk full"):
        fill()
    recorded = len(journal.rows())
    assert recorded >= 1
    journal.close()
    reopened = Journal(tmp_path)
    assert len(reopened.rows()) == recorded
    assert reopened.record(replace(ROW, index=99_999))


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError, match="cannot be written"):
        Journal(tmp_path / "file" / "folder")


def test_a_file_that_is_no_journal_is_told(tmp_path: Path) -> None:
    (tmp_path / "journal.sqlite").write_text("not a database, not at all, " * 100)
    with pytest.raises(UsageError, match="is not a journal"):
        Journal(tmp_path)


@pytest.mark.processes
def test_it_is_whole_after_a_kill(tmp_path: Path) -> None:
    writer = f"""
import sys; sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / "tests" / "orchestrator")!r}, {str(ROOT / "tests")!r}]
from dataclasses import replace
from pathlib import Path
from test_journal import ROW
from sparring.orchestrator.results.journal import Journal
journal = Journal(Path({str(tmp_path)!r}))
for index in range(100_000):
    journal.record(replace(ROW, index=index))
    sys.stdout.write(f"{{index}}\\n"); sys.stdout.flush()
"""
    with subprocess.Popen([sys.executable, "-c", writer], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(50):
            last = int(process.stdout.readline())
        os.kill(process.pid, signal.SIGKILL)
        last = max([last, *(int(line) for line in process.stdout if line.endswith("\n"))])
    rows = Journal(tmp_path).rows()
    assert [r.index for r in rows] == list(range(len(rows)))
    assert len(rows) >= last + 1, "a row that was reported is missing"
    with sqlite3.connect(tmp_path / "journal.sqlite") as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.mark.parametrize("phase", ["recording", "closing"])
@pytest.mark.processes
def test_killed_at_every_write_it_has_lost_nothing_that_was_acknowledged(phase: str) -> None:
    program = ROOT / "tests" / "orchestrator" / "killed_writer.py"
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # a kill is no power cut: a disk adds only time
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        done = subprocess.run(
            [sys.executable, str(program), folder, phase], capture_output=True, text=True, timeout=300, check=False
        )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for killed in found:
        expected = [[index, 500 * index, index / 7] for index in range(len(killed["rows"]))]
        assert killed["rows"] == expected, killed["limit"]
        # One more may be written whose writer was killed before it could say so.
        assert killed["acknowledged"] <= len(killed["rows"]) <= killed["acknowledged"] + 1, killed["limit"]
        assert killed["goes on"], killed["limit"]
    kills = sum(killed["killed"] for killed in found)
    assert kills > (100 if phase == "recording" else 10)
    assert len({killed["acknowledged"] for killed in found}) > (5 if phase == "recording" else 0)

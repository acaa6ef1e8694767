"""Results can be opened again: finished, unfinished, or while a run writes them, and without leaving a trace."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support import ROOT, read_csv
from toy_policies import Forward, Wanderer

from sparring import Evaluator, Results, RunListener
from sparring.orchestrator.results.document import read_document, write_document
from sparring.orchestrator.results.journal import Journal
from sparring.orchestrator.results.reading import LOCK_NAME, JournalContents, is_running, read_journal
from sparring.orchestrator.results.row import EpisodeRow
from sparring.protos.errors import UsageError

OLD = ROOT / "tests" / "fixtures" / "release-0.1.0"
TOY: dict[str, Any] = {"benchmark": "toy", "tasks": "good", "episodes": 3, "slots": 2}


@pytest.fixture(scope="module")
def evaluator() -> Iterator[Evaluator]:
    with Evaluator() as made:
        yield made


def state_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def row(index: int = 0, **values: Any) -> EpisodeRow:
    known = {"benchmark": "toy", "task": "short", "seed": 7, "outcome": "success", "attempts": 1, "video": ""}
    return EpisodeRow(index=index, **{**known, **values})


@pytest.mark.parametrize("name", ["finished", "unfinished"])
def test_a_folder_of_the_first_release_opens_and_is_not_touched(name: str) -> None:
    before = state_of(OLD / name)
    results = Results.load(OLD / name)
    assert results.status == name
    assert [(r.task, str(r.index), r.outcome, str(r.reward_sum)) for r in results.rows] == [
        (r["task"], r["index"], r["outcome"], r["reward_sum"]) for r in read_csv(OLD / name)
    ]
    document = json.loads((OLD / name / "run.json").read_text())
    assert results.seconds == document["seconds"]
    assert results.versions == document["versions"]
    assert results.policy is not None
    assert results.policy.name == "toy_policies:Wanderer"
    assert results.server_stats is not None
    assert results.warnings == []
    assert results.missing == {"finished": 0, "unfinished": 7}[name]
    assert state_of(OLD / name) == before


def test_what_is_loaded_is_what_was_returned(evaluator: Evaluator, tmp_path: Path) -> None:
    returned = evaluator.evaluate(Wanderer(), **TOY, output=tmp_path / "out")
    before = state_of(tmp_path / "out")
    loaded = Results.load(tmp_path / "out")
    assert loaded == returned
    assert loaded.to_json() == returned.to_json()
    assert loaded.eval_info() == returned.eval_info()
    assert Results.load(str(tmp_path / "out")) == returned
    assert state_of(tmp_path / "out") == before


def test_the_benchmark_need_not_be_there(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(OLD / "finished", tmp_path / "out"))
    content = (folder / "run.json").read_text().replace('"toy"', '"nowhere"')
    (folder / "run.json").write_text(content)
    with sqlite3.connect(folder / "journal.sqlite") as journal:
        journal.execute("UPDATE episodes SET benchmark = 'nowhere'")
    assert Results.load(folder).overall.n == 8


class Peeks(RunListener):
    """Opens the folder of the run that it listens to, after every episode."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.seen: list[Results] = []
        self.recorded: list[EpisodeRow] = []

    def on_result(self, row: EpisodeRow) -> None:
        self.recorded.append(row)
        self.seen.append(Results.load(self._folder))


def test_a_running_run_can_be_opened_from_within_and_each_episode_is_there_when_it_is_told(
    evaluator: Evaluator, tmp_path: Path
) -> None:
    peeks = Peeks(tmp_path / "out")
    results = evaluator.evaluate(Forward(), **TOY, output=tmp_path / "out", watchers=[peeks])
    assert [len(seen.rows) for seen in peeks.seen] == [1, 2, 3, 4, 5, 6]
    assert {seen.status for seen in peeks.seen} == {"running"}
    assert all(seen.plan == results.plan for seen in peeks.seen)
    assert peeks.seen[0].rows == peeks.recorded[:1]
    assert peeks.seen[0].missing == 5
    assert Results.load(tmp_path / "out").status == "finished"


def test_another_process_reads_beside_the_run_and_neither_notices(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(OLD / "unfinished", tmp_path / "out"))
    journal = Journal(folder)
    journal.record(row(index=99))
    before = state_of(folder)
    code = f"from sparring import Results; r = Results.load({str(folder)!r}); print(r.status, len(r.rows))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60, cwd=tmp_path
    )
    assert done.stdout.split() == ["running", "18"]
    assert state_of(folder) == before, "a reader left something behind"
    journal.record(row(index=98))
    journal.close()
    assert len(Results.load(folder).rows) == 19


def killed_after_writing(folder: Path) -> None:
    """A writer that was killed leaves a log that no one has put in its place."""
    code = (
        "import os, signal, sys; from pathlib import Path\n"
        "from sparring.orchestrator.results.journal import Journal; from test_results import row\n"
        "journal = Journal(Path(sys.argv[1])); journal.record(row(index=77)); os.kill(os.getpid(), signal.SIGKILL)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(Path(__file__).parent)])}
    done = subprocess.run([sys.executable, "-c", code, str(folder)], check=False, env=environment, timeout=60)
    assert done.returncode == -signal.SIGKILL


def test_what_a_killed_run_recorded_last_is_read_without_a_trace(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(OLD / "unfinished", tmp_path / "out"))
    content = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**content, "status": "running"}))
    killed_after_writing(folder)
    assert (folder / "journal.sqlite-wal").stat().st_size > 0
    before = state_of(folder)
    results = Results.load(folder)
    assert results.status == "unfinished", "nobody is running it"
    assert 77 in {r.index for r in results.rows}
    assert state_of(folder) == before


def test_asking_whether_a_run_is_going_keeps_none_from_starting(tmp_path: Path) -> None:
    Journal(tmp_path).close()
    assert not is_running(tmp_path)
    with (tmp_path / LOCK_NAME).open() as asking:
        fcntl.flock(asking, fcntl.LOCK_SH)
        threading.Timer(0.1, lambda: fcntl.flock(asking, fcntl.LOCK_UN)).start()
        journal = Journal(tmp_path)  # waits that long
    assert is_running(tmp_path)
    journal.close()
    assert not is_running(tmp_path)


READ_AS_A_GUEST = """
import os, sys
from sparring import Results
if os.getuid() == 0:
    os.setuid(65534)
results = Results.load(sys.argv[1])
try:
    open(os.path.join(sys.argv[1], "new"), "w")
except OSError:
    print(results.status, len(results.rows))
"""


@pytest.mark.parametrize("status", ["running", "unfinished"])
def test_a_folder_that_may_not_be_written_to_can_be_read(status: str) -> None:
    with tempfile.TemporaryDirectory(prefix="sparring-test-") as base:  # pytest's own are closed to guests
        Path(base).chmod(0o755)
        folder = Path(shutil.copytree(OLD / "unfinished", Path(base) / "out"))
        journal = Journal(folder)
        journal.record(row(index=99))
        if status == "unfinished":
            journal.close()
        for path in (*folder.iterdir(), folder):
            path.chmod(0o555 if path.is_dir() else 0o444)
        done = subprocess.run(
            [sys.executable, "-c", READ_AS_A_GUEST, str(folder)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.stdout.split() == [status, "18"], done.stderr
        folder.chmod(0o755)
        journal.close()


def test_a_run_that_ends_while_it_is_read_is_not_called_unfinished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(shutil.copytree(OLD / "finished", tmp_path / "out"))
    finished = read_document(folder)
    write_document(folder, finished.model_copy(update={"status": "running"}))
    journal = Journal(folder)

    def ends_meanwhile(folder: Path) -> JournalContents:
        write_document(folder, finished)
        journal.close()
        return read_journal(folder)

    # In the place of the real one, because no test hits that moment otherwise.
    monkeypatch.setattr("sparring.orchestrator.results.results.read_journal", ends_meanwhile)
    assert Results.load(folder).status == "finished"


def test_some_tasks_can_be_selected() -> None:
    results = Results.load(OLD / "finished")
    assert list(results.select("short").tasks) == ["short"]
    assert list(results.select("raises, sho*").tasks) == ["short", "raises"], "in the plan's order"
    assert list(results.select("good").tasks) == ["short", "long"], "a group"
    assert results.select("raises").overall.errors == 4
    assert {event.episode.task for event in results.select("raises").events if event.episode} == {"raises"}
    assert results.select("short").events == []
    assert results.select("long").missing == 0
    with pytest.raises(UsageError, match=r"unknown task or group of this run: 'shart'\. Did you mean 'short'"):
        results.select("shart")
    with pytest.raises(UsageError, match="no task was named"):
        results.select(" , ")


def broken(folder: Path, file: str, content: bytes | None) -> None:
    if content is None:
        (folder / file).unlink()
    else:
        (folder / file).write_bytes(content)


@pytest.mark.parametrize(
    ("file", "content", "sentence"),
    [
        ("run.json", None, "is not the output folder of a run: it has no run.json"),
        ("run.json", b"{", "is damaged"),
        ("journal.sqlite", None, "cannot be read: No such file or directory"),
        ("journal.sqlite", b"not a database at all", r"is damaged \(file is not a database\)"),
        ("journal.sqlite", b"", "cannot be read: it is empty"),
    ],
)
def test_what_is_damaged_is_refused_with_a_sentence(
    tmp_path: Path, file: str, content: bytes | None, sentence: str
) -> None:
    folder = Path(shutil.copytree(OLD / "finished", tmp_path / "out"))
    broken(folder, file, content)
    with pytest.raises(UsageError, match=sentence):
        Results.load(folder)


def test_stats_that_mean_something_else_are_left_out(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(OLD / "finished", tmp_path / "out"))
    with closing(Journal(folder)) as journal:
        journal.set_meta("server_stats", {"seconds": "many", "of another": "release"})
    results = Results.load(folder)
    assert results.overall.n == 8
    assert results.server_stats == read_document(folder).server_stats, "those of run.json"


def test_half_a_journal_is_refused(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(OLD / "finished", tmp_path / "out"))
    whole = (folder / "journal.sqlite").read_bytes()
    (folder / "journal.sqlite").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UsageError, match=r"is damaged .* sparring salvage"):
        Results.load(folder)


def test_what_is_no_output_folder_is_refused_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    for name, sentence in {
        "nowhere": "there is no",
        "file": "is not a folder",
        "empty": "is not the output folder of a run: it is empty",
    }.items():
        with pytest.raises(UsageError, match=sentence):
            Results.load(tmp_path / name)
    journal = Journal(tmp_path / "starting")
    with pytest.raises(UsageError, match="is just starting"):
        Results.load(tmp_path / "starting")
    journal.close()


def test_a_newer_journal_is_refused(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(OLD / "finished", tmp_path / "out"))
    with sqlite3.connect(folder / "journal.sqlite") as journal:
        journal.execute("UPDATE meta SET value = '99' WHERE key = 'schema'")
    with pytest.raises(UsageError, match=r"newer release \(journal version 99"):
        Results.load(folder)


def test_events_are_what_happened_on_the_way(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.note("lost", "the worker was killed", episode=row().id, worker="w")
    journal.note("other", "something")
    events = journal.events()
    journal.close()
    assert read_journal(tmp_path).events == events
    assert [(e.kind, e.episode, e.worker, e.message) for e in events] == [
        ("lost", row().id, "w", "the worker was killed"),
        ("other", None, "", "something"),
    ]

"""`sparring verify` and `sparring bundle`: what was recorded is confirmed, what somebody has changed is found out."""

from __future__ import annotations

import json
import shutil
import sqlite3
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support import Sparring

from sparring.orchestrator.replay.recorded_run import RecordedRun
from sparring.orchestrator.results.damage import DamagedJournal
from sparring.orchestrator.results.journal import Journal
from sparring.orchestrator.results.results import Results, write_results
from sparring.orchestrator.results.row import COLUMNS, checksum
from sparring.protos.action_list import unpack
from sparring.protos.trace import Trace

HERE = "--in-process"
Edit = Callable[[sqlite3.Connection], None]


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run: two tasks, three episodes of each, successes and failures."""
    from toy_policies import Wanderer

    from sparring import Evaluator

    folder = tmp_path_factory.mktemp("pristine") / "run"
    with Evaluator() as evaluator:
        evaluator.evaluate(
            Wanderer(), benchmark="toy", tasks="short,long", episodes=3, in_process=True, output=folder, seed=7
        )
    return folder


@pytest.fixture
def recorded(pristine: Path, tmp_path: Path) -> Path:
    """A copy of it, to be changed."""
    shutil.copytree(pristine, tmp_path / "run")
    return tmp_path / "run"


def edit(folder: Path, change: Edit, *, carefully: bool = True) -> None:
    """Changes a journal, and with care also the checksums of rows and the files that are made of it."""
    with closing(sqlite3.connect(folder / "journal.sqlite", isolation_level=None)) as journal:
        change(journal)
        journal.row_factory = sqlite3.Row
        if not carefully:
            return
        for row in journal.execute("SELECT * FROM episodes").fetchall():
            found = checksum({name: row[name] for name in COLUMNS})
            key = (found, row["benchmark"], row["task"], row["index"])
            journal.execute('UPDATE episodes SET checksum = ? WHERE benchmark = ? AND task = ? AND "index" = ?', key)
    results = Results.load(folder)
    write_results(results)
    document = json.loads((folder / "run.json").read_text())
    document["recorded"] = len(results.rows)
    for name, summaries in (("task_rates", results.tasks), ("group_rates", results.groups)):
        document[name] = {label: summary.to_json() for label, summary in summaries.items()}
    document["makers"] = {str(number): maker.model_dump() for number, maker in results.makers.items()}
    document["overall"] = results.overall.to_json()
    (folder / "run.json").write_text(json.dumps(document))


def verified(usage: Sparring, place: Path, *more: str) -> tuple[int, dict[str, Any]]:
    done = usage("verify", str(place), HERE, "--json", *([] if "--sample" in more else ["--all"]), *more)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def different(found: dict[str, Any]) -> dict[str, str]:
    return {
        f"{each['task']}:{each['index']}": " ".join(each["problems"])
        for each in found["episodes"]
        if each["verdict"] == "different"
    }


def test_what_was_recorded_is_the_same_to_the_bit_and_nothing_is_changed(usage: Sparring, recorded: Path) -> None:
    before = {path: path.read_bytes() for path in recorded.rglob("*") if path.is_file()}
    code, found = verified(usage, recorded)
    assert (code, found["verified"], found["problems"]) == (0, True, [])
    assert [each["verdict"] for each in found["episodes"]] == ["same"] * 6
    assert [each["elsewhere"] for each in found["episodes"]] == [[]] * 6
    assert {path: path.read_bytes() for path in recorded.rglob("*") if path.is_file()} == before


def test_the_table_says_how_many_of_how_many(usage: Sparring, recorded: Path) -> None:
    done = usage("verify", str(recorded), HERE, "--sample", "2")
    assert done.returncode == 0
    assert "2 episodes of 6 that are recorded, 6 planned" in done.stdout
    assert usage("verify", str(recorded), "--sample", "2", "--all").returncode == 2


def flip_outcome(journal: sqlite3.Connection) -> None:
    journal.execute("UPDATE episodes SET outcome = 'success' WHERE task = 'short' AND outcome = 'failure'")


def raise_reward(journal: sqlite3.Connection) -> None:
    journal.execute("UPDATE episodes SET reward_sum = reward_sum + 1e-9 WHERE task = 'long' AND \"index\" = 1")


def raise_reward_and_trace(journal: sqlite3.Connection) -> None:
    """With a trace that says the same: only a replay can tell."""
    where = "WHERE task = 'long' AND \"index\" = 1"
    ((content,),) = journal.execute(f"SELECT trace FROM actions {where}")
    trace = Trace.unpack(content)
    trace.rewards[5] += 0.5
    total = 0.0
    for reward in trace.rewards:
        total += reward
    journal.execute(f"UPDATE actions SET trace = ? {where}", (trace.pack(),))
    journal.execute(f"UPDATE episodes SET reward_sum = ?, reward_max = ? {where}", (total, max(trace.rewards[1:])))


def others_actions(journal: sqlite3.Connection) -> None:
    take = "(SELECT content FROM actions WHERE task = 'long' AND \"index\" = 0)"
    journal.execute(f"UPDATE actions SET content = {take} WHERE task = 'long' AND \"index\" = 1")


def others_actions_and_trace(journal: sqlite3.Connection) -> None:
    others_actions(journal)
    take = "(SELECT trace FROM actions WHERE task = 'long' AND \"index\" = 0)"
    journal.execute(f"UPDATE actions SET trace = {take} WHERE task = 'long' AND \"index\" = 1")


def all_of_another(journal: sqlite3.Connection) -> None:
    """Row, actions and trace: everything but the seed."""
    others_actions_and_trace(journal)
    for column in ("outcome", "reward_sum", "reward_max", "steps", "metrics"):
        take = f"(SELECT {column} FROM episodes WHERE task = 'long' AND \"index\" = 0)"
        journal.execute(f"UPDATE episodes SET {column} = {take} WHERE task = 'long' AND \"index\" = 1")


def other_seed(journal: sqlite3.Connection) -> None:
    journal.execute("UPDATE episodes SET seed = 4711 WHERE task = 'long' AND \"index\" = 1")


def cut_actions(journal: sqlite3.Connection) -> None:
    journal.execute("UPDATE actions SET content = substr(content, 1, 60) WHERE task = 'long' AND \"index\" = 1")


def set_to(column: str, value: str) -> Edit:
    """Returns an edit of a column, to what SQL says."""
    where = "WHERE task = 'long' AND \"index\" = 1"
    return lambda journal: journal.execute(f'UPDATE episodes SET "{column}" = {value} {where}') and None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (flip_outcome, "outcome: success was recorded, and its actions come to failure"),
        (raise_reward, "reward_sum: .* was recorded, and its actions come to"),
        (raise_reward_and_trace, "step 5 is the first that is not the same to the bit: reward"),
        (others_actions, "step 1 is the first"),
        (others_actions_and_trace, "step 0 is the first"),
        (all_of_another, "step 0 is the first"),
        (other_seed, "its seed is 4711, and by the plan it is 8"),
        (cut_actions, "recorded actions cannot be read"),
        (set_to("steps", "steps - 1"), r"actions, and says that it had \d+ steps"),
        (set_to("reward_max", "reward_max + 1e-9"), "reward_max: .* was recorded, and its actions come to"),
        (set_to("metrics", "'{\"distance\": 0.5}'"), "metric distance: 0.5 was recorded, and its actions come to 0.0"),
        (set_to("metrics", "'{}'"), "metric distance: reported now only"),
    ],
)
def test_an_edited_folder_is_found_out_however_careful_the_editor(
    usage: Sparring, recorded: Path, change: Edit, said: str
) -> None:
    import re

    edit(recorded, change)
    code, found = verified(usage, recorded)
    assert code == 1
    assert found["problems"] == [], "the editor was not careful"
    problems = different(found)
    assert problems
    assert set(problems) <= {"short:0", "short:1", "short:2"} if change is flip_outcome else set(problems) == {"long:1"}
    for told in problems.values():
        assert re.search(said, told), told


@pytest.mark.parametrize("column", COLUMNS)
def test_every_column_has_part_in_the_checksum_of_its_row(recorded: Path, column: str) -> None:
    value = {"outcome": "'failure'", "metrics": "'{\"distance\": 0.5}'", "error_kind": "'policy'"}.get(column)
    text = column in ("benchmark", "task", "video", "worker", "host", "error", "renderer")
    edit(recorded, set_to(column, value or (f"\"{column}\" || 'x'" if text else f'"{column}" + 10')), carefully=False)
    with pytest.raises(DamagedJournal, match=r"the row of \S+ is not what was recorded"):
        RecordedRun.in_folder(recorded)


def test_a_row_that_was_changed_without_its_checksum_is_found_out(usage: Sparring, recorded: Path) -> None:
    edit(recorded, flip_outcome, carefully=False)
    done = usage("verify", str(recorded), HERE)
    assert done.returncode == 1
    assert "is not what was recorded" in done.stderr


def cut_off(content: bytes) -> bytes:
    return content[: len(content) * 2 // 3]


def zeroed(content: bytes) -> bytes:
    """With a page of zeros in the place of the root of the episodes."""
    return content[: 3 * 4096] + bytes(4096) + content[4 * 4096 :]


def no_database(content: bytes) -> bytes:
    return b"no database" + content[11:]


@pytest.mark.parametrize("harm", [cut_off, zeroed, no_database])
def test_a_damaged_journal_is_told_in_a_sentence_by_all_who_read_it(
    usage: Sparring, recorded: Path, harm: Callable[[bytes], bytes]
) -> None:
    path = recorded / "journal.sqlite"
    path.write_bytes(harm(path.read_bytes()))
    commands = {
        ("verify", "run", "--all", HERE): 1,  # it is what was asked for, and no wrong usage
        ("film", "run", "--episodes", "all", HERE): 2,
        ("export", "run", "out", "--format", "npz", HERE): 2,
        ("diff", "run", "run"): 2,
        ("bundle", "run"): 2,
    }
    for command, code in commands.items():
        done = usage(*command)
        assert (done.returncode, done.stdout) == (code, ""), command
        assert "damaged" in done.stderr, command
        assert "sparring salvage run" in done.stderr, command
        assert "Traceback" not in done.stderr, command
    assert sorted(path.name for path in recorded.parent.iterdir()) == ["run"], "something was left"


@pytest.mark.parametrize("name", ["episodes.csv", "eval_info.json", "run.json"])
def test_files_that_are_not_what_the_journal_says_are_found_out(usage: Sparring, recorded: Path, name: str) -> None:
    path = recorded / name
    if name == "run.json":
        document = json.loads(path.read_text())
        document["overall"]["success_rate"] = 1.0
        path.write_text(json.dumps(document))
    else:
        path.write_text(path.read_text().replace("failure", "success").replace("false", "true"))
    code, found = verified(usage, recorded, "--sample", "1")
    assert code == 1
    assert name in found["problems"][0]
    done = usage("bundle", str(recorded))
    assert (done.returncode, name in done.stderr) == (2, True)


def test_what_is_wrong_is_said_once_and_of_no_file_that_does_not_stay(usage: Sparring, recorded: Path) -> None:
    edit(recorded, cut_actions)
    _, found = verified(usage, recorded)
    (cut,) = (each for each in found["episodes"] if each["verdict"] == "different")
    assert cut["problems"] == ["recorded actions cannot be read: they are cut off, or something follows them."]
    done = usage("verify", str(recorded), HERE, "--all")
    assert (done.stdout + done.stderr).count("recorded actions cannot be read") == 1, done.stderr
    assert "trying again" not in done.stderr


def test_episodes_that_cannot_be_checked_are_no_success(usage: Sparring, recorded: Path) -> None:
    edit(recorded, lambda journal: journal.execute("DELETE FROM actions WHERE task = 'long'") and None)
    code, found = verified(usage, recorded)
    assert (code, found["verified"]) == (3, False)
    assert [each["verdict"] for each in found["episodes"]] == ["same"] * 3 + ["unchecked"] * 3


def test_a_failure_that_was_made_an_error_is_found_out_and_an_error_is_not_checked(
    usage: Sparring, recorded: Path
) -> None:
    def hide(journal: sqlite3.Connection) -> None:
        journal.execute("UPDATE episodes SET outcome = 'error', error = 'crashed' WHERE outcome = 'failure'")

    edit(recorded, hide)
    code, found = verified(usage, recorded)
    assert code == 1
    assert set(different(found).values()) == {"it is said to be an error, and has actions, which errors have not."}
    edit(recorded, lambda journal: journal.execute("DELETE FROM actions WHERE task = 'short'") and None)
    code, found = verified(usage, recorded)
    assert code == 3, "errors are nothing that was verified"
    assert not found["verified"]


def test_episodes_that_are_gone_are_told(usage: Sparring, recorded: Path) -> None:
    edit(recorded, lambda journal: journal.execute("DELETE FROM episodes WHERE outcome = 'failure'") and None)
    done = usage("verify", str(recorded), HERE, "--all")
    assert done.returncode == 3
    assert "of the plan have no row: what came of them is not known" in done.stdout


def another_version(journal: sqlite3.Connection) -> None:
    ((number, text),) = journal.execute("SELECT id, versions FROM makers").fetchall()
    versions = json.loads(text)
    versions["worker"]["psutil"] = "0.0.1"
    journal.execute("UPDATE makers SET versions = ? WHERE id = ?", (json.dumps(versions, sort_keys=True), number))


def test_with_other_versions_rewards_may_be_a_little_apart_and_both_versions_are_told(
    usage: Sparring, recorded: Path
) -> None:
    def change(journal: sqlite3.Connection) -> None:
        another_version(journal)
        ((content,),) = journal.execute("SELECT trace FROM actions WHERE task = 'long' AND \"index\" = 1")
        trace = Trace.unpack(content)
        trace.rewards[:] = [reward * (1 + 1e-9) for reward in trace.rewards]
        total = 0.0
        for reward in trace.rewards:
            total += reward
        where = "WHERE task = 'long' AND \"index\" = 1"
        journal.execute(f"UPDATE actions SET trace = ? {where}", (trace.pack(),))
        journal.execute(f"UPDATE episodes SET reward_sum = ?, reward_max = ? {where}", (total, max(trace.rewards[1:])))

    edit(recorded, change)
    code, found = verified(usage, recorded)
    assert code == 0
    assert [each["verdict"] for each in found["episodes"]] == ["same"] * 4 + ["close", "same"]
    (said,) = found["episodes"][0]["elsewhere"]
    assert said.startswith("psutil 0.0.1 then, ")
    assert verified(usage, recorded, "--tolerance", "1e-12")[0] == 1


@pytest.mark.parametrize("command", [("film", "--episodes", "long:1"), ("export", "out", "--format", "npz")])
def test_who_plays_again_with_another_version_is_told_both(
    usage: Sparring, recorded: Path, command: tuple[str, ...]
) -> None:
    edit(recorded, another_version)
    done = usage(command[0], str(recorded), *command[1:], HERE, *(["--observation", "*"] if "npz" in command else []))
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("psutil 0.0.1 then, ") == 1


def test_a_bundle_is_the_same_file_each_time_and_is_verified(usage: Sparring, recorded: Path, tmp_path: Path) -> None:
    for name in ("a.zip", "b.zip"):
        assert usage("bundle", str(recorded), "--output", name).returncode == 0
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()
    shutil.rmtree(recorded)
    code, found = verified(usage, tmp_path / "a.zip")
    assert (code, [each["verdict"] for each in found["episodes"]]) == (0, ["same"] * 6)


def test_a_folder_is_no_place_for_a_bundle_and_the_file_in_it_is_said(
    usage: Sparring, recorded: Path, tmp_path: Path
) -> None:
    (tmp_path / "there").mkdir()
    done = usage("bundle", str(recorded), "--output", "there")
    name = f"there/{recorded.name}.sparring.zip"
    assert (done.returncode, done.stderr) == (
        2,
        f"error: 'there' is a folder, and a bundle is a file: --output {name}\n",
    )
    assert usage("bundle", str(recorded), "--output", name).returncode == 0


def repacked(bundle: Path, change: Callable[[dict[str, bytes]], None], *, sums: bool) -> None:
    import hashlib

    with zipfile.ZipFile(bundle) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    if sums:
        del members["SHA256SUMS"]
        lines = [f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in members.items()]
        members["SHA256SUMS"] = "".join(lines).encode()
    with zipfile.ZipFile(bundle, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def cheat(members: dict[str, bytes]) -> None:
    members["episodes.json"] = members["episodes.json"].replace(b'"failure"', b'"success"')


def swap(members: dict[str, bytes]) -> None:
    members["actions/000001"] = members["actions/000002"]


@pytest.mark.parametrize(("change", "said"), [(cheat, "episodes.json"), (swap, "actions/000001")])
def test_an_edited_bundle_is_found_out(
    usage: Sparring, recorded: Path, tmp_path: Path, change: Callable[[dict[str, bytes]], None], said: str
) -> None:
    assert usage("bundle", str(recorded), "--output", "b.zip").returncode == 0
    repacked(tmp_path / "b.zip", change, sums=False)
    done = usage("verify", "b.zip", HERE, "--all")
    assert done.returncode == 1
    assert f"{said!r} of the bundle" in done.stderr
    assert "is not what was packed" in done.stderr
    repacked(tmp_path / "b.zip", lambda members: None, sums=True)
    code, found = verified(usage, tmp_path / "b.zip")
    assert code == 1
    assert different(found)


def test_a_hostile_archive_is_refused_and_nothing_is_unpacked(usage: Sparring, recorded: Path, tmp_path: Path) -> None:
    assert usage("bundle", str(recorded), "--output", "b.zip").returncode == 0

    def escape(members: dict[str, bytes]) -> None:
        members["../escaped"] = b"out"
        members["/tmp/escaped-by-sparring"] = b"out"

    repacked(tmp_path / "b.zip", escape, sums=False)
    code, found = verified(usage, tmp_path / "b.zip")
    assert code == 1
    assert "'../escaped'" in found["problems"][0]
    assert not (tmp_path.parent / "escaped").exists()
    assert not Path("/tmp/escaped-by-sparring").exists()

    def point_out(members: dict[str, bytes]) -> None:
        members["episodes.json"] = members["episodes.json"].replace(b"actions/000001", b"../../../etc/hostname")

    repacked(tmp_path / "b.zip", point_out, sums=True)
    done = usage("verify", "b.zip", HERE, "--all")
    assert (done.returncode, "etc/hostname" in done.stderr) == (1, True)

    with (
        zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("SHA256SUMS", "w", force_zip64=True) as member,
    ):
        for _ in range(300):
            member.write(bytes(1 << 20))
    done = usage("verify", "bomb.zip", HERE)
    assert (done.returncode, "has more than" in done.stderr) == (1, True)
    (tmp_path / "no.zip").write_bytes(b"no archive")
    for name in ("no.zip", "nothing-there"):
        assert usage("verify", name, HERE).returncode == 2


def test_a_run_that_is_still_going_is_checked_as_far_as_it_is_and_not_packed(usage: Sparring, recorded: Path) -> None:
    document = json.loads((recorded / "run.json").read_text())
    (recorded / "run.json").write_text(json.dumps({**document, "status": "running", "episodes": 5}))
    with closing(Journal(recorded)):  # as the run has it open
        code, found = verified(usage, recorded)
        assert (code, found["running"], len(found["episodes"])) == (0, True, 6)
        done = usage("bundle", str(recorded))
        assert (done.returncode, "is still going" in done.stderr) == (2, True)


def test_a_run_that_was_killed_is_checked_and_nobody_is_said_to_have_changed_it(
    usage: Sparring, recorded: Path
) -> None:
    """Its run.json is of its beginning, and the files of its end are not there."""
    document = json.loads((recorded / "run.json").read_text())
    began = {"status": "running", "recorded": 0, "makers": {}, "task_rates": {}, "group_rates": {}, "overall": None}
    (recorded / "run.json").write_text(json.dumps({**document, **began}))
    for name in ("episodes.csv", "eval_info.json"):
        (recorded / name).unlink()
    code, found = verified(usage, recorded)
    assert (code, found["problems"], found["verified"]) == (3, [], False)
    assert [each["verdict"] for each in found["episodes"]] == ["same"] * 6
    assert found["unchecked"].startswith("the run was killed before it could write run.json")
    done = usage("bundle", str(recorded))
    assert (done.returncode, "sparring resume writes them" in done.stderr) == (2, True)
    edit(recorded, flip_outcome)
    (recorded / "run.json").write_text(json.dumps({**document, **began}))
    code, found = verified(usage, recorded)
    assert code == 1
    assert different(found), "the journal is held against replays all the same"


def test_what_is_kept_per_episode_is_small(recorded: Path) -> None:
    with closing(sqlite3.connect(recorded / "journal.sqlite")) as journal:
        for content, trace in journal.execute("SELECT content, trace FROM actions"):
            assert len(unpack(content)) == Trace.unpack(trace).steps
            assert len(content) + len(trace) < 2000

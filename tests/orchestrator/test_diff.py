"""Two runs of one plan, held against each other."""

from __future__ import annotations

import errno
import json
import sqlite3
import subprocess
import zipfile
from collections.abc import Collection
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from support import Sparring
from toy_benchmark import ToySettings, ToySimulator

from sparring.orchestrator.plan import EpisodeId
from sparring.orchestrator.replay.recorded_run import RecordedRun
from sparring.orchestrator.replay.run_difference import difference_of
from sparring.orchestrator.replay.side_by_side import write_png
from sparring.orchestrator.results.journal import Journal
from sparring.orchestrator.results.reading import KeptEpisode
from sparring.protos.action_list import pack, unpack

TWICE = """
episodes: 1
in_process: true
evaluations:
  - {name: calm, benchmark: toy, task: [short, long]}
  - {name: noisy, benchmark: toy, task: short, benchmark_arg: {noise: 32}}
"""
PLAN = ("run", "--benchmark", "toy", "--task", "short,long", "--episodes", "2", "--in-process")


def run(usage: Sparring, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = usage(*arguments)
    assert done.returncode == code, done.stderr
    return done


def differences(usage: Sparring, *flags: str, code: int = 3) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(usage, "diff", "a", "b", "--json", *flags, code=code).stdout)
    return found


def test_runs_with_the_same_actions_have_no_difference(usage: Sparring) -> None:
    for name in ("a", "b"):
        run(usage, *PLAN, "--policy", "toy_policies:Wanderer", "--output", name)
    found = differences(usage, code=0)
    assert (found["same"], found["differing"], found["around"]) == (4, [], {})
    said = run(usage, "diff", "a", "b").stdout
    assert said.splitlines()[-1] == "4 episodes with the same actions, 0 with others."


def test_it_says_from_which_step_on_actions_differ_and_by_how_much(usage: Sparring) -> None:
    run(usage, *PLAN, "--policy", "toy_policies:Wanderer", "--output", "a")
    run(usage, *PLAN, "--policy", "toy_policies:Forward", "--output", "b")
    found = differences(usage)
    assert found["around"]["settings policy"] == ["toy_policies:Wanderer", "toy_policies:Forward"]
    assert found["around"]["policy name"] == ["toy_policies:Wanderer", "toy_policies:Forward"]
    runs = RecordedRun.in_folder(Path("a")), RecordedRun.in_folder(Path("b"))
    for one in found["differing"]:
        task, index = one["episode"].split(":")
        episode = next(e for e in runs[0].rows if (e.task, e.index) == (task, int(index)))
        left, right = (unpack(each.read([episode])[episode].actions) for each in runs)
        both = min(len(left), len(right))
        step = next((n for n in range(both) if (left[n] != right[n]).any()), both)
        assert one["step"] == step
        if step < both:
            assert one["apart"] == pytest.approx(np.abs(left[step] - right[step]).max())
            assert one["most"] == pytest.approx(np.abs(left[:both] - right[:both]).max())
        assert one["first"] == "the policy"
        assert one["steps"] == [len(left), len(right)]
    assert found["differing"], "the test compares nothing"


def test_where_the_simulator_is_another_it_differed_first(usage: Sparring) -> None:
    run(usage, *PLAN, "--policy", "toy_policies:Forward", "--output", "a")
    run(usage, *PLAN, "--policy", "toy_policies:Forward", "--output", "b", "--benchmark-arg", "reach=0.3")
    found = differences(usage)
    assert {one["first"] for one in found["differing"]} == {"the simulator"}
    assert found["around"]["settings benchmark_arg"] == [{}, {"reach": 0.3}]


def test_other_seeds_and_missing_episodes_are_told(usage: Sparring) -> None:
    run(usage, *PLAN, "--policy", "toy_policies:Wanderer", "--output", "a", "--seed", "5")
    run(usage, *PLAN, "--policy", "toy_policies:Wanderer", "--output", "b", "--seed", "9", "--episodes", "1")
    found = differences(usage)
    assert found["other_seeds"] == ["short:0", "long:0"]
    assert found["only"] == [["short:1", "long:1"], []]
    run(usage, *PLAN, "--policy", "toy_policies:Wanderer", "--output", "c", "--seed", "5", "--no-actions")
    assert "4 episodes have no recorded actions in one of the runs" in run(usage, "diff", "a", "c", code=3).stdout


def test_of_a_run_that_is_still_going_what_has_ended_is_compared(usage: Sparring) -> None:
    for name, policy in (("a", "Wanderer"), ("b", "Forward")):
        run(usage, *PLAN, "--policy", f"toy_policies:{policy}", "--output", name)
    document = json.loads(Path("b/run.json").read_text())
    Path("b/run.json").write_text(json.dumps({**document, "status": "running", "episodes": 3}))
    with closing(sqlite3.connect("b/journal.sqlite", isolation_level=None)) as journal:
        journal.execute("DELETE FROM episodes WHERE task = 'long' AND \"index\" = 1")
    with closing(Journal(Path("b"))):  # as the run has it open
        done = run(usage, "diff", "a", "b", "--json", "--frames", "pictures", "--most", "1", "--in-process", code=3)
    found = json.loads(done.stdout)
    assert "the run in 'b' is still going: its episodes that have ended by now are compared" in done.stderr
    assert found["only"] == [["long:1"], []]
    assert found["same"] + len(found["differing"]) == 3
    assert len(found["pictures"]) == 1


def test_pictures_show_both_runs_before_and_after_the_step(usage: Sparring) -> None:
    run(usage, *PLAN, "--policy", "toy_policies:Wanderer", "--output", "a")
    run(usage, *PLAN, "--policy", "toy_policies:Forward", "--output", "b")
    found = differences(usage, "--frames", "pictures", "--most", "1", "--in-process")
    assert len(found["pictures"]) == 1
    assert [str(path) for path in Path("pictures").iterdir()] == list(found["pictures"].values())
    # What the pictures show: the shade of the toy's image says where its point is.
    one = found["differing"][0]
    (picture,) = Path("pictures").iterdir()
    with av.open(str(picture)) as file:
        sheet = next(file.decode(video=0)).to_ndarray(format="rgb24")
    height, width = (sheet.shape[0] - 4) // 2, (sheet.shape[1] - 4) // 2
    shown = [
        [float(sheet[down * (height + 4) + 20, right * (width + 4) + 20].mean()) for right in (0, 1)] for down in (0, 1)
    ]
    expected = [[shade(name, one["episode"], one["step"] + later) for name in ("a", "b")] for later in (0, 1)]
    assert np.allclose(shown, expected, atol=4), "within the codec's loss"
    assert shown[0][0] == shown[0][1], "before the step both are where they were"
    assert abs(shown[1][0] - shown[1][1]) > 1, "after it they are not"
    letters = [sheet[:18, right - 18 : right] for right in (width, 2 * width + 4)]
    assert not np.array_equal(*letters), "it is not said which is which"
    assert not np.array_equal(sheet[height - 20 : height, :width], sheet[-20:, :width]), "the step stands under them"


def shade(run: str, episode: str, steps: int) -> int:
    """How bright the toy's image is after so many recorded steps, by the toy itself."""
    task, _, index = episode.rpartition(":")
    recorded = RecordedRun.in_folder(Path(run))
    (row,) = recorded.choose(episode)
    simulator = ToySimulator(task, ToySettings())
    seen = simulator.reset(seed=row.seed, index=int(index), look=frozenset({"image"}))
    kept, _ = recorded.kept([row.id])
    for action in unpack(kept[row.id].actions)[:steps]:
        seen = simulator.step(action, look=frozenset({"image"})).observation
    return int(seen["image"][0, 0, 0])


def test_a_picture_has_what_was_put_in_it(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [[rng.integers(0, 256, (8, 6, 3), np.uint8) for _ in range(2)] for _ in range(2)]
    write_png(tmp_path / "a.png", rows, gap=2)
    with av.open(str(tmp_path / "a.png")) as file:
        sheet = next(file.decode(video=0)).to_ndarray(format="rgb24")
    assert sheet.shape == (18, 14, 3)
    assert np.array_equal(sheet[:8, :6], rows[0][0])
    assert np.array_equal(sheet[10:, 8:], rows[1][1])
    assert (sheet[8:10] == 255).all()


def test_a_run_is_held_against_somebody_elses_bundle(usage: Sparring) -> None:
    run(usage, *PLAN, "--policy", "toy_policies:Wanderer", "--output", "a")
    run(usage, *PLAN, "--policy", "toy_policies:Forward", "--output", "theirs")
    run(usage, "bundle", "theirs", "--output", "b")
    found = differences(usage, "--frames", "pictures", "--most", "1", "--in-process")
    assert len(found["pictures"]) == 1
    run(usage, "diff", "b", "theirs")
    with zipfile.ZipFile("b", "a") as bundle:
        bundle.writestr("more", b"of somebody")
    said = run(usage, "diff", "b", "theirs").stderr
    assert "b: the bundle has 'more', which its checksums do not know." in said


def test_a_zero_with_a_sign_is_another_bit(usage: Sparring) -> None:
    run(usage, *PLAN, "--policy", "toy_policies:Wanderer", "--output", "a")
    recorded = RecordedRun.in_folder(Path("a"))

    def with_first(number: float) -> RecordedRun:
        def read(episodes: Collection[EpisodeId]) -> dict[EpisodeId, KeptEpisode]:
            kept = recorded.read(episodes)
            tables = {episode: unpack(each.actions).copy() for episode, each in kept.items()}
            for table in tables.values():
                table[3] = number
            return {episode: replace(kept[episode], actions=pack(table)) for episode, table in tables.items()}

        return replace(recorded, read=read)

    assert difference_of(with_first(0.0), with_first(0.0)).differing == []
    found = difference_of(with_first(0.0), with_first(-0.0)).differing
    assert {(one.step, one.apart, one.most) for one in found} == {(3, 0.0, 0.0)}
    assert len(found) == 4


def test_a_run_is_the_same_as_itself(usage: Sparring) -> None:
    run(usage, *PLAN, "--policy", "toy_policies:Wanderer", "--output", "a")
    recorded = RecordedRun.in_folder(Path("a"))
    assert difference_of(recorded, recorded).differing == []


def test_episodes_that_ended_in_an_error_are_not_the_same(usage: Sparring) -> None:
    run(usage, *PLAN, "--policy", "toy_policies:Forward", "--output", "a")
    run(usage, *PLAN, "--policy", "toy_policies:Raises", "--output", "b", "--max-errors", "0", code=3)
    found = differences(usage)
    assert found["errors"] == ["short:1", "long:1"]
    assert (found["same"], found["differing"], found["unknown"], found["only"]) == (2, [], [], [[], []])
    said = run(usage, "diff", "b", "a", code=3).stdout
    assert "2 episodes ended in an error in one of the runs: short:1, long:1\n" in said


def test_actions_that_cannot_be_read_are_told_by_name_and_the_rest_is_compared(usage: Sparring) -> None:
    for name in ("a", "b"):
        run(usage, *PLAN, "--policy", "toy_policies:Wanderer", "--output", name)
    for name, column, index in (("a", "content", 0), ("b", "trace", 1)):
        with closing(sqlite3.connect(Path(name) / "journal.sqlite", isolation_level=None)) as journal:
            change = f"UPDATE actions SET {column} = substr({column}, 1, 40)"
            journal.execute(f"{change} WHERE task = 'short' AND \"index\" = {index}")
    found = differences(usage)
    assert (found["same"], found["differing"], found["unreadable"]) == (2, [], ["short:0", "short:1"])
    assert (
        "2 episodes have actions in one of the runs that cannot be read" in run(usage, "diff", "a", "b", code=3).stdout
    )


def test_nobody_is_blamed_where_one_run_ended_earlier(usage: Sparring) -> None:
    still = ("run", "--benchmark", "toy", "--task", "long", "--episodes", "1", "--in-process")
    for name, steps in (("a", "7"), ("b", "6")):
        run(usage, *still, "--policy", "toy_policies:Wanderer", "--max-steps", steps, "--output", name)
    (one,) = differences(usage)["differing"]
    assert (one["step"], one["steps"], one["apart"], one["physics_step"]) == (6, [7, 6], None, None)
    assert one["first"] == "neither, one ended earlier"


def test_tasks_of_the_same_name_are_told_apart(usage: Sparring) -> None:
    Path("twice.yaml").write_text(TWICE)
    run(usage, "run", "--config", "twice.yaml", "--policy", "toy_policies:Wanderer", "--output", "a")
    run(usage, "run", "--config", "twice.yaml", "--policy", "toy_policies:Forward", "--output", "b")
    runs = RecordedRun.in_folder(Path("a")), RecordedRun.in_folder(Path("b"))
    found = difference_of(*runs)
    assert [one.episode for one in found.differing] == ["calm/short:0", "long:0", "noisy/short:0"]
    assert {name: str(episode) for name, episode in found.ids.items()} == {
        "calm/short:0": "calm/short#0",
        "long:0": "calm/long#0",
        "noisy/short:0": "noisy/short#0",
    }
    rows = {episode: row for episode, row in runs[1].rows.items() if episode.benchmark == "noisy"}
    assert difference_of(runs[0], replace(runs[1], rows=rows)).only == (["calm/short:0", "long:0"], [])


def test_another_renderer_is_among_what_differs(usage: Sparring) -> None:
    run(usage, *PLAN, "--policy", "toy_policies:Wanderer", "--output", "a")
    recorded = RecordedRun.in_folder(Path("a"))

    def drawn_by(*names: str) -> RecordedRun:
        rows = enumerate(recorded.rows.items())
        drawn = {episode: replace(row, renderer=names[number % len(names)]) for number, (episode, row) in rows}
        return replace(recorded, rows=drawn)

    assert difference_of(drawn_by("llvmpipe"), drawn_by("llvmpipe")).around == {}
    assert difference_of(drawn_by("llvmpipe"), drawn_by("A100")).around == {
        "renderers of toy": (["llvmpipe"], ["A100"])
    }
    mixed = difference_of(drawn_by("llvmpipe"), drawn_by("llvmpipe", "A100")).around
    assert mixed == {"renderers of toy": (["llvmpipe"], ["A100", "llvmpipe"])}
    assert difference_of(drawn_by("b", "a"), drawn_by("a", "b")).around == {}


def test_pictures_of_different_sizes_stand_side_by_side(usage: Sparring) -> None:
    run(usage, *PLAN, "--policy", "toy_policies:Wanderer", "--output", "a", "--benchmark-arg", "noise=64")
    run(usage, *PLAN, "--policy", "toy_policies:Forward", "--output", "b")
    found = differences(usage, "--frames", "pictures", "--most", "1", "--in-process")
    assert [str(path) for path in Path("pictures").iterdir()] == list(found["pictures"].values())


def test_where_no_picture_can_be_written_is_said_in_a_sentence(
    usage: Sparring, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(usage, *PLAN, "--policy", "toy_policies:Wanderer", "--output", "a")
    run(usage, *PLAN, "--policy", "toy_policies:Forward", "--output", "b")
    Path("file").touch()
    done = run(usage, "diff", "a", "b", "--frames", "file", "--in-process", code=2)
    assert done.stderr.splitlines()[-1] == "error: 'file' cannot be written: File exists."

    def full(path: Path, rows: object) -> None:
        path.write_bytes(b"half of it")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("sparring.orchestrator.cli.commands.diff.write_png", full)
    done = run(usage, "diff", "a", "b", "--frames", "new/pictures", "--in-process", code=1)
    picture = "new/pictures/short_0_step0.png"
    assert done.stderr.splitlines()[-1] == f"error: the picture '{picture}' cannot be written: No space left on device."
    assert not Path("new").exists(), "something was left"


def test_a_smaller_picture_has_white_around_it(tmp_path: Path) -> None:
    small, large = np.full((4, 6, 3), 10, np.uint8), np.full((8, 2, 3), 20, np.uint8)
    write_png(tmp_path / "a.png", [[small, large]], gap=2)
    with av.open(str(tmp_path / "a.png")) as file:
        sheet = next(file.decode(video=0)).to_ndarray(format="rgb24")
    assert sheet.shape == (8, 14, 3)
    assert (sheet[:4, :6] == 10).all()
    assert (sheet[:, 8:10] == 20).all()
    assert (sheet[4:, :8] == 255).all()
    assert (sheet[:, 10:] == 255).all()

"""Data sets of recordings, without LeRobot; tests/lerobot/test_exported.py opens them with its own loader."""

from __future__ import annotations

import json
import os
import subprocess
import zipfile
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import av
import numpy as np
import pyarrow.parquet as pq
import pytest
from made_recordings import CAMERA, STATE, record, scenes
from support import Sparring

from sparring.orchestrator.export import lerobot_files, recorded
from sparring.orchestrator.export.lerobot_dataset import LeRobotDatasetWriter, layout_of
from sparring.orchestrator.export.recorded import RecordedEpisode, recordings_in
from sparring.orchestrator.export.statistics import ImageStatistics, of_all, of_rows
from sparring.orchestrator.results.journal import Journal
from sparring.orchestrator.results.results import Results
from sparring.protos.errors import UsageError


def run(usage: Sparring, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = usage(*arguments)
    assert done.returncode == code, done.stderr
    return done


def frames_of(path: Path) -> np.ndarray[Any, Any]:
    with av.open(str(path)) as file:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in file.decode(video=0)])


def test_every_step_of_every_episode_is_in_it(usage: Sparring) -> None:
    record(Path("seen"), index=0, steps=12)
    record(Path("seen"), index=1, steps=7, success=False)
    record(Path("seen"), task="push", index=0, steps=5)
    done = run(usage, "export", "seen", "set", "--format", "lerobot")
    assert done.stdout.splitlines() == ["3 episodes, 24 steps: set"]
    rows = pq.read_table("set/data/chunk-000/file-000.parquet").to_pydict()
    assert rows["index"] == list(range(24))
    assert rows["episode_index"] == [0] * 5 + [1] * 12 + [2] * 7  # by task, then by index
    assert rows["frame_index"] == [*range(5), *range(12), *range(7)]
    assert rows["timestamp"] == pytest.approx([frame / 20 for frame in rows["frame_index"]])
    assert rows["next.done"] == [frame in (4, 16, 23) for frame in range(24)]
    assert rows["next.success"] == [frame in (4, 16) for frame in range(24)]
    assert rows["task_index"] == [0] * 5 + [1] * 19
    with np.load("seen/made/reach/0000.npz") as kept:
        assert np.array_equal(rows["action"][5:17], kept["actions"].astype(np.float32))
        assert np.array_equal(rows["next.reward"][5:17], kept["rewards"].astype(np.float32))
        assert np.array_equal(rows[STATE][5:17], kept[f"observations/{STATE}"])
    episodes = pq.read_table("set/meta/episodes/chunk-000/file-000.parquet").to_pydict()
    assert episodes["tasks"] == [["Do push, please"], ["Do reach, please"], ["Do reach, please"]]
    assert list(zip(episodes["dataset_from_index"], episodes["dataset_to_index"], strict=True)) == [
        (0, 5),
        (5, 17),
        (17, 24),
    ]
    assert episodes[f"videos/{CAMERA}/from_timestamp"] == [0.0, 0.25, 0.85]
    assert episodes[f"videos/{CAMERA}/to_timestamp"] == [0.25, 0.85, 1.2]
    ours = json.loads(Path("set/meta/sparring.json").read_text())["episodes"]
    assert [(one["task"], one["index"], one["seed"], one["success"]) for one in ours] == [
        ("push", 0, 1000, True),
        ("reach", 0, 1000, True),
        ("reach", 1, 1001, False),
    ]


def test_images_are_those_that_were_seen_but_for_the_codecs_loss(usage: Sparring) -> None:
    for index in (0, 1):
        record(Path("seen"), index=index)
    run(usage, "export", "seen", "set", "--format", "lerobot")
    seen = np.concatenate([scenes(12, height=32, width=48, seed=1000 + index) for index in (0, 1)])
    shown = frames_of(Path(f"set/videos/{CAMERA}/chunk-000/file-000.mp4")).astype(float)
    assert shown.shape == seen.shape
    assert np.abs(shown - seen).mean() < 4
    wrong = np.abs(shown[:-1] - seen[1:]).mean()
    assert wrong > 15, "the test would not see an image of another step"


def test_images_with_odd_sides_keep_them(usage: Sparring) -> None:
    record(Path("seen"), size=(31, 45))
    run(usage, "export", "seen", "set", "--format", "lerobot")
    assert frames_of(Path(f"set/videos/{CAMERA}/chunk-000/file-000.mp4")).shape == (12, 31, 45, 3)
    assert json.loads(Path("set/meta/info.json").read_text())["features"][CAMERA]["shape"] == [31, 45, 3]


def test_only_what_is_asked_for_is_in_it(usage: Sparring) -> None:
    record(Path("seen"), index=0)
    record(Path("seen"), index=1, success=False)
    record(Path("seen"), task="push", index=0)
    run(usage, "export", "seen", "good", "--format", "lerobot", "--only", "successes", "--observation", STATE)
    info = json.loads(Path("good/meta/info.json").read_text())
    assert (info["total_episodes"], info["video_path"]) == (2, None)
    assert CAMERA not in info["features"]
    run(usage, "export", "seen", "bad", "--format", "npz", "--only", "failures", "--tasks", "re*")
    assert [str(path) for path in sorted(Path("bad").rglob("*.npz"))] == ["bad/made/reach/0001.npz"]
    assert Path("bad/made/reach/0001.npz").read_bytes() == Path("seen/made/reach/0001.npz").read_bytes()


def test_of_a_history_the_newest_is_taken(usage: Sparring) -> None:
    record(Path("seen"), history=3)
    record(Path("plain"))
    run(usage, "export", "seen", "set", "--format", "lerobot")
    run(usage, "export", "plain", "other", "--format", "lerobot")
    data = "data/chunk-000/file-000.parquet"
    assert pq.read_table(f"set/{data}").equals(pq.read_table(f"other/{data}"))
    video = f"videos/{CAMERA}/chunk-000/file-000.mp4"
    assert np.array_equal(frames_of(Path("set", video)), frames_of(Path("other", video)))


@pytest.mark.parametrize(
    ("made", "flags", "said"),
    [
        ([{"every": 5}], [], "the policy looked at 3 of the 12 steps of made/reach #0"),
        ([{"control_hz": ...}], [], "does not say how many steps a second has; say it with --fps"),
        ([{}, {"index": 1, "size": (32, 32)}], [], "a data set has one layout"),
        ([{}], ["--observation", "observation.depth"], "was recorded without 'observation.depth'"),
        ([{}], ["--only", "failures"], "no episode is left"),
        ([{}], ["--tasks", "rech"], "reach"),
        ([], [], "neither the output folder of a run nor does it hold recordings"),
    ],
)
def test_what_cannot_be_exported_is_told(
    usage: Sparring, made: list[dict[str, Any]], flags: list[str], said: str
) -> None:
    Path("seen").mkdir()
    for one in made:
        record(Path("seen"), **one)
    done = run(usage, "export", "seen", "set", "--format", "lerobot", *flags, code=2)
    assert said in " ".join(done.stderr.split())
    assert sorted(os.listdir()) == ["seen"], "something was left behind"


def test_older_recordings_are_exported_if_they_are_told_how_fast_they_go(usage: Sparring) -> None:
    record(Path("seen"), control_hz=...)
    run(usage, "export", "seen", "set", "--format", "lerobot", "--fps", "12.5")
    assert json.loads(Path("set/meta/info.json").read_text())["fps"] == 12.5


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"benchmark": "../../escaped"}, "'../../escaped' cannot be the name of a folder"),
        ({"benchmark": "made/deeper"}, "'made/deeper' cannot be the name of a folder"),
        ({"benchmark": ".."}, "'..' cannot be the name of a folder"),
        ({"benchmark": ""}, "'' cannot be the name of a folder"),
        ({"task": ".."}, "'..' cannot be the name of a folder"),
        ({"task": "."}, "'.' cannot be the name of a folder"),
        ({"task": "re\0ach"}, "cannot be the name of a folder"),
    ],
)
def test_what_a_recording_says_of_itself_leads_to_no_other_folder(
    usage: Sparring, said: dict[str, Any], why: str
) -> None:
    record(Path("in/seen"), name="kept", **said)
    done = run(usage, "export", "in/seen", "in/deep/set", "--format", "npz", code=2)
    assert why in " ".join(done.stderr.split())
    found = [str(path) for path in Path().rglob("*") if path.is_file()]
    assert found == ["in/seen/kept.npz"], "something was written"


def test_tasks_of_a_recording_are_named_as_those_of_a_run(usage: Sparring) -> None:
    record(Path("seen"), name="a", task="suite/reach:v3")
    run(usage, "export", "seen", "set", "--format", "npz")
    assert [str(path) for path in Path("set").rglob("*.npz")] == ["set/made/suite_reach_v3/0000.npz"]
    record(Path("seen"), name="b", task="suite_reach_v3")
    done = run(usage, "export", "seen", "both", "--format", "npz", code=2)
    assert "two episodes would be in" in " ".join(done.stderr.split())


@pytest.mark.parametrize("name", ["..", ".", ""])
def test_an_image_whose_name_is_no_folder_is_refused(tmp_path: Path, name: str) -> None:
    path = record(tmp_path)
    with np.load(path) as kept:
        arrays = dict(kept)
    arrays[f"observations/{name}"] = arrays.pop(f"observations/{CAMERA}")
    np.savez(path, **arrays)
    with pytest.raises(UsageError, match="LeRobot has no place for"):
        layout_of(RecordedEpisode(path), [name], success=True)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--observation", STATE], "recordings are copied as they are"),
        (["--fps", "10"], "has no frames per second"),
    ],
)
def test_what_would_change_nothing_is_refused(usage: Sparring, flags: list[str], said: str) -> None:
    record(Path("seen"))
    done = run(usage, "export", "seen", "set", "--format", "npz", *flags, code=2)
    assert said in " ".join(done.stderr.split())
    assert not Path("set").exists()


def test_where_something_is_already_nothing_is_written(usage: Sparring) -> None:
    record(Path("seen"))
    Path("set").mkdir()
    Path("set/mine").write_text("keep")
    done = run(usage, "export", "seen", "set", "--format", "npz", code=2)
    assert "is there already" in done.stderr
    assert Path("set/mine").read_text() == "keep"


def test_success_that_no_simulator_tells_is_not_made_up(usage: Sparring) -> None:
    record(Path("seen"), index=0, success=None)
    record(Path("seen"), index=1)
    run(usage, "export", "seen", "set", "--format", "lerobot")
    assert "next.success" not in json.loads(Path("set/meta/info.json").read_text())["features"]


def test_a_recording_that_is_cut_off_is_named(usage: Sparring) -> None:
    path = record(Path("seen"))
    path.write_bytes(path.read_bytes()[:-200])
    done = run(usage, "export", "seen", "set", "--format", "npz", code=2)
    assert str(path) in done.stderr


def test_what_would_unpack_to_more_than_a_machine_has_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (episode,) = recordings_in(record(tmp_path / "a", steps=100).parent)
    with zipfile.ZipFile(episode.path) as archive:
        size = archive.getinfo("actions.npy").file_size
    for most, is_read in ((size, True), (size - 1, False)):
        monkeypatch.setattr(recorded, "_MOST_BYTES", most)
        with nullcontext() if is_read else pytest.raises(UsageError, match=rf"would unpack to {size} bytes"):
            assert len(episode.actions) == 100


def test_two_recordings_of_an_episode_are_not_mixed_up(tmp_path: Path) -> None:
    record(tmp_path / "a")
    record(tmp_path / "b")
    with pytest.raises(UsageError, match="two recordings of made/reach #0"):
        recordings_in(tmp_path)


def test_a_disk_that_is_full_leaves_nothing_behind(usage: Sparring, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk by an error of the writer: a small disk needs root."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    record(Path("seen"))
    monkeypatch.setattr(lerobot_files, "write_tasks", full)
    monkeypatch.setattr("sparring.orchestrator.export.lerobot_dataset.write_tasks", full)
    done = run(usage, "export", "seen", "set", "--format", "lerobot", code=1)
    assert "No space left on device" in done.stderr
    assert sorted(os.listdir()) == ["seen"]


def test_large_data_sets_have_several_files(tmp_path: Path) -> None:
    for index in range(3):
        record(tmp_path / "seen", index=index)
    episodes = recordings_in(tmp_path / "seen")
    layout = layout_of(episodes[0], [CAMERA, STATE], success=True)
    writer = LeRobotDatasetWriter(tmp_path / "set", layout, fps=20, robot_type="made", most_data=0, most_video=0)
    for episode in episodes:
        writer.add(episode)
    writer.finish()
    assert len(list((tmp_path / "set/data").rglob("*.parquet"))) == 3
    videos = sorted((tmp_path / "set/videos").rglob("*.mp4"))
    assert [len(frames_of(path)) for path in videos] == [12, 12, 12]
    rows = [pq.read_table(path).to_pylist()[0] for path in sorted((tmp_path / "set/meta/episodes").rglob("*.parquet"))]
    assert [row["data/file_index"] for row in rows] == [0, 1, 2]
    assert [row[f"videos/{CAMERA}/from_timestamp"] for row in rows] == [0.0, 0.0, 0.0]


def test_a_folder_of_files_has_a_thousand_and_the_next_begins() -> None:
    assert lerobot_files.FileNumber(0, 999).next == lerobot_files.FileNumber(1, 0)


def test_statistics_are_those_of_numpy() -> None:
    rows = np.random.default_rng(0).normal(size=(250, 3)).astype(np.float32)
    found = of_rows(rows)
    assert np.array_equal(found.min, rows.min(axis=0))
    assert np.array_equal(found.max, rows.max(axis=0))
    assert found.mean == pytest.approx(rows.astype(float).mean(axis=0))
    assert found.std == pytest.approx(rows.astype(float).std(axis=0))
    expected = np.quantile(rows, 0.9, axis=0, method="inverted_cdf")
    assert found.quantiles["q90"] == pytest.approx(expected)


def test_statistics_of_images_are_those_of_numpy_by_channel() -> None:
    images = scenes(12, height=32, width=48, seed=3)
    counting = ImageStatistics(len(images))
    for number, image in enumerate(images):
        counting.add(number, image)
    found, pixels = counting.result(), images.reshape(-1, 3) / 255.0
    assert found.count == 12
    for name, expected in {
        "min": pixels.min(0),
        "max": pixels.max(0),
        "mean": pixels.mean(0),
        "std": pixels.std(0),
    }.items():
        assert getattr(found, name).ravel() == pytest.approx(expected), name
        assert getattr(found, name).shape == (3, 1, 1)
    assert found.quantiles["q10"].ravel() == pytest.approx(np.quantile(pixels, 0.1, axis=0, method="inverted_cdf"))


def test_statistics_of_all_are_weighed_by_length() -> None:
    rng = np.random.default_rng(1)
    parts = [rng.normal(loc, 1 + loc, size=(length, 2)) for loc, length in ((0, 10), (3, 40))]
    found, whole = of_all([of_rows(part) for part in parts]), np.concatenate(parts)
    assert found.count == 50
    assert found.mean == pytest.approx(whole.mean(axis=0))
    assert found.std == pytest.approx(whole.std(axis=0))
    assert np.array_equal(found.max, whole.max(axis=0))


def test_a_recording_is_read_image_by_image(tmp_path: Path) -> None:
    episode = RecordedEpisode(record(tmp_path))
    with np.load(episode.path) as kept:
        assert np.array_equal(np.stack(list(episode.seen(CAMERA))), kept[f"observations/{CAMERA}"])
    assert episode.observations[CAMERA].shape == (32, 48, 3)


def test_episodes_of_a_run_are_played_again_and_every_step_is_seen(usage: Sparring) -> None:
    plan = ("--benchmark", "toy", "--task", "short,long", "--policy", "toy_policies:Wanderer", "--episodes", "3")
    run(usage, "run", *plan, "--in-process", "--output", "o")
    rows = Results.load("o").rows
    done = run(usage, "export", "o", "set", "--format", "npz", "--observation", "*", "--in-process")
    assert done.stdout.splitlines()[-1] == f"6 episodes, {sum(row.steps for row in rows)} steps: set"
    for row in rows:
        with np.load(f"set/toy/{row.task}/{row.index:04d}.npz") as kept:
            assert kept["looks"].tolist() == list(range(row.steps + 1))
            assert kept["observations/image"].shape == (row.steps + 1, 16, 16, 3)
            assert kept["rewards"].sum() == pytest.approx(row.reward_sum)
    run(usage, "export", "o", "few", "--format", "npz", "--observation", "image", "--every", "4", "--in-process")
    for row in rows:
        kept = np.load(f"few/toy/{row.task}/{row.index:04d}.npz")
        whole = np.load(f"set/toy/{row.task}/{row.index:04d}.npz")
        assert kept["looks"].tolist() == list(range(0, row.steps + 1, 4))
        assert np.array_equal(kept["observations/image"], whole["observations/image"][::4])
        assert len(kept["actions"]) == row.steps
    refused = run(usage, "export", "o", "x", "--format", "lerobot", "--every", "4", code=2)
    assert "every step" in refused.stderr
    run(
        usage,
        "export",
        "o",
        "robot",
        "--format",
        "lerobot",
        "--observation",
        "*",
        "--only",
        "successes",
        "--in-process",
    )
    info = json.loads(Path("robot/meta/info.json").read_text())
    good = [row for row in rows if row.outcome == "success"]
    assert (info["total_episodes"], info["total_frames"]) == (len(good), sum(row.steps for row in good))
    ours = json.loads(Path("robot/meta/sparring.json").read_text())
    assert ours["run"]["policy"]["name"] == "toy_policies:Wanderer"
    assert [(one["task"], one["index"]) for one in ours["episodes"]] == [
        (row.task, row.index) for row in sorted(good, key=lambda row: Results.load("o").plan.ids().index(row.id))
    ]
    assert sorted(os.listdir()) == ["few", "o", "robot", "set"], "something was left behind"


@pytest.mark.parametrize("form", ["lerobot", "npz"])
def test_of_a_run_that_is_still_going_what_has_ended_is_exported(usage: Sparring, form: str) -> None:
    plan = ("--benchmark", "toy", "--task", "short", "--policy", "toy_policies:Wanderer", "--episodes", "2")
    run(usage, "run", *plan, "--in-process", "--output", "o")
    document = json.loads(Path("o/run.json").read_text())
    Path("o/run.json").write_text(json.dumps({**document, "status": "running", "episodes": 9}))
    with closing(Journal(Path("o"))):  # as the run has it open
        done = run(usage, "export", "o", "set", "--format", form, "--observation", "image", "--in-process")
    assert "is still going" in done.stderr
    assert done.stdout.splitlines()[-1].startswith("2 episodes, ")

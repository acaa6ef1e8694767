"""Data sets of strangers in a preflight: they are read as far as they are wanted, or refused with a sentence."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from preflight.made_evidence import data_set, scene, still

from sparring.orchestrator.preflight import data_set as reader
from sparring.orchestrator.preflight import tables
from sparring.orchestrator.preflight.data_set import DataSet
from sparring.protos.errors import UsageError

CAMERA = "cam"


def made(folder: Path, info: dict[str, Any] | None = None, rows: int = 4, **columns: Any) -> DataSet:
    """A data set of version 2.0, whose parts may be wrong."""
    (folder / "meta").mkdir(parents=True)
    (folder / "data").mkdir()
    said = {
        **{"codebase_version": "v2.0", "fps": 10, "video_path": "{video_key}.mp4"},
        "features": {"action": {"dtype": "float32", "shape": [1]}, CAMERA: {"dtype": "video", "shape": [8, 8, 3]}},
        **(info or {}),
    }
    (folder / "meta/info.json").write_text(json.dumps(said))
    (folder / "meta/tasks.jsonl").write_text('{"task_index": 0, "task": "x"}\n')
    none = pa.array(np.zeros(rows, np.int64))
    table = {"episode_index": none, "task_index": none, "action": pa.array(np.zeros(rows, np.float32)), **columns}
    pq.write_table(pa.table(table), folder / "data/a.parquet", row_group_size=max(rows, 1))
    return DataSet(folder)


def frame(found: DataSet) -> Any:
    return found.frames(CAMERA, found.episodes[0], [0])


def test_of_many_rows_the_first_are_read(tmp_path: Path) -> None:
    rows = 100_000
    whole = made(tmp_path / "one", rows=rows)
    assert 20_000 <= len(whole.episodes[0].columns["action"]) < 21_000
    several = made(tmp_path / "several", rows=rows, episode_index=pa.array(np.arange(rows) // 15_000))
    assert [len(one.columns["action"]) for one in several.episodes] == [15_000], "one was cut off"


def test_episodes_of_a_task_are_found_behind_many_others(tmp_path: Path) -> None:
    rows = 50_000
    tasks = pa.array(np.arange(rows) // 49_990)
    found = made(tmp_path / "a", rows=rows, task_index=tasks, episode_index=tasks)
    (found.folder / "meta/tasks.jsonl").write_text('{"task_index": 1, "task": "y"}\n')
    (episode,) = found.of_sentence("y")
    assert (episode.number, len(episode.columns["action"])) == (1, 10)


def test_no_more_is_looked_through_than_a_limit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tables, "_MOST_ROWS", 1000)
    found = made(tmp_path / "a", rows=5000, task_index=pa.array(np.r_[np.zeros(4999), 1].astype(int)))
    (found.folder / "meta/tasks.jsonl").write_text('{"task_index": 1, "task": "y"}\n')
    assert found.of_sentence("y") == []


@pytest.mark.parametrize("limit", ["_MOST_VALUES", "_MOST_BYTES"])
def test_a_piece_that_is_too_large_is_refused_before_it_is_read(
    limit: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tables, limit, 30_000)
    wide = pa.array(list(np.random.default_rng(0).random((4, 10_000))))
    with pytest.raises(UsageError, match="more than 30,000"):
        made(tmp_path / "a", action=wide).episodes  # noqa: B018


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", ["data/a.parquet", "meta/tasks.jsonl"])
@pytest.mark.parametrize("what", ["/dev/zero", "a pipe"])
def test_devices_and_pipes_are_not_read(name: str, what: str, tmp_path: Path) -> None:
    found = made(tmp_path / "a")
    (found.folder / name).unlink()
    if what == "a pipe":
        os.mkfifo(found.folder / name)
    else:
        (found.folder / name).symlink_to(what)
    with pytest.raises(UsageError, match="it is no regular file"):
        found.episodes  # noqa: B018


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("[" * 100_000, "recursion"),
        ("{}", "it has no 'task_index'"),
        ("[]", "cannot be read"),
        ('{"task_index": null, "task": "x"}', "cannot be read"),
        ('{"task_index": 1e400, "task": "x"}', "cannot be read"),
        ("no JSON", "cannot be read"),
        ("\xff", "cannot be read"),
        (" " * (9 << 20), "more than"),
    ],
)
def test_tasks_that_are_none_are_wrong_usage(lines: str, words: str, tmp_path: Path) -> None:
    found = made(tmp_path / "a")
    (found.folder / "meta/tasks.jsonl").write_text(lines, encoding="latin-1")
    with pytest.raises(UsageError, match=words):
        found.sentences  # noqa: B018


@pytest.mark.parametrize(
    "table",
    [
        {"task_index": [0]},
        {"task": ["x"]},
        {"task_index": [None], "task": ["x"]},
        {"task_index": ["x"], "task": ["x"]},
        {"task_index": [0] * 30, "task": ["x" * (1 << 19)] * 30},
    ],
)
def test_tables_of_tasks_that_are_none_are_wrong_usage(table: dict[str, Any], tmp_path: Path) -> None:
    found = made(tmp_path / "a")
    (found.folder / "meta/tasks.jsonl").unlink()
    pq.write_table(pa.table(table), found.folder / "meta/tasks.parquet")
    with pytest.raises(UsageError, match=r"the tasks of .* cannot be read"):
        found.sentences  # noqa: B018


@pytest.mark.parametrize(
    ("column", "values", "words"),
    [
        ("action", ["a", "b"], "no column of numbers"),
        ("action", [[1.0], [1.0, 2.0, 3.0]], "several lengths"),
        ("action", [[1.0], None], "several lengths"),
        ("action", [[], []], "no column of numbers"),
        ("action", [[[1.0]], [[2.0]]], "no column of numbers"),
        ("episode_index", [None, 1], "no column of whole numbers"),
        ("episode_index", [0.0, float("inf")], "no column of whole numbers"),
        ("task_index", [[1, 2], [1, 2]], "no column of whole numbers"),
    ],
)
def test_columns_that_are_none_are_wrong_usage(column: str, values: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=words):
        made(tmp_path / "a", rows=2, **{column: pa.array(values)}).episodes  # noqa: B018


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    more = {"features": {"x": {"dtype": "float32", "shape": [1]}}}
    with pytest.raises(UsageError, match="no column 'x'"):
        made(tmp_path / "a", more).episodes  # noqa: B018
    with pytest.raises(UsageError, match="no frames"):
        made(tmp_path / "b", rows=0).episodes  # noqa: B018


def test_lengths_that_change_between_files_are_wrong_usage(tmp_path: Path) -> None:
    found = made(tmp_path / "a", rows=2, action=pa.array([[1.0], [1.0]]))
    again = made(tmp_path / "b", rows=2, action=pa.array([[1.0, 2.0], [1.0, 2.0]]), episode_index=pa.array([1, 1]))
    (again.folder / "data/a.parquet").rename(found.folder / "data/b.parquet")
    with pytest.raises(UsageError, match="several lengths"):
        found.episodes  # noqa: B018


@pytest.mark.parametrize("shape", [[float("inf")], [float("nan")], "abc", [-1]])
def test_shapes_that_are_none_are_wrong_usage(shape: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the shape of 'x'"):
        made(tmp_path / "a", {"features": {"x": {"dtype": "float32", "shape": shape}}}).features  # noqa: B018


@pytest.mark.parametrize("info", [{"fps": 0}, {"fps": "x"}, {"fps": float("nan")}, {"chunks_size": 0}, {"fps": None}])
def test_rates_that_are_none_are_wrong_usage(info: dict[str, Any], tmp_path: Path) -> None:
    found = made(tmp_path / "a", info)
    (found.folder / "cam.mp4").write_bytes(b"")
    with pytest.raises(UsageError, match="not a number above 0"):
        frame(found)


def test_episodes_that_are_not_in_their_table_are_wrong_usage(tmp_path: Path) -> None:
    image = {"observation.image": still(scene(0))}
    found = data_set(tmp_path / "a", [image])
    path = next((found.folder / "meta/episodes").rglob("*.parquet"))
    table = pq.read_table(path)
    episode = found.episodes[0]
    pq.write_table(table.slice(0, 0), path)
    with pytest.raises(UsageError, match="does not have it"):
        found.frames("observation.image", episode, [0])
    pq.write_table(table.drop_columns([n for n in table.column_names if n.endswith("from_timestamp")]), path)
    with pytest.raises(UsageError, match="no column"):
        found.frames("observation.image", episode, [0])


def test_a_playlist_is_no_video(tmp_path: Path) -> None:
    """It would name further files, and addresses."""
    found = made(tmp_path / "a")
    inner = data_set(tmp_path / "b", [{"observation.image": still(scene(0))}])
    film = next((inner.folder / "videos").rglob("*.mp4"))
    lines = ("#EXTM3U", "#EXT-X-TARGETDURATION:1", "#EXTINF:1,", str(film), "#EXT-X-ENDLIST", "")
    (found.folder / "cam.mp4").write_text("\n".join(lines))
    with pytest.raises(UsageError, match="cannot be read"):
        frame(found)
    script = f"ffconcat version 1.0\nfile {film.name}\n"
    (found.folder / "cam.mp4").write_text(script)
    (found.folder / film.name).write_bytes(film.read_bytes())
    with pytest.raises(UsageError, match="cannot be read"):
        frame(found)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "EPS"])
def test_only_two_kinds_of_images_are_read(kind: str, tmp_path: Path) -> None:
    file = io.BytesIO()
    Image.fromarray(scene(0)).save(file, kind)
    found = with_images(tmp_path / "a", file.getvalue())
    if kind in ("PNG", "JPEG"):
        assert frame(found)[0].shape == (48, 48, 3)
    else:
        with pytest.raises(UsageError, match="cannot be read"):
            frame(found)


def test_images_that_are_too_large_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    small = io.BytesIO()
    Image.fromarray(scene(0)).save(small, "PNG")
    with monkeypatch.context() as lower:
        lower.setattr(Image, "MAX_IMAGE_PIXELS", 100)
        with pytest.raises(UsageError, match="2304 pixels"):
            frame(with_images(tmp_path / "a", small.getvalue()))
    monkeypatch.setattr(reader, "_MOST_PIXELS", 100)
    with pytest.raises(UsageError, match="48 x 48 pixels"):
        frame(with_images(tmp_path / "b", small.getvalue()))
    found = data_set(tmp_path / "c", [{"observation.image": still(scene(0))}])
    with pytest.raises(UsageError, match="48 x 48 pixels"):
        found.frames("observation.image", found.episodes[0], [0])


def with_images(folder: Path, content: bytes) -> DataSet:
    features = {"action": {"dtype": "float32", "shape": [1]}, CAMERA: {"dtype": "image", "shape": [8, 8, 3]}}
    images = pa.array([{"bytes": content, "path": None}], pa.struct({"bytes": pa.binary(), "path": pa.string()}))
    return made(folder, {"features": features}, rows=1, cam=images)

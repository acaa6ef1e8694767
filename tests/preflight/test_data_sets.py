"""Data sets as they are read for a preflight: LeRobot's files of version 3, of version 2.1, and images in tables."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from preflight.made_evidence import SENTENCE, data_set, scene

from sparring.orchestrator.preflight.data_set import DataSet
from sparring.protos.errors import UsageError

CAMERA, STATE = "observation.image", "observation.state"


def frames(number: int) -> dict[str, Any]:
    """An episode whose every frame is another one."""
    film = np.stack([np.roll(scene(number), 3 * step, axis=1) for step in range(12)])
    return {CAMERA: film, STATE: np.arange(48, dtype=np.float32).reshape(12, 4) + 100 * number}


@pytest.fixture
def version_3(tmp_path: Path) -> DataSet:
    return data_set(tmp_path / "three", [frames(0), frames(1)])


@pytest.fixture
def version_2(version_3: DataSet, tmp_path: Path) -> DataSet:
    """The same, as LeRobot wrote it until 0.3: a file for each episode."""
    folder = tmp_path / "two"
    table = pq.read_table(next((version_3.folder / "data").rglob("*.parquet")))
    for number in (0, 1):
        path = folder / f"data/chunk-000/episode_{number:06d}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table.filter(pa.compute.equal(table["episode_index"], number)), path)
        one = data_set(tmp_path / f"one-{number}", [frames(number)])
        video = folder / f"videos/chunk-000/{CAMERA}/episode_{number:06d}.mp4"
        video.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(next((one.folder / "videos").rglob("*.mp4")), video)
    info = json.loads((version_3.folder / "meta/info.json").read_text())
    pattern = "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4"
    (folder / "meta").mkdir()
    (folder / "meta/info.json").write_text(json.dumps({**info, "codebase_version": "v2.1", "video_path": pattern}))
    (folder / "meta/tasks.jsonl").write_text(json.dumps({"task_index": 0, "task": SENTENCE}) + "\n")
    return DataSet(folder)


@pytest.fixture
def in_tables(version_3: DataSet, tmp_path: Path) -> DataSet:
    """The same, with images in the tables."""
    folder = tmp_path / "tables"
    shutil.copytree(version_3.folder, folder, ignore=shutil.ignore_patterns("videos"))
    path = next((folder / "data").rglob("*.parquet"))
    table, images = pq.read_table(path), []
    for image in np.concatenate([frames(0)[CAMERA], frames(1)[CAMERA]]):
        file = io.BytesIO()
        Image.fromarray(image).save(file, "PNG")
        images.append({"bytes": file.getvalue(), "path": None})
    kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    pq.write_table(table.append_column(CAMERA, pa.array(images, kind)), path)
    info = json.loads((folder / "meta/info.json").read_text())
    info["features"][CAMERA] = {"dtype": "image", "shape": [3, 48, 48], "names": ["channels", "height", "width"]}
    (folder / "meta/info.json").write_text(json.dumps(info))
    return DataSet(folder)


@pytest.mark.parametrize("kind", ["version_3", "version_2", "in_tables"])
def test_every_layout_is_read_alike(kind: str, request: pytest.FixtureRequest) -> None:
    found: DataSet = request.getfixturevalue(kind)
    assert found.features[CAMERA].shape == (48, 48, 3)
    assert (list(found.sentences), found.action) == ([SENTENCE], "action")
    assert [episode.number for episode in found.of_sentence(SENTENCE)] == [0, 1]
    assert found.of_sentence("Another one") == []
    for number, episode in enumerate(found.episodes):
        assert episode.sentence == SENTENCE
        assert np.array_equal(episode.columns[STATE], frames(number)[STATE])
        steps = [0, 5, 11]
        for step, image in zip(steps, found.frames(CAMERA, episode, steps), strict=True):
            off = [np.abs(image.astype(int) - other).mean() for other in frames(number)[CAMERA]]
            assert int(np.argmin(off)) == step, "another step's image"


def test_what_is_broken_is_said(version_3: DataSet, tmp_path: Path) -> None:
    next((version_3.folder / "videos").rglob("*.mp4")).write_bytes(b"no video")
    with pytest.raises(UsageError, match="cannot be read"):
        version_3.frames(CAMERA, version_3.episodes[0], [0])
    next((version_3.folder / "data").rglob("*.parquet")).write_bytes(b"no table")
    with pytest.raises(UsageError, match="cannot be read"):
        DataSet(version_3.folder).episodes  # noqa: B018
    with pytest.raises(UsageError, match="no LeRobotDataset"):
        DataSet(tmp_path)


def with_info(found: DataSet, **changes: Any) -> DataSet:
    path = found.folder / "meta/info.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return DataSet(found.folder)


@pytest.mark.parametrize("features", [[1], {"x": None}, {"x": {"dtype": "float32", "shape": "abc"}}])
def test_features_that_are_none_are_wrong_usage(features: Any, version_3: DataSet) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        with_info(version_3, features=features).features  # noqa: B018


@pytest.mark.parametrize(
    "pattern", ["{outside}", "../outside.mp4", "link.mp4", "{video_key.__class__}", "{fps:09999999d}"]
)
def test_videos_are_of_the_data_sets_folder(pattern: str, version_3: DataSet) -> None:
    outside = version_3.folder.parent / "outside.mp4"
    shutil.copy(next((version_3.folder / "videos").rglob("*.mp4")), outside)
    (version_3.folder / "link.mp4").symlink_to(outside)
    found = with_info(version_3, video_path=pattern.replace("{outside}", str(outside)))
    with pytest.raises(UsageError, match=r"leads out of its folder|is no name of a file"):
        found.frames(CAMERA, found.episodes[0], [0])


def test_images_are_of_the_data_sets_folder(in_tables: DataSet) -> None:
    outside = in_tables.folder.parent / "outside.png"
    Image.fromarray(scene(0)).save(outside)
    path = next((in_tables.folder / "data").rglob("*.parquet"))
    table = pq.read_table(path)
    images = pa.array([{"bytes": None, "path": str(outside)}] * table.num_rows, table[CAMERA].type)
    pq.write_table(table.set_column(table.column_names.index(CAMERA), CAMERA, images), path)
    found = DataSet(in_tables.folder)
    with pytest.raises(UsageError, match="leads out of its folder"):
        found.frames(CAMERA, found.episodes[0], [0])


def test_a_hubs_cache_links_to_its_own_files(version_3: DataSet, tmp_path: Path) -> None:
    snapshot = tmp_path / "datasets--x/snapshots/1"
    shutil.copytree(version_3.folder, snapshot)
    video = next((snapshot / "videos").rglob("*.mp4"))
    blobs = tmp_path / "datasets--x/blobs"
    blobs.mkdir()
    video.rename(blobs / "a")
    video.symlink_to(blobs / "a")
    found = DataSet(snapshot)
    assert len(found.frames(CAMERA, found.episodes[0], [0])) == 1

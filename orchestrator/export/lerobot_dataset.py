"""Writes episodes as a LeRobotDataset, version 3: tables of numbers, a video per camera, and what is known of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np

from sparring.orchestrator.export.lerobot_files import (
    CHUNK,
    CODEBASE_VERSION,
    DATA_PATH,
    EPISODES_PATH,
    MOST_DATA,
    MOST_VIDEO,
    VIDEO_PATH,
    GrowingTable,
    GrowingVideo,
    write_json,
    write_tasks,
)
from sparring.orchestrator.export.recorded import About, RecordedEpisode
from sparring.orchestrator.export.statistics import FeatureStatistics, ImageStatistics, of_all, of_rows
from sparring.protos.errors import UsageError
from sparring.protos.spec import TensorSpec
from sparring.protos.tensor import Array

ACTION, REWARD, DONE, SUCCESS = "action", "next.reward", "next.done", "next.success"
_COUNTERS: Final = {
    "timestamp": "float32",
    "frame_index": "int64",
    "episode_index": "int64",
    "index": "int64",
    "task_index": "int64",
}
OUR_FILE: Final = "meta/sparring.json"
"""Which episode of which run each of the data set's is; LeRobot does not look at it."""


@dataclass(frozen=True)
class Layout:
    """What each frame of a data set has.

    Attributes:
        cameras: Images by name, each (height, width, 3).
        numbers: What is seen beside images, by name: how many numbers it is, and of which type.
        action_dim: How many numbers an action is.
        success: Whether it is known which episodes succeeded.
    """

    cameras: dict[str, tuple[int, ...]]
    numbers: dict[str, tuple[str, int]]
    action_dim: int
    success: bool

    def __str__(self) -> str:
        images = [f"{name!r} of {'×'.join(map(str, shape))}" for name, shape in self.cameras.items()]
        numbers = [f"{name!r} of {size} {dtype}" for name, (dtype, size) in self.numbers.items()]
        return ", ".join([*images, *numbers, f"actions of {self.action_dim}"])

    def features(self, *, fps: float, pixels: dict[str, str]) -> dict[str, Any]:
        """Returns what info.json says of it."""
        found: dict[str, Any] = {}
        for name, shape in self.cameras.items():
            video = {
                "video.height": shape[0],
                "video.width": shape[1],
                "video.codec": "h264",
                "video.pix_fmt": pixels[name],
                "video.is_depth_map": False,
                "video.fps": _plain(fps),
                "video.channels": 3,
                "has_audio": False,
            }
            names = ["height", "width", "channels"]
            found[name] = {"dtype": "video", "shape": list(shape), "names": names, "info": video}
        for name, (dtype, size) in self.numbers.items():
            found[name] = {"dtype": dtype, "shape": [size], "names": None}
        found[ACTION] = {"dtype": "float32", "shape": [self.action_dim], "names": None}
        found[REWARD] = {"dtype": "float32", "shape": [1], "names": None}
        found[DONE] = {"dtype": "bool", "shape": [1], "names": None}
        if self.success:
            found[SUCCESS] = {"dtype": "bool", "shape": [1], "names": None}
        return found | {name: {"dtype": dtype, "shape": [1], "names": None} for name, dtype in _COUNTERS.items()}


class LeRobotDatasetWriter:
    """Writes a data set, episode by episode; it can be read when it is finished.

    Args:
        folder: Where; it must be empty.
        layout: Of all frames.
        fps: Frames per simulated second.
        robot_type: What LeRobot is told of the robot: the benchmark.
        run: What is known of the run that made the episodes.
        most_data: MiB after which the next file of numbers begins.
        most_video: MiB after which the next video begins.
    """

    def __init__(
        self,
        folder: Path,
        layout: Layout,
        *,
        fps: float,
        robot_type: str,
        run: Mapping[str, Any] | None = None,
        most_data: int = MOST_DATA,
        most_video: int = MOST_VIDEO,
    ) -> None:
        self._folder = folder
        self._layout = layout
        self._fps = fps
        self._robot_type = robot_type
        self._run = run
        self._most = {"data_files_size_in_mb": most_data, "video_files_size_in_mb": most_video}
        self._data = GrowingTable(folder, DATA_PATH, most=most_data)
        self._episodes = GrowingTable(folder, EPISODES_PATH, most=most_data)
        self._videos = {
            name: GrowingVideo(folder, name, shape, fps=fps, most=most_video) for name, shape in layout.cameras.items()
        }
        self._pixels: dict[str, str] = {}
        self._sentences: list[str] = []
        self._frames = 0
        self._statistics: list[dict[str, FeatureStatistics]] = []
        self._ours: list[dict[str, Any]] = []

    def add(self, episode: RecordedEpisode) -> None:
        """Adds an episode whose policy looked at every step.

        Raises:
            UsageError: If it cannot be read, or has another layout.
        """
        about, actions = episode.about, episode.actions
        self._check(episode)
        number, length = len(self._statistics), len(actions)
        columns = self._columns(episode, actions)
        statistics = {name: of_rows(rows) for name, rows in columns.items()}
        place = self._data.place
        self._data.add({name: _arrow(rows) for name, rows in columns.items()})
        meta: dict[str, Any] = {
            "episode_index": number,
            "tasks": [about.instruction],
            "length": length,
            "data/chunk_index": place.chunk,
            "data/file_index": place.file,
            "dataset_from_index": self._frames,
            "dataset_to_index": self._frames + length,
        }
        for name, video in self._videos.items():
            meta |= {f"videos/{name}/chunk_index": video.place.chunk, f"videos/{name}/file_index": video.place.file}
            meta[f"videos/{name}/from_timestamp"] = video.seconds
            statistics[name] = self._film(episode, name, video, length)
            meta[f"videos/{name}/to_timestamp"] = video.seconds
            video.end_episode()
        for name, found in statistics.items():
            meta |= {f"stats/{name}/{key}": value for key, value in found.to_json().items()}
        here = self._episodes.place
        meta |= {"meta/episodes/chunk_index": here.chunk, "meta/episodes/file_index": here.file}
        self._episodes.add({name: [value] for name, value in meta.items()})
        self._frames += length
        self._statistics.append(statistics)
        self._ours.append(_identity(about))

    def finish(self) -> None:
        """Writes what belongs to all episodes; there was at least one."""
        self.close()
        write_tasks(self._folder / "meta/tasks.parquet", self._sentences)
        total = {name: of_all([one[name] for one in self._statistics]) for name in self._statistics[0]}
        write_json(self._folder / "meta/stats.json", {name: found.to_json() for name, found in total.items()})
        write_json(self._folder / OUR_FILE, {"format": 1, "run": self._run, "episodes": self._ours})
        info = {
            "codebase_version": CODEBASE_VERSION,
            "robot_type": self._robot_type,
            "total_episodes": len(self._statistics),
            "total_frames": self._frames,
            "total_tasks": len(self._sentences),
            "chunks_size": CHUNK,
            **self._most,
            "fps": _plain(self._fps),
            "splits": {"train": f"0:{len(self._statistics)}"},
            "data_path": DATA_PATH,
            "video_path": VIDEO_PATH if self._videos else None,
            "features": self._layout.features(fps=self._fps, pixels=self._pixels),
        }
        write_json(self._folder / "meta/info.json", info)  # last: what has it is whole

    def close(self) -> None:
        """Closes what is open; without `finish` nothing can be read of it."""
        self._data.close()
        self._episodes.close()
        for video in self._videos.values():
            video.close()

    def _check(self, episode: RecordedEpisode) -> None:
        wanted = self._layout
        found = layout_of(episode, [*wanted.cameras, *wanted.numbers], success=wanted.success)
        if found != wanted:
            raise UsageError(
                f"{episode.about} has {found}, and those before it {wanted}: a data set has one layout. Export them "
                "apart."
            )

    def _columns(self, episode: RecordedEpisode, actions: Array) -> dict[str, Array]:
        length = len(actions)
        about = episode.about
        if about.instruction not in self._sentences:
            self._sentences.append(about.instruction)
        columns: dict[str, Array] = {}
        for name, (dtype, size) in self._layout.numbers.items():
            columns[name] = np.stack(list(islice(episode.seen(name), length))).astype(dtype).reshape(length, size)
        columns[ACTION] = actions.astype(np.float32)
        columns[REWARD] = episode.rewards.astype(np.float32)
        columns[DONE] = np.arange(length) == length - 1
        if self._layout.success:
            columns[SUCCESS] = columns[DONE] & bool(about.success)
        frames = np.arange(length)
        columns["timestamp"] = (frames / self._fps).astype(np.float32)
        columns["frame_index"] = frames
        columns["episode_index"] = np.full(length, len(self._statistics))
        columns["index"] = self._frames + frames
        columns["task_index"] = np.full(length, self._sentences.index(about.instruction))
        return columns

    def _film(self, episode: RecordedEpisode, name: str, video: GrowingVideo, length: int) -> FeatureStatistics:
        counting = ImageStatistics(length)
        for number, image in enumerate(islice(episode.seen(name), length)):
            video.file.add(image, first=number == 0)
            counting.add(number, image)
        self._pixels[name] = video.file.pixels
        return counting.result()


def layout_of(episode: RecordedEpisode, names: Sequence[str], *, success: bool) -> Layout:
    """Returns what all frames of a data set that begins with an episode have.

    Args:
        episode: Whose policy looked at every step.
        names: The observations that are to be in it.
        success: Whether it is known of all episodes which succeeded.

    Raises:
        UsageError: If there is something that LeRobot has no place for, or not all that a frame needs.
    """
    offered = episode.observations
    for name in names:
        if name not in offered:
            raise UsageError(
                f"{episode.about} was recorded without {name!r}: what was seen is {', '.join(offered) or 'nothing'}."
            )
        if name in ("", ".", "..") or "/" in name or "\0" in name or not fits(offered[name]):  # videos/<name>/...
            raise UsageError(
                f"LeRobot has no place for {name!r}, {offered[name]}: it takes images of three colours and rows of "
                "numbers, whose names are those of folders, without '/'."
            )
    looks, steps = episode.looks, len(episode.actions)
    if not np.array_equal(looks[:steps], np.arange(steps)):  # a replay is also seen after its last step
        raise UsageError(
            f"the policy looked at {len(looks)} of the {steps} steps of {episode.about}, and a data set has every one. "
            "Export the output folder of its run instead: that plays the actions again, and looks."
        )
    specs = {name: offered[name] for name in names}
    cameras = {name: spec.shape for name, spec in specs.items() if is_image(spec) and spec.shape is not None}
    numbers = {name: _number(spec) for name, spec in specs.items() if name not in cameras}
    return Layout(cameras, numbers, action_dim=episode.actions.shape[1], success=success)


def is_image(spec: TensorSpec) -> bool:
    """Returns whether an observation is a colour image."""
    return spec.dtype == "uint8" and spec.shape is not None and len(spec.shape) == 3 and spec.shape[2] == 3


def fits(spec: TensorSpec) -> bool:
    """Returns whether LeRobot has a place for an observation: images and rows of numbers."""
    return is_image(spec) or (spec.shape is not None and len(spec.shape) <= 1)


def _number(spec: TensorSpec) -> tuple[str, int]:
    dtype = np.dtype(spec.dtype or "float32")
    # LeRobot's policies compute with 32 bits, and its loader makes that of what has more.
    kept = "float32" if dtype.kind == "f" else dtype.name
    assert spec.shape is not None, "it is of a recording"
    return kept, spec.shape[0] if spec.shape else 1


def _arrow(rows: Array) -> Any:
    import pyarrow as pa

    if rows.ndim == 1 or rows.shape[1] == 1:
        return pa.array(rows.reshape(-1))
    return pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), rows.shape[1])


def _identity(about: About) -> dict[str, Any]:
    return {
        "benchmark": about.benchmark,
        "task": about.task,
        "index": about.index,
        "seed": about.seed,
        "success": about.success,
        **about.provenance,
    }


def _plain(number: float) -> float:
    """Returns a whole number as one: LeRobot writes its rates so."""
    return int(number) if number == int(number) else number

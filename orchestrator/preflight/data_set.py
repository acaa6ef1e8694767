"""A LeRobotDataset that a policy was trained on, read as far as it is compared: versions 2 and 3 of its files."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path
from string import Formatter
from typing import Any, BinaryIO, Final

import numpy as np

from sparring.orchestrator.preflight.facts import ACTION, Feature, mapping, read_object, shape_of
from sparring.orchestrator.preflight.reading import reading
from sparring.orchestrator.preflight.tables import numbers_of, pieces, whole_numbers
from sparring.orchestrator.results.files import open_regular, read_bytes
from sparring.protos.errors import UsageError
from sparring.protos.installing import install_command
from sparring.protos.tensor import Array

_MOST_ROWS: Final = 20_000
"""That numbers are read of: enough for every statistic that is made of them."""
_MOST_NUMBERS: Final = 20_000_000
_MOST_TEXT: Final = 8 << 20
_ROOM: Final = 80
"""Characters that an empty sentence takes, too, when it is counted what there is."""
_MOST_PIXELS: Final = 1 << 25
_IMAGES: Final = 8
"""Rows that are read at once, where one may be large."""
_ACTIONS: Final = (ACTION, "actions")
_NOT_SEEN: Final = ("timestamp", "frame_index", "episode_index", "index", "task_index")


@dataclass(frozen=True)
class DataEpisode:
    """One episode of a data set.

    Attributes:
        number: Which.
        sentence: Of its task; empty: that is not known.
        columns: Numbers of every frame, by feature.
    """

    number: int
    sentence: str
    columns: Mapping[str, Array]


class DataSet:
    """A data set in a folder.

    Args:
        folder: With `meta/info.json`.

    Raises:
        UsageError: If it is none, or what reads it is not installed.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if not (folder / "meta" / "info.json").is_file():
            raise UsageError(f"{str(folder)!r} is no LeRobotDataset: it has no meta/info.json.")
        try:
            import av  # noqa: F401
            import pyarrow  # noqa: F401
        except ModuleNotFoundError as error:
            raise UsageError(
                f"a data set needs {error.name!r}, which is not installed: {install_command('export')}."
            ) from error
        self._info = read_object(folder / "meta" / "info.json")
        self._old = not str(self._info.get("codebase_version", "v3")).startswith("v3")

    def __str__(self) -> str:
        return "the data set"

    @cached_property
    def features(self) -> Mapping[str, Feature]:
        """What its frames have, by name."""
        statistics = self._statistics()
        found = {}
        known = mapping(self._info, "features", self.folder)
        for name in known:
            said = mapping(known, name, self.folder, needed=True)
            shape = shape_of(said, name, self.folder)
            dtype = str(said.get("dtype"))
            if name in _NOT_SEEN or name.startswith("next."):
                continue
            if dtype in ("video", "image"):
                if len(shape) == 3 and shape[0] in (1, 3) and shape[2] not in (1, 3):
                    shape = (shape[1], shape[2], shape[0])
                found[name] = Feature(name, "image", shape, statistics.get(name, {}))
            elif name in _ACTIONS:
                found[name] = Feature(name, "action", shape, statistics.get(name, {}))
            elif dtype.startswith(("float", "int")):
                found[name] = Feature(name, "numbers", shape, statistics.get(name, {}))
        return found

    @cached_property
    def action(self) -> str:
        """The name of its actions; empty: it has none."""
        return next((name for name in _ACTIONS if name in self.features), "")

    @cached_property
    def sentences(self) -> Sequence[str]:
        """Of all its tasks."""
        return list(self._tasks.values())

    @cached_property
    def episodes(self) -> Sequence[DataEpisode]:
        """The first of them, with their numbers, as many as some thousands of frames hold."""
        with reading(repr(str(self.folder))):
            if found := self._read(None):
                return found
            raise ValueError("it has no frames")

    def of_sentence(self, sentence: str) -> Sequence[DataEpisode]:
        """Returns those of one sentence, the first of them, likewise; nothing, if there are none."""
        if sentence not in self._read_of:
            wanted = [number for number, words in self._tasks.items() if words == sentence]
            with reading(repr(str(self.folder))):
                self._read_of[sentence] = self._read(wanted[0]) if wanted else []
        return self._read_of[sentence]

    @cached_property
    def _read_of(self) -> dict[str, Sequence[DataEpisode]]:
        return {}

    def _read(self, task: int | None) -> Sequence[DataEpisode]:
        found: dict[int, dict[str, list[Array]]] = {}
        known = {name: feature for name, feature in self.features.items() if feature.kind != "image"}
        names = [name for name, feature in known.items() if len(feature.shape) <= 1]
        widths: dict[str, int] = {}
        rows = size = 0
        for piece in pieces(
            self._frame_files, ["episode_index", "task_index", *names], None if task is None else {"task_index": task}
        ):
            numbers = np.asarray(whole_numbers(piece, "episode_index"))
            whole_numbers(piece, "task_index")
            columns = {name: numbers_of(piece, name) for name in ("task_index", *names)}
            for name, values in columns.items():
                if widths.setdefault(name, values.shape[1]) != values.shape[1]:
                    raise ValueError(f"rows of {name!r} have several lengths")
            for number in dict.fromkeys(numbers.tolist()):
                parts = found.setdefault(number, {})
                for name, values in columns.items():
                    parts.setdefault(name, []).append(values[numbers == number])
            rows, size = rows + len(numbers), size + sum(values.size for values in columns.values())
            if rows >= _MOST_ROWS or size >= _MOST_NUMBERS:
                if len(found) > 1:
                    del found[int(numbers[-1])]  # it may go on
                break
        episodes = []
        for number, parts in sorted(found.items()):
            whole = {name: np.concatenate(arrays) for name, arrays in parts.items()}
            sentence = self._tasks.get(int(whole.pop("task_index")[0, 0]), "")
            episodes.append(DataEpisode(number, sentence, whole))
        return episodes

    def frames(self, camera: str, episode: DataEpisode, steps: Sequence[int]) -> list[Array]:
        """Returns images of an episode: uint8 (height, width, 3); fewer, if there are not so many.

        Raises:
            UsageError: If they cannot be read.
        """
        with reading(f"the images {camera!r} of episode {episode.number} in {str(self.folder)!r}"):
            if self._info["features"][camera]["dtype"] == "image":
                return self._stored(camera, episode.number, steps)
            path, first = self._video(camera, episode.number)
            return _decoded(path, [first + step / self._positive("fps") for step in steps])

    def _stored(self, camera: str, number: int, steps: Sequence[int]) -> list[Array]:
        seen, found = 0, []
        for piece in pieces(self._frame_files, ["episode_index", camera], {"episode_index": number}, rows=_IMAGES):
            for image in piece.column(camera):
                if seen in steps:
                    about = image.as_py()
                    found.append(_image(BytesIO(about["bytes"]) if about.get("bytes") else self._opened(about["path"])))
                seen += 1
            if len(found) == len(set(steps)):
                break
        return found

    def _opened(self, name: Any) -> BinaryIO:
        return open_regular(self._inside(str(name)))

    def _video(self, camera: str, number: int) -> tuple[Path, float]:
        """Returns the file of an episode's images, and at which second in it they begin."""
        chunk = number // max(1, int(self._positive("chunks_size", 1000)))
        names = {"video_key": camera, "episode_index": number, "episode_chunk": chunk}
        pattern = str(self._info["video_path"])
        if self._old:
            return self._inside(_filled_in(pattern, names)), 0.0
        keys = {key: f"videos/{camera}/{key}" for key in ("chunk_index", "file_index", "from_timestamp")}
        tables = sorted((self.folder / "meta" / "episodes").rglob("*.parquet"))
        rows = pieces(tables, ["episode_index", *keys.values()], {"episode_index": number})
        about = next(rows, None)
        if about is None:
            raise ValueError("meta/episodes does not have it")
        place = {key: whole_numbers(about, keys[key])[0] for key in ("chunk_index", "file_index")}
        path = self._inside(_filled_in(pattern, {**names, **place}))
        return path, float(numbers_of(about, keys["from_timestamp"])[0, 0])

    def _inside(self, name: str) -> Path:
        """Returns a file of the data set by its name there, which others have written.

        Raises:
            ValueError: If it leads elsewhere, or is no file.
        """
        folder = self.folder.resolve()
        path = (folder / name).resolve()
        # A hub's cache keeps files elsewhere, and links to them: folder/snapshots/revision to folder/blobs.
        kept = [folder, *([folder.parent.parent / "blobs"] if folder.parent.name == "snapshots" else [])]
        straight = not Path(name).is_absolute() and ".." not in Path(name).parts
        if not straight or not any(path.is_relative_to(place) for place in kept):
            raise ValueError(f"{name!r} leads out of its folder")
        if not path.is_file():
            raise ValueError(f"there is no file {name!r}")
        return path

    def _positive(self, key: str, default: float | None = None) -> float:
        found = self._info.get(key, default)
        if not isinstance(found, int | float) or not 1e-6 < found < 1e9:
            raise ValueError(f"its {key!r} is {str(found)[:40]!r}, and not a number above 0")
        return float(found)

    @cached_property
    def _frame_files(self) -> Sequence[Path]:
        found = sorted((self.folder / "data").rglob("*.parquet"))
        if not found:
            raise UsageError(f"{str(self.folder)!r} has no files of frames: its folder data is empty.")
        return found

    @cached_property
    def _tasks(self) -> dict[int, str]:
        lines, path = self.folder / "meta" / "tasks.jsonl", self.folder / "meta" / "tasks.parquet"
        with reading(f"the tasks of {str(self.folder)!r}"):
            if lines.exists():
                said = [json.loads(line) for line in read_bytes(lines, _MOST_TEXT).splitlines() if line.strip()]
                return {int(one["task_index"]): str(one["task"]) for one in said}
            return _tasks_in(path) if path.exists() else {}

    def _statistics(self) -> dict[str, dict[str, Array]]:
        path = self.folder / "meta" / "stats.json"
        if not path.is_file():  # version 2.1 has them by episode: those of all are made of the frames
            return {}
        said = read_object(path)
        with reading(repr(str(path))):
            return {
                name: {key: np.ravel(np.asarray(value, np.float64)) for key, value in one.items()}
                for name, one in said.items()
                if isinstance(one, dict)
            }


def _filled_in(pattern: str, names: Mapping[str, Any]) -> str:
    """Fills in a file's name as LeRobot writes it: fields by their names, numbers with leading zeros, nothing more.

    Raises:
        ValueError: If the pattern asks for more.
    """
    for _, name, form, conversion in Formatter().parse(pattern):
        if name is not None and (name not in names or conversion or not re.fullmatch(r"(0?\d{1,2}d)?", form or "")):
            raise ValueError(f"{pattern!r} is no name of a file")
    return pattern.format(**names)


def _tasks_in(path: Path) -> dict[int, str]:
    found: dict[int, str] = {}
    size = 0
    for piece in pieces([path], [], rows=_IMAGES):
        (sentences, *_) = [name for name in piece.schema.names if name != "task_index"]
        said = [str(one) for one in piece.column(sentences).to_pylist()]
        found.update(zip(whole_numbers(piece, "task_index"), said, strict=True))
        size += sum(len(one) + _ROOM for one in said)
        if size > _MOST_TEXT:
            raise ValueError(f"{path.name!r} has more than {_MOST_TEXT:,} characters")
    return found


def _image(source: BinaryIO) -> Array:
    """Returns a stored image; LeRobot writes these two kinds, and others may start programs or read further files."""
    from PIL import Image

    try:
        with source, Image.open(source, formats=["PNG", "JPEG"]) as image:
            _check_size(*image.size)
            return np.asarray(image.convert("RGB"))
    except Image.DecompressionBombError as error:
        raise ValueError(str(error)) from error


def _check_size(width: int, height: int) -> None:
    if width * height > _MOST_PIXELS:
        raise ValueError(f"an image has {width} x {height} pixels, and more than {_MOST_PIXELS:,} are not read")


def _decoded(path: Path, seconds: Sequence[float]) -> list[Array]:
    """Returns the frames of a video that are nearest to some moments, which are in order."""
    import av

    found: list[Array] = []
    try:
        # A name may be an address, and a playlist names some: an open file of LeRobot's only format leads nowhere.
        with open_regular(path) as file, av.open(file, "r", format="mp4") as container:
            stream = container.streams.video[0]
            assert stream.time_base is not None
            _check_size(stream.width, stream.height)
            container.seek(int(max(0.0, seconds[0] - 0.01) / stream.time_base), stream=stream, backward=True)
            half = 0.5 / float(stream.average_rate or 20)
            for frame in container.decode(stream):
                while len(found) < len(seconds) and frame.time is not None and frame.time >= seconds[len(found)] - half:
                    found.append(frame.to_ndarray(format="rgb24"))
                if len(found) == len(seconds):
                    break
    except av.FFmpegError as error:
        raise ValueError(str(error)) from error
    return found

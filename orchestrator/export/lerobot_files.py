"""The files of a LeRobotDataset, version 3: where each lies, and the ones that grow episode by episode."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sparring.orchestrator.export.video_file import VideoFile

CODEBASE_VERSION: Final = "v3.0"
CHUNK: Final = 1000
"""Files in a folder."""
MOST_DATA, MOST_VIDEO = 100, 200
"""MiB after which the next file begins."""
_FILE: Final = "chunk-{chunk_index:03d}/file-{file_index:03d}"
DATA_PATH: Final = f"data/{_FILE}.parquet"
VIDEO_PATH: Final = f"videos/{{video_key}}/{_FILE}.mp4"
EPISODES_PATH: Final = f"meta/episodes/{_FILE}.parquet"


@dataclass(frozen=True)
class FileNumber:
    """Says which of the files of a kind it is."""

    chunk: int = 0
    file: int = 0

    @property
    def next(self) -> FileNumber:
        """The one after it."""
        return FileNumber(self.chunk, self.file + 1) if self.file + 1 < CHUNK else FileNumber(self.chunk + 1, 0)

    def in_(self, folder: Path, pattern: str, **names: str) -> Path:
        """Returns its path."""
        return folder / pattern.format(chunk_index=self.chunk, file_index=self.file, **names)


class GrowingTable:
    """A table of parquet files, to which episodes are added; each file has whole episodes.

    Args:
        folder: Of the data set.
        pattern: Of the files' paths.
        most: MiB after which the next file begins.
    """

    def __init__(self, folder: Path, pattern: str, *, most: int) -> None:
        self.place = FileNumber()
        """Where the next rows go."""
        self._folder = folder
        self._pattern = pattern
        self._most = most << 20
        self._size = 0
        self._schema: Any = None
        self._writer: Any = None

    def add(self, columns: Mapping[str, Any]) -> None:
        """Adds rows: arrays, or lists of plain values, by the names of their columns."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pa.Table.from_pydict(columns, schema=self._schema)
        self._schema = table.schema
        if self._writer is None:
            path = self.place.in_(self._folder, self._pattern)
            path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(path, table.schema, compression="snappy")
        self._writer.write_table(table)
        self._size += table.nbytes
        if self._size >= self._most:
            self.close()
            self.place, self._size = self.place.next, 0

    def close(self) -> None:
        """Writes what is left; it can be read from now on."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


class GrowingVideo:
    """The videos of one camera, to which episodes are added; each file has whole episodes.

    Args:
        folder: Of the data set.
        camera: The name of the feature.
        shape: Height and width of its images, and 3.
        fps: Images per second.
        most: MiB after which the next file begins.
    """

    def __init__(
        self, folder: Path, camera: str, shape: tuple[int, ...], *, fps: float, most: int = MOST_VIDEO
    ) -> None:
        self.place = FileNumber()
        """Where the next images go."""
        self._folder = folder
        self._camera = camera
        self._shape = shape
        self._fps = fps
        self._most = most << 20
        self._file: VideoFile | None = None

    @property
    def seconds(self) -> float:
        """Where in its file the next image will be."""
        return 0.0 if self._file is None else self._file.count / self._fps

    @property
    def file(self) -> VideoFile:
        """The file that grows."""
        if self._file is None:
            path = self.place.in_(self._folder, VIDEO_PATH, video_key=self._camera)
            self._file = VideoFile(path, fps=self._fps, height=self._shape[0], width=self._shape[1])
        return self._file

    def end_episode(self) -> None:
        """Begins another file, if this one is large."""
        if self._file is not None and self._file.size >= self._most:
            self.close()
            self.place = self.place.next

    def close(self) -> None:
        """Writes what is left; it can be read from now on."""
        if self._file is not None:
            self._file.close()
            self._file = None


def write_json(path: Path, content: Any) -> None:
    """Writes a file of the folder `meta`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=4, ensure_ascii=False, allow_nan=False), encoding="utf-8")


def write_tasks(path: Path, sentences: list[str]) -> None:
    """Writes the sentences of tasks as a table that pandas reads with them as its index, which LeRobot counts on."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    index = "__index_level_0__"
    columns: list[dict[str, Any]] = [
        {"name": "task_index", "field_name": "task_index", "pandas_type": "int64", "numpy_type": "int64"},
        {"name": None, "field_name": index, "pandas_type": "unicode", "numpy_type": "object"},
    ]
    about = {
        "index_columns": [index],
        "column_indexes": [],
        "columns": [{**column, "metadata": None} for column in columns],
        "creator": {"library": "pyarrow", "version": pa.__version__},
        "pandas_version": "2.0.0",
    }
    numbers, words = pa.array(range(len(sentences)), pa.int64()), pa.array(sentences, pa.string())
    table = pa.table({"task_index": numbers, index: words})
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table.replace_schema_metadata({"pandas": json.dumps(about)}), path)

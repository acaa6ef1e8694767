"""TensorBoard: event files in a folder. It needs neither TensorFlow nor torch."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

from pydantic import Field

from sparring.orchestrator.trackers.base import TableCell, TrackedRun, Tracker, TrackerSettings
from sparring.orchestrator.trackers.moving_picture import moving_picture
from sparring.protos.advice import Hint
from sparring.protos.errors import UsageError

FOLDER: Final = "tensorboard"
"""Of the event files, in the output folder."""


class TensorboardSettings(TrackerSettings):
    """Says where its files are."""

    dir: Path | None = Field(
        None, description="folder of the event files; `tensorboard` in the output folder, if left out"
    )


class Tensorboard(Tracker[TensorboardSettings]):
    """A folder of event files."""

    name: ClassVar[str] = "tensorboard"
    summary: ClassVar[str] = "TensorBoard's event files"
    library: ClassVar[str] = "tensorboard"
    extra: ClassVar[str] = "tensorboard"
    settings: ClassVar[type[TrackerSettings]] = TensorboardSettings

    _writer: Any = None

    def check(self, folder: Path | None) -> None:
        self._folder(folder)

    def open(self, run: TrackedRun) -> str:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        folder = self._folder(run.folder)
        self._writer = EventFileWriter(str(folder))
        if not run.id:
            told = "\n".join(f"    {line}" for line in json.dumps(run.config, indent=2, default=str).splitlines())
            self._text("config", f"{run.title}\n\n{told}", 0)
        return str(folder)

    def log(self, numbers: Mapping[str, float], at: int) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary

        self._add([Summary.Value(tag=name, simple_value=value) for name, value in numbers.items()], at)

    def table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[TableCell]], at: int) -> None:
        lines = [columns, ["---"] * len(columns), *rows]
        self._text(name, "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines), at)

    def film(self, name: str, path: Path, caption: str, at: int) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary

        picture = moving_picture(path)
        if picture is None:
            self._text(name, f"{_cell(caption)}: {_cell(str(path))}", at)
            return
        data, width, height = picture
        image = Summary.Image(encoded_image_string=data, width=width, height=height, colorspace=3)
        self._add([Summary.Value(tag=name, image=image)], at)

    def facts(self, facts: Mapping[str, Any], at: int) -> None:
        told = json.dumps(dict(facts), indent=2, default=str)
        self._text("eval/facts", "\n".join(f"    {line}" for line in told.splitlines()), at)

    def close(self, *, finished: bool) -> None:
        self._writer.close()

    def _folder(self, output: Path | None) -> Path:
        if self.own.dir is not None:
            return self.own.dir
        if output is None:
            where = Hint("track_arg", "dir")
            raise UsageError(f"TensorBoard's files need a folder: name one with {where}, or with {Hint('output')}.")
        return output / FOLDER

    def _text(self, name: str, text: str, at: int) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
        from tensorboard.compat.proto.tensor_pb2 import TensorProto
        from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
        from tensorboard.plugins.text.plugin_data_pb2 import TextPluginData

        kind = SummaryMetadata.PluginData(plugin_name="text", content=TextPluginData(version=0).SerializeToString())
        shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)])
        tensor = TensorProto(dtype="DT_STRING", string_val=[text.encode()], tensor_shape=shape)
        self._add([Summary.Value(tag=name, metadata=SummaryMetadata(plugin_data=kind), tensor=tensor)], at)

    def _add(self, values: Sequence[Any], at: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        self._writer.add_event(Event(wall_time=time.time(), step=at, summary=Summary(value=values)))
        self._writer.flush()  # who looks on sees it, and who is killed has written it


def _cell(value: TableCell) -> str:
    """Returns a cell of a Markdown table; TensorBoard itself cleans what looks like HTML."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return "–" if value is None else str(value).replace("|", "\\|").replace("\n", " ")

"""A tracker as users may write one, found through an entry point: it keeps what it is told in a list."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from sparring import TrackedRun, Tracker, TrackerSettings


class DiarySettings(TrackerSettings):
    fails_at: str = ""
    colour: str = "red"


class Diary(Tracker[DiarySettings]):
    """Writes down what it is told."""

    name: ClassVar[str] = "diary"
    summary: ClassVar[str] = "a list"
    settings: ClassVar[type[TrackerSettings]] = DiarySettings
    pages: ClassVar[list[tuple[Any, ...]]] = []

    def _write(self, what: str, *told: Any) -> None:
        sys.stdout.write("chatter of a library\n")
        if self.own.fails_at == what:
            raise RuntimeError("no ink")
        Diary.pages.append((what, *told))

    def open(self, run: TrackedRun) -> str:
        self._write("open", run)
        return run.id or "volume-1"

    def log(self, numbers: Mapping[str, float], at: int) -> None:
        self._write("log", dict(numbers), at)

    def table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], at: int) -> None:
        self._write("table", name, [dict(zip(columns, row, strict=True)) for row in rows], at)

    def film(self, name: str, path: Path, caption: str, at: int) -> None:
        self._write("film", name, path, caption, at)

    def facts(self, facts: Mapping[str, Any], at: int) -> None:
        self._write("facts", dict(facts), at)

    def close(self, *, finished: bool) -> None:
        self._write("close", finished)

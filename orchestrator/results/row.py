"""A finished episode, as it stands in the journal and in episodes.csv."""

from __future__ import annotations

import json
import sys
import zlib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, Final, get_args, get_origin, get_type_hints

from sparring.orchestrator.plan import EpisodeId
from sparring.protos.record import EpisodeRecord, Outcome

Cell = str | int | float
"""What SQLite and CSV files know."""


@dataclass(kw_only=True)
class EpisodeRow(EpisodeRecord):
    """One finished episode: which one it was, its record, and what the orchestrator knows of it.

    Attributes:
        benchmark: It is of; the name of its part of the run, if that has one.
        task: Its name in the benchmark.
        index: Which of the task's episodes, from 0.
        seed: It was played with.
    """

    benchmark: str
    task: str
    index: int
    seed: int
    attempts: int
    """How many tries ended in an error or an outcome."""
    video: str
    """Path of the film, relative to the output folder; empty: there is none."""
    worker: str = ""
    """Who played it; empty: not known, as in journals of earlier releases."""
    host: str = ""
    """The machine that the worker ran on."""
    maker: int = 0
    """The number, among the run's makers, of that worker with its machine and versions; 0: not known."""

    @property
    def id(self) -> EpisodeId:
        """Which episode this is."""
        return EpisodeId(self.benchmark, self.task, self.index)

    def cells(self) -> dict[str, Cell]:
        """Returns its values by column; mappings as JSON."""
        return {name: _cell(getattr(self, name)) for name in COLUMNS}

    def csv(self) -> list[Cell]:
        """Returns its line of episodes.csv; a mapping that is empty is an empty cell."""
        return ["" if cell == "{}" and name in _MAPPINGS else cell for name, cell in self.cells().items()]

    @classmethod
    def from_cells(cls, cells: Mapping[str, Cell]) -> EpisodeRow:
        """Makes a row of these values. A column that there was not at the time has its default."""
        values: dict[str, Any] = {name: cells[name] for name in COLUMNS if name in cells}
        values |= {name: json.loads(values[name] or "{}") for name in _MAPPINGS & values.keys()}
        return cls(**values)


def _ordered() -> tuple[str, ...]:
    """Returns the columns, each where the release that added it has put it: new ones of the record are the last."""
    record = [f.name for f in fields(EpisodeRecord)]
    before = record.index("error")
    after = record.index("metrics") + 1
    identity = ("benchmark", "task", "index", "seed")
    return (*identity, *record[:before], "attempts", "video", *record[before:after], *MAKER_COLUMNS, *record[after:])


def _cell(value: Any) -> Cell:
    if isinstance(value, Mapping):
        return json.dumps(value, sort_keys=True, allow_nan=False)
    return value  # type: ignore[no-any-return]


MAKER_COLUMNS: Final = ("worker", "host", "maker")
"""Who has played an episode: not the same in two runs of one plan, as times are not."""

COLUMNS: Final = _ordered()
CHECKSUM: Final = "checksum"
"""A column that only the journal has."""
_HINTS: Final = get_type_hints(EpisodeRow)
_MAPPINGS: Final = {name for name in COLUMNS if get_origin(_HINTS[name]) is dict}
_SQL: Final[Mapping[Any, str]] = {int: "INTEGER", float: "REAL"}
_DEFAULTS: Final = {f.name: "{}" if f.name in _MAPPINGS else f.default for f in fields(EpisodeRow)}


def column_definition(name: str) -> str:
    """Returns a column in SQL, with the default of the record, so that it can be added to a table that has rows."""
    if name == CHECKSUM:
        return f'"{CHECKSUM}" INTEGER NOT NULL DEFAULT 0'
    definition = f'"{name}" {_SQL.get(_HINTS[name], "TEXT")} NOT NULL'
    default = _DEFAULTS[name]
    return definition if default is MISSING else f"{definition} DEFAULT {_literal(default)}"


def checksum(cells: Mapping[str, Cell]) -> int:
    """Returns a number that tells whether a row is still what was recorded; never 0, which says that there is none.

    Columns that have their default are left out: those that a later release adds leave it as it is.
    """
    # As SQLite gives them back: a float for a column of floats, and no zero below zero.
    values = {name: float(cells[name]) + 0.0 if _HINTS[name] is float else cells[name] for name in cells}
    content = sorted((name, value) for name, value in values.items() if value != _DEFAULTS[name])
    return zlib.crc32(json.dumps(content).encode()) or 1


def is_sound(cells: Mapping[str, Any]) -> bool:
    """Returns whether what stands in a row of a journal is what was recorded, as far as that can be told."""
    known = {name: cells[name] for name in COLUMNS if name in cells}
    if not _has_sense(known):
        return False
    return not cells.get(CHECKSUM) or cells[CHECKSUM] == checksum(known)  # earlier releases kept none


def _has_sense(cells: Mapping[str, Any]) -> bool:
    if any(name not in cells for name in COLUMNS if _DEFAULTS[name] is MISSING):
        return False
    if not all(isinstance(value, _TYPES.get(_HINTS[name], str)) for name, value in cells.items()):
        return False
    if not all(_is_finite(value) for name, value in cells.items() if _HINTS[name] is float):
        return False
    try:
        mappings = [json.loads(cells[name] or "{}") for name in _MAPPINGS & cells.keys()]
    except (ValueError, RecursionError):
        return False
    if not all(isinstance(found, dict) and all(map(_is_finite, found.values())) for found in mappings):
        return False
    return cells["outcome"] in get_args(Outcome)


def _is_finite(value: object) -> bool:
    """Returns whether this is a number that a float can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= sys.float_info.max  # which NaN is not, and an int may be as large as it likes


_TYPES: Final[Mapping[Any, tuple[type, ...]]] = {int: (int,), float: (int, float)}


def _literal(value: Cell) -> str:
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)

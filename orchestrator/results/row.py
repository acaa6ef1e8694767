"""A finished episode, as it stands in the journal and in episodes.csv."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, Final, get_origin, get_type_hints

from sparring.orchestrator.run.plan import EpisodeId
from sparring.protos.record import EpisodeRecord

Cell = str | int | float
"""What SQLite and CSV files know."""


@dataclass(kw_only=True)
class EpisodeRow(EpisodeRecord):
    """One finished episode: which one it was, its record, and what the orchestrator knows of it."""

    benchmark: str
    task: str
    index: int
    seed: int
    attempts: int
    """How many tries ended in an error or an outcome."""
    video: str
    """Path of the film, relative to the output folder; empty: there is none."""

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
    """Returns the columns: identity, record, and within that, where release 0.1.0 had them, our own two."""
    record = [f.name for f in fields(EpisodeRecord)]
    own = [f.name for f in fields(EpisodeRow) if f.name not in record]
    ours = ["attempts", "video"]
    end = record.index("error")
    return (*(name for name in own if name not in ours), *record[:end], *ours, *record[end:])


def _cell(value: Any) -> Cell:
    if isinstance(value, Mapping):
        return json.dumps(value, sort_keys=True, allow_nan=False)
    return value  # type: ignore[no-any-return]


COLUMNS: Final = _ordered()
_HINTS: Final = get_type_hints(EpisodeRow)
_MAPPINGS: Final = {name for name in COLUMNS if get_origin(_HINTS[name]) is dict}
_SQL: Final[Mapping[Any, str]] = {int: "INTEGER", float: "REAL"}


def column_definition(name: str) -> str:
    """Returns a column in SQL, with the default of the record, so that it can be added to a table that has rows."""
    definition = f'"{name}" {_SQL.get(_HINTS[name], "TEXT")} NOT NULL'
    default = next(f.default for f in fields(EpisodeRow) if f.name == name)
    if name in _MAPPINGS:
        return f"{definition} DEFAULT '{{}}'"
    return definition if default is MISSING else f"{definition} DEFAULT {_literal(default)}"


def _literal(value: Cell) -> str:
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)

"""Makers: who has made the rows of a run. A worker, its machine, and the versions of all that had a part in it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from typing import Final

from pydantic import BaseModel, ConfigDict, Field

from sparring.orchestrator.results.row import EpisodeRow

_LONGEST_NAME: Final = 255
_MOST_PACKAGES: Final = 500
_PROGRAMS: Final = "programs"
"""The key that programs have beside versions, in the journal."""
POLICY: Final = "policy"
BENCHMARK: Final = "benchmark"


class Maker(BaseModel):
    """Says who has made some rows. Workers say it of themselves, and are believed."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    worker: str = Field(description="name of the worker")
    host: str = Field(description="name of the machine that it ran on")
    versions: dict[str, dict[str, str]] = Field(
        description="versions of packages of the `worker`, of the `orchestrator` and of the `policy_server` at the time"
    )
    programs: dict[str, str] = Field(
        default_factory=dict,
        description="hashes of the `policy` and of the `benchmark` at the time, which `programs` of run.json is about; "
        "one that is not known is left out",
    )

    @classmethod
    def of(
        cls,
        worker: str,
        host: str,
        versions: Mapping[str, str],
        beside: Mapping[str, Mapping[str, str]],
        programs: Mapping[str, str] | None = None,
    ) -> Maker:
        """Makes one of what a worker says, which has its limits.

        Args:
            worker: Its name.
            host: Its machine.
            versions: Of its packages.
            beside: Versions of the other programs of the run.
            programs: Hashes of the policy and the benchmark.
        """
        own = {name[:_LONGEST_NAME]: versions[name][:_LONGEST_NAME] for name in sorted(versions)[:_MOST_PACKAGES]}
        return cls(
            worker=worker,
            host=host[:_LONGEST_NAME],
            versions={"worker": own, **{where: dict(found) for where, found in beside.items()}},
            programs={what: sha256 for what, sha256 in (programs or {}).items() if sha256},
        )


class NewMakers:
    """Makers of one journal that no row refers to yet: they are written with the first row that does.

    A transaction for each would be half of what the first episode of a worker costs.
    """

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, str, str], int] = {}

    def number_of(self, connection: sqlite3.Connection, maker: Maker) -> int:
        """Returns the number of a maker in a journal, which it gets the first time."""
        cells = _cells(maker)
        known = "SELECT id FROM makers WHERE worker = ? AND host = ? AND versions = ?"
        if found := connection.execute(known, cells).fetchone():
            return int(found[0])
        if cells not in self._numbers:
            last = int(connection.execute("SELECT coalesce(max(id), 0) FROM makers").fetchone()[0])
            self._numbers[cells] = 1 + max(last, *self._numbers.values(), 0)
        return self._numbers[cells]

    def write(self, connection: sqlite3.Connection) -> None:
        """Writes them."""
        rows = [(number, *cells) for cells, number in self._numbers.items()]
        connection.executemany("INSERT OR IGNORE INTO makers (id, worker, host, versions) VALUES (?, ?, ?, ?)", rows)

    def forget(self) -> None:
        """Hears that what was written is there for good."""
        self._numbers.clear()


def _cells(maker: Maker) -> tuple[str, str, str]:
    content = {**maker.versions, **({_PROGRAMS: maker.programs} if maker.programs else {})}
    return maker.worker, maker.host, json.dumps(content, sort_keys=True, allow_nan=False)


def makers_of(connection: sqlite3.Connection) -> dict[int, Maker]:
    """Returns the makers in a journal, by their numbers; journals of earlier releases have none."""
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'makers'").fetchone():
        return {}
    found = connection.execute("SELECT id, worker, host, versions FROM makers ORDER BY id")
    return {number: _read(worker, host, json.loads(content)) for number, worker, host, content in found}


def _read(worker: str, host: str, content: dict[str, dict[str, str]]) -> Maker:
    return Maker(worker=worker, host=host, programs=content.pop(_PROGRAMS, {}), versions=content)


def mixed_versions(rows: Iterable[EpisodeRow], makers: Mapping[int, Maker]) -> list[str]:
    """Says in sentences where rows of one benchmark were made with different versions of a package."""
    made = sorted({(row.benchmark, row.maker) for row in rows if row.maker in makers})
    found: dict[tuple[str, str, str], set[str]] = {}
    for benchmark, number in made:
        for where, packages in makers[number].versions.items():
            for package, version in packages.items():
                found.setdefault((benchmark, where, package), set()).add(version)
    return [
        f"episodes of {benchmark} were made with different versions of {package} "
        f"({where.replace('_', ' ')}): {' and '.join(sorted(versions))}."
        for (benchmark, where, package), versions in found.items()
        if len(versions) > 1
    ]

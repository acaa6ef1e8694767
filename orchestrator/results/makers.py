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


class Maker(BaseModel):
    """Who has made some rows: it says so itself, and is believed."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    worker: str = Field(description="name of the worker")
    host: str = Field(description="name of the machine that it ran on")
    versions: dict[str, dict[str, str]] = Field(
        description="versions of packages of the `worker`, of the `orchestrator` and of the `policy_server` at the time"
    )

    @classmethod
    def of(cls, worker: str, host: str, versions: Mapping[str, str], beside: Mapping[str, Mapping[str, str]]) -> Maker:
        """Makes one of what a worker says, which has its limits.

        Args:
            worker: Its name.
            host: Its machine.
            versions: Of its packages.
            beside: Versions of the other programs of the run.
        """
        own = {name[:_LONGEST_NAME]: versions[name][:_LONGEST_NAME] for name in sorted(versions)[:_MOST_PACKAGES]}
        return cls(
            worker=worker,
            host=host[:_LONGEST_NAME],
            versions={"worker": own, **{where: dict(found) for where, found in beside.items()}},
        )


def number_of(connection: sqlite3.Connection, maker: Maker) -> int:
    """Returns the number of a maker in a journal, which it gets the first time."""
    cells = (maker.worker, maker.host, json.dumps(maker.versions, sort_keys=True, allow_nan=False))
    connection.execute("INSERT OR IGNORE INTO makers (worker, host, versions) VALUES (?, ?, ?)", cells)
    found = connection.execute("SELECT id FROM makers WHERE worker = ? AND host = ? AND versions = ?", cells)
    return int(found.fetchone()[0])


def makers_of(connection: sqlite3.Connection) -> dict[int, Maker]:
    """Returns the makers in a journal, by their numbers; journals of earlier releases have none."""
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'makers'").fetchone():
        return {}
    found = connection.execute("SELECT id, worker, host, versions FROM makers ORDER BY id")
    return {
        number: Maker(worker=worker, host=host, versions=json.loads(versions))
        for number, worker, host, versions in found
    }


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

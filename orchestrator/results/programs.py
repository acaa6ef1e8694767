"""Programs: what decided the numbers of a run beside its plan, as hashes, so that a change of it is noticed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field

from sparring.orchestrator.results.finite import finite
from sparring.orchestrator.results.makers import BENCHMARK, POLICY, Maker
from sparring.orchestrator.results.row import EpisodeRow

NOTE: Final = "program:"
"""Before the hash of a program, the key of the note in the journal that says what it is."""
_SHOWN: Final = 12
"""Characters of a hash that are shown to people."""


class Program(BaseModel):
    """Code, arguments and weights of a policy, or code and settings of a benchmark."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    files: dict[str, str] = Field(
        description="source files of the user's own, by the name of the module as a path, with their SHA-256"
    )
    data: dict[str, str] = Field(default_factory=dict, description="files that arguments name, with their SHA-256")
    arguments: dict[str, Any] = Field(
        description="arguments of the policy, or settings of the benchmark, as they were given: no secrets"
    )
    checkpoint_sha256: str | None = Field(default=None, description="hash of the policy's checkpoint; null: none")

    @property
    def sha256(self) -> str:
        """The hash of all of it."""
        return hashlib.sha256(json.dumps(finite(self.model_dump()), sort_keys=True).encode()).hexdigest()

    def differences(self, now: Program) -> list[str]:
        """Says in which parts another program differs from this one, which came before it."""
        found = [f"{name}: {how}" for name, how in _changed({**self.files, **self.data}, {**now.files, **now.data})]
        for name in sorted({*self.arguments, *now.arguments}):
            there, here = (side.arguments.get(name) for side in (self, now))
            if finite(there) != finite(here):
                found.append(f"{name}: {_shown(there)} there, {_shown(here)} now")
        if self.checkpoint_sha256 != now.checkpoint_sha256:
            there, here = ((side.checkpoint_sha256 or "none")[:_SHOWN] for side in (self, now))
            found.append(f"checkpoint: {there} there, {here} now")
        return found


def programs_in(notes: Mapping[str, Any]) -> dict[str, Program]:
    """Returns the programs that a run has noted, by their hashes."""
    return {key.removeprefix(NOTE): Program.model_validate(note) for key, note in notes.items() if key.startswith(NOTE)}


def changes(rows: Iterable[EpisodeRow], makers: Mapping[int, Maker], programs: Mapping[str, Program]) -> list[str]:
    """Says in sentences which episodes were made by another policy or benchmark than the ones before them."""
    judged = [row for row in rows if row.outcome != "error"]
    told = list(_changes_of(POLICY, "the policy", judged, makers, programs))
    for benchmark in dict.fromkeys(row.benchmark for row in judged):
        own = [row for row in judged if row.benchmark == benchmark]
        told += _changes_of(BENCHMARK, f"the benchmark {benchmark}", own, makers, programs)
    return told


def _changes_of(
    what: str,
    called: str,
    rows: Sequence[EpisodeRow],
    makers: Mapping[int, Maker],
    programs: Mapping[str, Program],
) -> Iterator[str]:
    made: dict[str, int] = {}
    for row in sorted(rows, key=lambda row: row.maker):
        program = makers[row.maker].programs.get(what, "") if row.maker in makers else ""
        made[program] = made.get(program, 0) + 1
    unknown = made.pop("", 0)
    if unknown and made:
        yield (
            f"of {unknown} of {len(rows)} episodes it is not known what {called} was: it was not written down; whether "
            "it was the same as in the others cannot be checked."
        )
    known = list(made)
    for before, after in pairwise(known):
        parts = programs[before].differences(programs[after]) if before in programs and after in programs else []
        yield f"{made[after]} of {len(rows)} episodes were made after {called} had changed: {'; '.join(parts)}."


def _changed(there: Mapping[str, str], now: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name in sorted({*there, *now}):
        if there.get(name) != now.get(name):
            yield name, "is gone" if name not in now else "is new" if name not in there else "was changed"


def _shown(value: Any) -> str:
    return "not given" if value is None else json.dumps(finite(value))

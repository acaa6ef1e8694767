"""Writes episodes to a data set, whatever they come from."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sparring.orchestrator.export.destination import whole_or_nothing
from sparring.orchestrator.export.formats import FORMATS, ExportOptions
from sparring.orchestrator.export.recorded import RecordedEpisode, recordings_in
from sparring.protos.comma_list import comma_list
from sparring.protos.errors import UsageError, unknown

Only = Literal["all", "successes", "failures"]


@dataclass(frozen=True)
class Exported:
    """What is in a data set."""

    episodes: int
    steps: int


def export(episodes: Iterable[RecordedEpisode], out: Path, form: str, options: ExportOptions) -> Exported:
    """Writes a data set, all of it or nothing.

    Args:
        episodes: In the order that they will have.
        out: Where; there must be nothing yet.
        form: One of `FORMATS`.
        options: What is to be in it.

    Raises:
        UsageError: If there are no episodes, or they cannot be in such a data set.
        SparringError: If it cannot be written.
    """
    FORMATS[form].check(options)
    count = steps = 0
    with whole_or_nothing(out) as folder, closing(FORMATS[form](folder, options)) as writer:
        for episode in episodes:
            writer.add(episode)
            count, steps = count + 1, steps + len(episode.actions)
        if not count:
            raise UsageError("no episode is left to be exported.")
        writer.finish()
    return Exported(count, steps)


def chosen_recordings(folder: Path, *, only: Only = "all", tasks: str | None = None) -> Sequence[RecordedEpisode]:
    """Opens the recordings below a folder that are wanted.

    Args:
        folder: As given to `--record`.
        only: Those that ended so.
        tasks: Names of tasks, comma-separated; `*` and `?` stand for anything. None: all.

    Raises:
        UsageError: If there are none, or no task has such a name.
    """
    found = recordings_in(folder)
    if tasks is not None:
        names = sorted({episode.about.task for episode in found})
        wanted: set[str] = set()
        for part in comma_list(tasks):
            if not (matching := fnmatch.filter(names, part)):
                raise unknown("task of these recordings:", part, names)
            wanted |= set(matching)
        found = [episode for episode in found if episode.about.task in wanted]
    return [episode for episode in found if only == "all" or episode.about.success is (only == "successes")]

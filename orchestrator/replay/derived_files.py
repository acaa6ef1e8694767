"""The files that a run makes of its journal: whether they still say what the journal says."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sparring.orchestrator.replay.told_numbers import told_problems
from sparring.orchestrator.results.document import read_document
from sparring.orchestrator.results.files import read_regular
from sparring.orchestrator.results.results import RESULT_FILES, Results
from sparring.orchestrator.results.row import COLUMNS

_FILMS = ("video_paths", "predicted_video_paths")


def derived_problems(folder: Path) -> Iterator[str]:
    """Says in sentences where run.json, episodes.csv and eval_info.json are not what the journal comes to.

    A run that is going on writes them at its end.
    """
    results = Results.load(folder)
    if results.status == "running":
        return
    yield from told_problems(read_document(folder), results.rows, "the journal")
    yield from _csv_problems(folder, results)
    yield from _eval_info_problems(folder, results)


def _csv_problems(folder: Path, results: Results) -> Iterator[str]:
    path = folder / RESULT_FILES[0]
    try:
        written = list(csv.reader(io.StringIO(read_regular(path))))
    except (OSError, ValueError, csv.Error) as error:
        yield f"{path.name} cannot be read: {error}."
        return
    if not written or tuple(written[0]) != COLUMNS:
        yield f"{path.name} has other columns than this release writes, and was not compared."
        return
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(row.csv() for row in results.rows)
    expected = list(csv.reader(io.StringIO(text.getvalue())))
    for number, (there, wanted) in enumerate(zip(written[1:], expected, strict=False), start=2):
        if there != wanted:
            yield f"line {number} of {path.name} is not what the journal says."
            return
    if len(written) - 1 != len(expected):
        yield f"{path.name} has {len(written) - 1} episodes, and the journal has {len(expected)}."


def _eval_info_problems(folder: Path, results: Results) -> Iterator[str]:
    path = folder / RESULT_FILES[1]
    try:
        written = json.loads(read_regular(path))
    except (OSError, ValueError, RecursionError) as error:
        yield f"{path.name} cannot be read: {error}."
        return
    expected = json.loads(json.dumps(results.eval_info()))
    if _without_places(written) != _without_places(expected):
        yield f"{path.name} is not what the journal comes to."


def _without_places(content: Any) -> Any:
    """Returns it without paths, which are others once a folder is moved, and without times."""
    if isinstance(content, dict):
        left_out = (*_FILMS, "eval_s", "eval_ep_s")
        return {name: _without_places(value) for name, value in content.items() if name not in left_out}
    return [_without_places(value) for value in content] if isinstance(content, list) else content

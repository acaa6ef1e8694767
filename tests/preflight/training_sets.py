"""Data sets that a policy was trained on: recordings of itself, by conventions that are not the benchmark's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sparring.orchestrator.export.export import chosen_recordings, export
from sparring.orchestrator.export.formats import ExportOptions
from sparring.orchestrator.preflight.data_set import DataSet

Change = Callable[[dict[str, Any]], None]


def changed(recordings: Path, folder: Path, change: Change, *, observations: Sequence[str] = ()) -> DataSet:
    """Writes a data set of recordings whose arrays (`actions`, `observations/...`) and `about` were changed first."""
    for path in sorted(recordings.rglob("*.npz")):
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        change(arrays)
        copy = folder / "recordings" / path.relative_to(recordings)
        copy.parent.mkdir(parents=True, exist_ok=True)
        with copy.open("wb") as file:
            np.savez(file, **arrays)
    export(chosen_recordings(folder / "recordings"), folder / "set", "lerobot", ExportOptions(observations))
    return DataSet(folder / "set")
